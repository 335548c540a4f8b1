"""Slots: what this process owns.

A slot changes hands when its owner gave it back, left, or was fenced; each claim raises its epoch
by one, in one lightweight transaction. The claimant's nonce tells its own transaction from others'.

Who lost a slot would notice with its next write. `compare` notices it earlier, so that consumers
are not kept with somebody who can no longer confirm anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from pushlane_storage.bucket import ShardKey
from pushlane_storage.cassandra.crowd import gather
from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.node import Node
from pushlane_storage.cassandra.ring import Change, Ring, Row, read_row
from pushlane_storage.cassandra.tables import SLOTS
from pushlane_storage.cassandra.watch import Watches
from pushlane_storage.interface import Fenced, StoreRefused, StoreUnknown
from pushlane_storage.slot import SLOTS as COUNT
from pushlane_storage.slot import slot_of

NONCE_BYTES = 16
NOBODY = ""
COPYING = "copying"
"""In place of a process: a copy into this keyspace is not finished, and nobody outlives it."""


class Claim:
    """A slot that this process owns, under one identity and epoch."""

    __slots__ = ("epoch", "is_noted", "is_taken", "node", "nonce", "slot")

    def __init__(self, slot: int, epoch: int, node: Node, nonce: str) -> None:
        self.slot = slot
        self.epoch = epoch
        self.node = node
        self.nonce = nonce
        self.is_taken = False
        """The slot's row was seen to be another's."""
        self.is_noted = False
        """It was counted that it is over."""

    @property
    def is_over(self) -> bool:
        return self.is_taken or self.node.fence.is_down

    def fault(self) -> Fenced:
        if self.is_taken:
            return Fenced(f"slot {self.slot} was taken by another process")
        return self.node.fence.fault()


class Slots:
    def __init__(
        self,
        ring: Ring,
        decisions: Decisions,
        watches: Watches,
        node: Callable[[], Awaitable[Node]],
        dc: str,
        limits: Limits,
        randbytes: Callable[[int], bytes],
    ) -> None:
        """`node` answers the identity to claim under: not one that was fenced."""
        self._ring = ring
        self._decisions = decisions
        self._watches = watches
        self._node = node
        self._dc = dc
        self._limits = limits
        self._randbytes = randbytes
        self._claims: dict[int, Claim] = {}
        self._claiming = [trio.Lock() for _ in range(COUNT)]
        self.lost = 0
        """Slots that were found to be another's when the rows were compared."""

    def __len__(self) -> int:
        return sum(not claim.is_over for claim in self._claims.values())

    # Who may write

    def check(self, shard: ShardKey, epoch: int) -> Claim:
        """The claim under which an owner with this epoch writes, or `Fenced`."""
        claim = self._claims.get(slot_of(shard))
        if claim is None or claim.epoch != epoch:
            held = "not ours" if claim is None else f"ours with epoch {claim.epoch}"
            raise Fenced(f"slot {slot_of(shard)} is {held}, this write is of epoch {epoch}")
        if claim.is_over:
            raise claim.fault()
        return claim

    def find(self, shard: ShardKey) -> Claim | None:
        return self._claims.get(slot_of(shard))

    def fault(self, claim: Claim) -> Fenced | None:
        """Why a claim holds no longer."""
        if self._claims.get(claim.slot) is not claim:
            return Fenced(f"slot {claim.slot}: epoch {claim.epoch} is over")
        return claim.fault() if claim.is_taken else None

    # Looking whether it still is so

    async def compare(self) -> list[tuple[int, int]]:
        """Compare the slots' rows with what is claimed: (slot, epoch) of what is over."""
        held = [claim for claim in self._claims.values() if not claim.is_over]
        await gather(self._look, held, self._limits.reads)
        over = [claim for claim in self._claims.values() if claim.is_over]
        self.lost += sum(not claim.is_noted for claim in over)
        for claim in over:
            claim.is_noted = True
        return [(claim.slot, claim.epoch) for claim in over]

    async def _look(self, claim: Claim) -> None:
        row = await read_row(self._ring, SLOTS, (claim.slot,))
        if _is_of(claim, row):
            return
        # A plain read may be older than our own transaction, this one can't be.
        row = await self._decisions.read(SLOTS, (claim.slot,))
        claim.is_taken = not _is_of(claim, row)

    # Taking and giving

    async def claim(self, slot: int, owner: str) -> int:
        assert 0 <= slot < COUNT
        async with self._claiming[slot]:
            # First of all: whatever is confirmed from here on was durable before we read.
            self._claims.pop(slot, None)
            node = await self._node()
            claim = await self._take(slot, owner, node)
            self._claims[slot] = claim
            return claim.epoch

    async def _take(self, slot: int, owner: str, node: Node) -> Claim:
        row = await self._decisions.read(SLOTS, (slot,))
        for _ in range(self._limits.decisions):
            await self._outlive_owner(slot, row, node)
            nonce = self._randbytes(NONCE_BYTES).hex()
            epoch = 1 if row is None else row["epoch"] + 1
            new = {
                "epoch": epoch,
                "process": node.process,
                "owner": owner,
                "dc": self._dc,
                "nonce": nonce,
            }
            expect = None if row is None else {"nonce": row["nonce"]}

            def verdict(found: Row | None, nonce: str = nonce) -> bool:
                return found is not None and found["nonce"] == nonce

            decided = await self._decisions.decide(Change(SLOTS, (slot,), expect, new), verdict)
            if decided.applied:
                return Claim(slot, epoch, node, nonce)
            row = decided.row
        raise StoreUnknown(f"slot {slot} keeps changing hands")

    async def _outlive_owner(self, slot: int, row: Row | None, node: Node) -> None:
        """Come back when nobody alive owns the slot, but perhaps ourselves."""
        if row is None:
            return
        if row["dc"] != self._dc:
            raise StoreRefused(
                f"slot {slot} belongs to data centre {row['dc'] or '(none)'}:"
                f" what was stored there can't be read from {self._dc or '(none)'}"
            )
        process = row["process"]
        if process == COPYING:
            raise StoreRefused(f"slot {slot}: a copy into this keyspace is not finished")
        if process in (NOBODY, node.process) or await self._watches.outlive(process):
            return
        raise StoreRefused(f"slot {slot} is owned by {row['owner']} ({process}), which is alive")

    async def release(self, slot: int) -> None:
        """Give a slot back, so that another process gets it at once."""
        async with self._claiming[slot]:
            claim = self._claims.pop(slot, None)
            if claim is None or claim.is_over:
                return
            row = {"process": NOBODY, "nonce": self._randbytes(NONCE_BYTES).hex()}
            change = Change(SLOTS, (slot,), {"nonce": claim.nonce}, row)
            await self._decisions.decide(change, lambda _: True)

    def held(self) -> list[int]:
        return sorted(self._claims)


def _is_of(claim: Claim, row: Row | None) -> bool:
    return row is not None and row["nonce"] == claim.nonce


async def is_copying(ring: Ring) -> bool:
    """Whether a copy into this keyspace is not finished: slot 0 is opened to servers last."""
    row = await read_row(ring, SLOTS, (0,))
    return row is not None and row["process"] == COPYING
