"""Slots: what this process owns.

A slot changes hands when its owner gave it back, left, or was fenced; each claim raises its epoch
by one, in one lightweight transaction. The claimant's nonce tells its own transaction from others'.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from pushlane_storage.bucket import ShardKey
from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.node import Node
from pushlane_storage.cassandra.ring import Change, Row
from pushlane_storage.cassandra.tables import SLOTS
from pushlane_storage.cassandra.watch import Watches
from pushlane_storage.interface import Fenced, StoreRefused, StoreUnknown
from pushlane_storage.slot import SLOTS as COUNT
from pushlane_storage.slot import slot_of

NONCE_BYTES = 16
NOBODY = ""


class Claim:
    """A slot that this process owns, under one identity and epoch."""

    __slots__ = ("epoch", "node", "nonce", "slot")

    def __init__(self, slot: int, epoch: int, node: Node, nonce: str) -> None:
        self.slot = slot
        self.epoch = epoch
        self.node = node
        self.nonce = nonce


class Slots:
    def __init__(
        self,
        decisions: Decisions,
        watches: Watches,
        node: Callable[[], Awaitable[Node]],
        dc: str,
        tries: int,
        randbytes: Callable[[int], bytes],
    ) -> None:
        """`node` answers the identity to claim under: not one that was fenced."""
        self._decisions = decisions
        self._watches = watches
        self._node = node
        self._dc = dc
        self._tries = tries
        self._randbytes = randbytes
        self._claims: dict[int, Claim] = {}
        self._claiming = [trio.Lock() for _ in range(COUNT)]

    def __len__(self) -> int:
        return len(self._claims)

    # Who may write

    def check(self, shard: ShardKey, epoch: int) -> Claim:
        """The claim under which an owner with this epoch writes, or `Fenced`."""
        claim = self._claims.get(slot_of(shard))
        if claim is None or claim.epoch != epoch:
            held = "not ours" if claim is None else f"ours with epoch {claim.epoch}"
            raise Fenced(f"slot {slot_of(shard)} is {held}, this write is of epoch {epoch}")
        if claim.node.fence.is_down:
            raise claim.node.fence.fault()
        return claim

    def find(self, shard: ShardKey) -> Claim | None:
        return self._claims.get(slot_of(shard))

    def fault(self, claim: Claim) -> Fenced | None:
        """Why a claim holds no longer."""
        if self._claims.get(claim.slot) is claim:
            return None
        return Fenced(f"slot {claim.slot}: epoch {claim.epoch} is over")

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
        for _ in range(self._tries):
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
        if process in (NOBODY, node.process) or await self._watches.outlive(process):
            return
        raise StoreRefused(f"slot {slot} is owned by {row['owner']} ({process}), which is alive")

    async def release(self, slot: int) -> None:
        """Give a slot back, so that another process gets it at once."""
        async with self._claiming[slot]:
            claim = self._claims.pop(slot, None)
            if claim is None or claim.node.fence.is_down:
                return
            row = {"process": NOBODY, "nonce": self._randbytes(NONCE_BYTES).hex()}
            change = Change(SLOTS, (slot,), {"nonce": claim.nonce}, row)
            await self._decisions.decide(change, lambda _: True)

    def held(self) -> list[int]:
        return sorted(self._claims)
