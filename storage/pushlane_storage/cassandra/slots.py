"""Slots: what this process owns.

A slot changes hands when its owner gave it back, left, or was fenced; each claim raises its epoch
by one, in one lightweight transaction. The claimant's nonce tells its own transaction from others'.
It stays for the tenure: a shard that opens again takes one more epoch under the same nonce, and the
others of its slot go on under theirs.

Who lost a slot would notice with its next write. `compare` notices it earlier, so that consumers
are not kept with somebody who can no longer confirm anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

from pushlane_storage.bucket import ShardKey
from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.home import Home
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.node import Node
from pushlane_storage.cassandra.ring import Change, Range, Ring, Row, read_all, read_row
from pushlane_storage.cassandra.tables import NOTES, SLOTS
from pushlane_storage.cassandra.watch import Watches
from pushlane_storage.interface import Fenced, SlotOwned, StoreError, StoreRefused, StoreUnknown
from pushlane_storage.member import Owner
from pushlane_storage.note import DueShard
from pushlane_storage.slot import SLOTS as COUNT
from pushlane_storage.slot import slot_of
from pushlane_storage.work import gather

NONCE_BYTES = 16
NOBODY = ""
COPYING = "copying"
"""In place of a process: a copy into this keyspace is not finished, and nobody outlives it."""


class Claim:
    """A slot that this process owns, under one identity: a tenure."""

    __slots__ = ("epoch", "is_noted", "is_taken", "lowest", "node", "nonce", "shards", "slot")

    def __init__(self, slot: int, epoch: int, node: Node, nonce: str) -> None:
        self.slot = slot
        self.lowest = epoch
        self.epoch = epoch
        """The newest one that was taken …"""
        self.shards: dict[ShardKey, int] = {}
        """… by these shards, which opened again and may write under no lower one any more."""
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
        home: Home,
        limits: Limits,
        randbytes: Callable[[int], bytes],
    ) -> None:
        """`node` answers the identity to claim under: not one that was fenced."""
        self._ring = ring
        self._decisions = decisions
        self._watches = watches
        self._node = node
        self._home = home
        self._limits = limits
        self._randbytes = randbytes
        self._claims: dict[int, Claim] = {}
        self._unclaimed: dict[int, str] = {}
        """Slots that are not claimed while their row may name us, by the nonce that it has then."""
        self._claiming = [trio.Lock() for _ in range(COUNT)]
        self.lost = 0
        """Slots that were found to be another's when the rows were compared."""

    def __len__(self) -> int:
        return sum(not claim.is_over for claim in self._claims.values())

    # Who may write

    def check(self, shard: ShardKey, epoch: int) -> Claim:
        """The claim under which an owner with this epoch writes, or `Fenced`."""
        claim = self._claims.get(slot_of(shard))
        if claim is None:
            raise Fenced(f"slot {slot_of(shard)} is not ours, this write is of epoch {epoch}")
        fault = self.fault(claim, shard, epoch)
        if fault is not None:
            raise fault
        if claim.is_over:
            raise claim.fault()
        return claim

    def find(self, shard: ShardKey) -> Claim | None:
        return self._claims.get(slot_of(shard))

    async def confirm(self, shard: ShardKey) -> None:
        """`Fenced` unless we own this shard's slot, and did so after the call began."""
        claim = self.find(shard)
        if claim is None:
            raise Fenced(f"slot {slot_of(shard)} is not ours")
        await claim.node.fence.confirm()
        fault = self.fault(claim, shard)
        if fault is not None:
            raise fault

    async def confirm_if_claimed(self, shard: ShardKey) -> None:
        """The same for who may have no claim: jobs mark and drop what nobody needs any more."""
        if self.find(shard) is not None:
            await self.confirm(shard)

    def fault(self, claim: Claim, shard: ShardKey, epoch: int | None = None) -> Fenced | None:
        """Why a shard's owner (with this epoch) is none any more."""
        if self._claims.get(claim.slot) is not claim:
            return Fenced(f"slot {claim.slot}: epoch {claim.epoch} is over")
        lowest = claim.shards.get(shard, claim.lowest)
        if epoch is not None and not lowest <= epoch <= claim.epoch:
            return Fenced(f"slot {claim.slot} is ours from epoch {lowest} on, this one is {epoch}")
        return claim.fault() if claim.is_taken else None

    # Looking whether it still is so

    async def compare(self) -> list[tuple[int, int]]:
        """Compare the slots' rows with what is claimed: (slot, epoch) of what is over."""
        held = [claim for claim in self._claims.values() if not claim.is_over]
        await gather(self._look, held, self._limits.reads)
        await gather(self._release_again, list(self._unclaimed), self._limits.reads)
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
            self._unclaimed.pop(slot, None)
            return claim.epoch

    async def _take(self, slot: int, owner: str, node: Node) -> Claim:
        row = await self._decisions.read(SLOTS, (slot,))
        for _ in range(self._limits.decisions):
            await self._outlive_owner(slot, row, node)
            nonce = self._unclaimed[slot] = self._randbytes(NONCE_BYTES).hex()
            epoch = 1 if row is None else row["epoch"] + 1
            new = {
                "epoch": epoch,
                "process": node.process,
                "owner": owner,
                "dc": self._home.dc,
                "nonce": nonce,
            }
            # Its owner may have taken one more epoch since, before it was outlived.
            expect = None if row is None else {"nonce": row["nonce"], "epoch": row["epoch"]}

            def verdict(found: Row | None, nonce: str = nonce) -> bool:
                return found is not None and found["nonce"] == nonce

            decided = await self._decisions.decide(Change(SLOTS, (slot,), expect, new), verdict)
            if decided.applied:
                return Claim(slot, epoch, node, nonce)
            row = decided.row
        raise StoreUnknown(f"slot {slot} keeps changing hands")

    async def next_epoch(self, shard: ShardKey) -> int:
        slot = slot_of(shard)
        async with self._claiming[slot]:
            claim = self._claims.get(slot)
            if claim is None:
                raise Fenced(f"slot {slot} is not ours")
            if not claim.is_over:
                await self._raise(claim)
            if claim.is_over:
                raise claim.fault()
            # From here on nothing that the shard wrote under a lower one is confirmed.
            claim.shards[shard] = claim.epoch
            return claim.epoch

    async def _raise(self, claim: Claim) -> None:
        """Take one more epoch. Claims of a slot wait for each other: nobody but us has its nonce.

        One that timed out may have been applied, or may be yet: then the row is ahead of us.
        """
        epoch = claim.epoch
        for _ in range(self._limits.decisions):
            new = epoch + 1

            def verdict(found: Row | None, new: int = new) -> bool:
                return _is_of(claim, found) and found is not None and found["epoch"] == new

            expect = {"nonce": claim.nonce, "epoch": epoch}
            change = Change(SLOTS, (claim.slot,), expect, {"epoch": new})
            decided = await self._decisions.decide(change, verdict)
            if decided.applied:
                claim.epoch = new
                return
            if decided.row is None or not _is_of(claim, decided.row):
                claim.is_taken = True
                return
            epoch = decided.row["epoch"]
        raise StoreUnknown(f"slot {claim.slot} keeps changing")

    async def _outlive_owner(self, slot: int, row: Row | None, node: Node) -> None:
        """Come back when nobody alive owns the slot, but perhaps ourselves; or the row changed."""
        if row is None:
            return
        process = row["process"]
        why = self._home.refusal(row["dc"], is_free=process == NOBODY)
        if why is not None:
            raise StoreRefused(f"slot {slot} {why}")
        if process == COPYING:
            raise StoreRefused(f"slot {slot}: a copy into this keyspace is not finished")
        if process in (NOBODY, node.process):
            return
        if await self._watches.outlive(process, slot, row["nonce"]):
            return
        owner = _owner_in(row)
        assert owner is not None
        what = f"slot {slot} is owned by {owner.name} ({process}), which is alive"
        raise SlotOwned(what, owner)

    async def release(self, slot: int) -> None:
        """Give a slot back, so that another process gets it at once."""
        async with self._claiming[slot]:
            claim = self._claims.pop(slot, None)
            if claim is not None and not claim.is_over:
                self._unclaimed[slot] = claim.nonce
            nonce = self._unclaimed.get(slot)
            if nonce is None:
                return
            row = {"process": NOBODY, "nonce": self._randbytes(NONCE_BYTES).hex()}
            change = Change(SLOTS, (slot,), {"nonce": nonce}, row)
            await self._decisions.decide(change, lambda _: True)
            del self._unclaimed[slot]

    async def _release_again(self, slot: int) -> None:
        """What could not be given back, or was claimed without a known outcome."""
        if slot not in self._claims and not self._claiming[slot].locked():
            with suppress(StoreError):
                await self.release(slot)

    async def owner_of(self, slot: int, *, serial: bool = False) -> Owner | None:
        """By the slot's row; None: nobody has it."""
        if serial:
            return _owner_in(await self._decisions.read(SLOTS, (slot,)))
        return _owner_in(await read_row(self._ring, SLOTS, (slot,)))

    async def owners(self) -> dict[int, Owner]:
        """By all rows."""
        found = await gather(self.owner_of, range(COUNT), self._limits.reads)
        return {slot: owner for slot in range(COUNT) if (owner := found[slot]) is not None}

    async def due_shards(self, slot: int, until: int, limit: int) -> list[DueShard]:
        names = ("due", "tenant", "queue", "queue_id", "shard")
        found = await read_all(self._ring, Range(NOTES, (slot,), self._limits.page_rows, names))
        due = [row for row in found if row["due"] is not None and row["due"] < until]
        return sorted(DueShard(*(row[name] for name in names)) for row in due)[:limit]

    def held(self) -> list[int]:
        return sorted({*self._claims, *self._unclaimed})


def _owner_in(row: Row | None) -> Owner | None:
    if row is None or row["process"] == NOBODY:
        return None
    return Owner(row["process"], row["owner"], row["epoch"])


def _is_of(claim: Claim, row: Row | None) -> bool:
    return row is not None and row["nonce"] == claim.nonce


async def is_copying(ring: Ring) -> bool:
    """Whether a copy into this keyspace is not finished: slot 0 is opened to servers last."""
    row = await read_row(ring, SLOTS, (0,))
    return row is not None and row["process"] == COPYING
