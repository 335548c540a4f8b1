"""The witness of one process: it writes the history of what that process knows to be durable.

All processes share what the history has already. A predecessor's rows that a new owner finds are
written then, unless their writer has told of them before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pushlane_dispatcher.core.recovery import recover
from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.history import event as history
from pushlane_storage.interface import Outcome
from pushlane_storage.message import Message
from pushlane_storage.seal import Seal
from pushlane_storage.segment import Segment
from pushlane_storage.seq import epoch_of, make_seq
from pushlane_storage.settlement import Settlement
from tests.powerloss.witness import Witness

if TYPE_CHECKING:
    from tests.simulation.replicated.process import Process

Bodies = dict[tuple[ShardKey, int, int], Message]
"""By shard, lane and seq: every message that anybody tried to store."""


class ProcessWitness(Witness):
    store: CassandraStore

    def __init__(
        self, process: Process, store: CassandraStore, known: set[object], bodies: Bodies
    ) -> None:
        super().__init__(store, process.name, process.world.record, lambda: process.world.now)
        self.names = process.cluster.names
        self._known = known
        self._bodies = bodies
        self._next: dict[tuple[ShardKey, int, int], int] = {}
        """By shard, lane and epoch: the first seq that is not stored."""
        self._early: dict[tuple[ShardKey, int, int], Segment] = {}
        """By shard, lane and first seq: stored behind a gap, so they don't count yet."""

    async def claim(self, slot: int, owner: str) -> int:
        epoch = await self.store.claim(slot, owner)
        self._record(history.Open(self._wall(), self.node, epoch))
        return epoch

    async def confirm(self, shard: ShardKey) -> None:
        await self.store.confirm(shard)

    async def lost_slots(self) -> list[tuple[int, int]]:
        return await self.store.lost_slots()

    async def write_seal(self, shard: ShardKey, seal: Seal) -> None:
        await self.store.write_seal(shard, seal)
        rows = self._rows[shard]
        _, recovered = recover(rows, seal.owner)
        await self._found(shard, rows, dict(seal.flushes), recovered)

    async def _read_bodies(
        self, shard: ShardKey, key: BucketKey, seqs: Sequence[int]
    ) -> dict[int, Message]:
        return {seq: self._bodies[shard, key.lane, seq] for seq in seqs}

    # Writing

    def _note(self, shard: ShardKey, segment: Segment) -> None:
        for seq, message in enumerate(segment.messages, segment.first):
            self._bodies[shard, segment.bucket.lane, seq] = message

    async def append(self, shard: ShardKey, segment: Segment, opens: Bucket | None) -> None:
        self._note(shard, segment)
        await super().append(shard, segment, opens)

    def _appended(self, shard: ShardKey, segment: Segment) -> None:
        """What overlaps is durable in any order, and counts in order of seq."""
        lane, epoch = segment.bucket.lane, epoch_of(segment.first)
        self._early[shard, lane, segment.first] = segment
        seq = self._next.get((shard, lane, epoch), make_seq(epoch, 0))
        while (found := self._early.pop((shard, lane, seq), None)) is not None:
            super()._appended(shard, found)
            seq = found.last + 1
        self._next[shard, lane, epoch] = seq

    def append_soon(
        self, shard: ShardKey, segment: Segment, opens: Bucket | None, outcome: Outcome
    ) -> None:
        self._note(shard, segment)

        def told(error: Exception | None) -> None:
            if error is None:
                self._appended(shard, segment)
            outcome(error)

        self.store.append_soon(shard, segment, opens, told)

    def settle_soon(self, shard: ShardKey, rows: Sequence[Settlement], outcome: Outcome) -> None:
        def told(error: Exception | None) -> None:
            if error is None:
                self._settled(shard, rows)
            outcome(error)

        self.store.settle_soon(shard, rows, told)
