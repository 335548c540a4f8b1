"""After a snapshot was restored: every slot goes on far above the epochs that were given out since.

Message ids, receipts and fences are made of epochs. A snapshot brings the slots' rows back as they
were, and what comes next would be given out a second time. The same distance is kept as by a
restored embedded store. Slots without a row get one: they may have been claimed after the snapshot.

Nobody can see that a keyspace was restored, so somebody must say so: `pushlane store restored`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

import trio

from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.connection import Connection
from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.driver_ring import DriverRing
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.ring import Change, Row
from pushlane_storage.cassandra.slots import NOBODY, NONCE_BYTES
from pushlane_storage.cassandra.tables import SLOTS
from pushlane_storage.errors import KeyspaceUnusable
from pushlane_storage.interface import StoreError, StoreUnknown
from pushlane_storage.restored_epoch import restored_epoch
from pushlane_storage.slot import SLOTS as COUNT
from pushlane_storage.work import gather


class Restored:
    def __init__(
        self,
        decisions: Decisions,
        limits: Limits,
        dc: str,
        taken_at: int,
        now: int,
        randbytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        """`taken_at`: when the snapshot was made; times are Unix milliseconds."""
        self._decisions = decisions
        self._limits = limits
        self._dc = dc
        self._taken_at = taken_at
        self._now = now
        self._randbytes = randbytes

    async def run(self) -> int:
        """Raise the epochs of all slots; answers the greatest. May be repeated."""
        return max((await gather(self._raise, range(COUNT), self._limits.reads)).values())

    async def _raise(self, slot: int) -> int:
        for _ in range(self._limits.decisions):
            row = await self._decisions.read(SLOTS, (slot,))
            old = 0 if row is None else row["epoch"]
            epoch = restored_epoch(old, self._taken_at, self._now)
            nonce = self._randbytes(NONCE_BYTES).hex()
            new: Row = {"epoch": epoch, "nonce": nonce}
            if row is None:
                new |= {"process": NOBODY, "owner": "", "dc": self._dc}
            expect = None if row is None else {"nonce": row["nonce"]}

            def verdict(found: Row | None, nonce: str = nonce) -> bool:
                return found is not None and found["nonce"] == nonce

            change = Change(SLOTS, (slot,), expect, new)
            if (await self._decisions.decide(change, verdict)).applied:
                return epoch
        raise StoreUnknown(f"slot {slot} keeps changing hands: stop the servers")


async def restored(address: Address, taken_at: int, now: int, limits: Limits | None = None) -> int:
    """Raise the epochs of a keyspace; `OpenError` says why it can't be."""
    bounds = limits or Limits()
    connection = await trio.to_thread.run_sync(Connection.connect, address, bounds)
    ring = DriverRing(connection, bounds)
    try:
        decisions = Decisions(ring, bounds.decisions)
        return await Restored(decisions, bounds, address.dc or "", taken_at, now).run()
    except StoreError as error:
        raise KeyspaceUnusable(f"keyspace {address.keyspace}: {error}") from error
    finally:
        with trio.CancelScope(shield=True):
            await ring.close()
