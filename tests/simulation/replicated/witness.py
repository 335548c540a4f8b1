"""The witness of one process: it writes the history of what that process knows to be durable.

All processes share what the history has already. A predecessor's rows that a new owner finds are
written then, unless their writer has told of them before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from pushlane_history import event as history
from pushlane_history.event import shard_of_id
from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.interface import Outcome
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueRow
from pushlane_storage.seal import Seal
from pushlane_storage.segment import Segment
from pushlane_storage.seq import epoch_of, make_id, make_seq
from pushlane_storage.settlement import Settlement
from pushlane_storage.slot import slot_of
from tests.powerloss.witness import Witness, identity
from tests.simulation.world import EPOCH_MS

if TYPE_CHECKING:
    from tests.simulation.replicated.process import Process

Bodies = dict[tuple[ShardKey, int, int], Message]
"""By shard, lane and seq: every message that anybody tried to store."""


class Epochs:
    """From which epoch on an owner of a shard is the newest."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._shards: dict[ShardKey, int] = {}

    def claimed(self, slot: int, epoch: int) -> None:
        self._slots[slot] = max(epoch, self._slots.get(slot, 0))

    def opened(self, shard: ShardKey, epoch: int) -> None:
        self._shards[shard] = max(epoch, self._shards.get(shard, 0))

    def is_newest(self, shard: ShardKey, epoch: int) -> bool:
        return epoch >= max(self._slots.get(slot_of(shard), 0), self._shards.get(shard, 0))


class ProcessWitness(Witness):
    store: CassandraStore

    def __init__(
        self, process: Process, store: CassandraStore, known: set[object], bodies: Bodies
    ) -> None:
        super().__init__(store, process.name, process.world.record, lambda: process.world.now)
        self._cluster = process.cluster
        self.names = process.cluster.names
        self._epochs = process.cluster.epochs
        self._known = known
        self._bodies = bodies
        self._next: dict[tuple[ShardKey, int, int], int] = {}
        """By shard, lane and epoch: the first seq that is not stored."""
        self._early: dict[tuple[ShardKey, int, int], Segment] = {}
        """By shard, lane and first seq: stored behind a gap, so they don't count yet."""

    def claimed(self, slot: int, epoch: int) -> None:
        self._epochs.claimed(slot, epoch)
        for shard in self._cluster.shards:
            if slot_of(shard) == slot:
                self._opened(shard, epoch)

    def reopened(self, shard: ShardKey, epoch: int) -> None:
        self._epochs.opened(shard, epoch)
        self._opened(shard, epoch)

    def _opened(self, shard: ShardKey, epoch: int) -> None:
        key = "opened", shard, epoch
        if key not in self._known:
            self._known.add(key)
            start = shard_of_id(make_id(*shard, 0, 0))
            self._record(history.Open(self._wall(), self.node, epoch, start))

    def released(self, slot: int) -> None:
        self._record(history.Fault(self._wall(), "slot.released"))

    async def write_seal(self, shard: ShardKey, seal: Seal) -> None:
        await self.store.write_seal(shard, seal)
        self._opened(shard, seal.owner)
        await self._found(shard, self._rows[shard], seal)

    async def _read_bodies(
        self, shard: ShardKey, key: BucketKey, seqs: Sequence[int]
    ) -> dict[int, Message]:
        return {seq: self._bodies[shard, key.lane, seq] for seq in seqs}

    # Queues

    def met(self, row: QueueRow) -> QueueRow:
        self._cluster.met(row)
        return row

    def asked(self, name: str) -> Callable[[], None]:
        label = self._cluster.labels.get(name)

        def missing() -> None:
            if label is not None:  # who removed it did not live to hear of it
                self._cluster.lost(label)

        return missing

    def removed(self, row: QueueRow) -> None:
        self._cluster.removed(row.id)

    # What the history has

    def _tell(self, events: Iterable[history.Event]) -> None:
        """Voids and departures of one message can look the same: their rows are told once."""
        for event in events:
            key = identity(event)
            if isinstance(event, history.Void | history.Leaving):
                self._record(event)
            elif key not in self._known:
                self._known.add(key)
                self._record(event)

    def _events(self, shard: ShardKey, row: Settlement) -> Iterator[history.Event]:
        place = "row", shard, row.bucket, row.owner, row.n
        if place in self._known:
            return
        self._known.add(place)
        wall = EPOCH_MS + self._wall()
        delays = {void.fence: void.not_before - wall for void in row.voids if void.not_before}
        for event in super()._events(shard, row):
            if isinstance(event, history.Void) and event.fence in delays:
                yield msgspec.structs.replace(event, delay_ms=max(1, delays[event.fence]))
            elif isinstance(event, history.Leaving) and event.to:
                to = self._cluster.labels.get(event.to, event.to)
                self._cluster.leaving[event.id] = event.cause, to
                yield msgspec.structs.replace(event, to=to)
            else:
                yield event

    def _moved(
        self, shard: ShardKey, lane: int, seq: int, message: Message
    ) -> Iterator[history.Event]:
        for event in super()._moved(shard, lane, seq, message):
            assert isinstance(event, history.Moved)
            cause, to = self._cluster.leaving[event.id]
            if to != event.to and identity(event) not in self._known:  # another has its name now
                yield history.Leaving(event.at, event.queue, event.id, cause, event.to)
            yield event

    # Writing

    def _note(self, shard: ShardKey, segment: Segment) -> None:
        for seq, message in enumerate(segment.messages, segment.first):
            self._bodies[shard, segment.bucket.lane, seq] = message

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
        super().append_soon(shard, segment, opens, outcome)
