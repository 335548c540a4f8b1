"""The witness: a store that passes everything on and writes the history of what became durable.

It stands between the dispatcher and the real store, so it sees a write return before the
dispatcher does: nothing that relies on the write can be in the history before it. It also sees
what a new owner reads. Whatever that is and the history does not have yet, the predecessor did
not live to tell: it is written when the owner's seal is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from pushlane_dispatcher.core.ident import make_id, parse_id
from pushlane_dispatcher.core.recovered import existing_marks, recover
from pushlane_history import event as history
from pushlane_storage.bucket import CONTROL, Bucket, BucketKey, ShardKey
from pushlane_storage.interface import Backend, Due, Outcome
from pushlane_storage.message import TRANSFER, Message
from pushlane_storage.note import Note
from pushlane_storage.queue import QueueRow
from pushlane_storage.seal import Outline, Seal, ShardRows
from pushlane_storage.segment import Segment, SegmentHead
from pushlane_storage.settlement import Settlement
from tests.powerloss.seams import WitnessedCatalog, WitnessedOwnership

Record = Callable[[history.Event], None]


def identity(event: history.Event) -> object:
    """What makes an event of the store the same when it is seen again; None for all others."""
    match event:
        case history.Void():
            return "void", event.queue, event.id, event.fence
        case history.Leaving():
            return "leaving", event.queue, event.id, event.to
        case history.Moved():
            return "moved", event.queue, event.id, event.new_id
        case history.Ended():
            return "ended", event.queue, event.id
        case _:
            return None


class Witness:
    def __init__(
        self,
        store: Backend,
        node: str,
        record: Record,
        wall: Callable[[], int],
        known: Iterable[object] = (),
    ) -> None:
        """`known`: the identities of what the history has before this process."""
        self.store = store
        self.ownership = WitnessedOwnership(store.ownership, self)
        self.catalog = WitnessedCatalog(store.catalog, self)
        self.usage = store.usage
        self.node = node
        self.epoch = 0
        self.names: dict[str, str] = {}
        """Queue id to name."""
        self._record = record
        self._wall = wall
        self._known = set(known)
        self._rows: dict[ShardKey, ShardRows] = {}
        """What was read of a shard that is opening."""
        self._live: dict[ShardKey, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        """Stored and not ended: shard, lane, seqs."""

    def _tell(self, events: Iterable[history.Event]) -> None:
        for event in events:
            key = identity(event)
            if key not in self._known:
                if key is not None:
                    self._known.add(key)
                self._record(event)

    def queue_of(self, shard: ShardKey) -> str:
        return self.names[shard.queue_id]

    # Owners

    def claimed(self, slot: int, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self._record(history.Open(self._wall(), self.node, epoch))

    def reopened(self, shard: ShardKey, epoch: int) -> None:
        self._record(history.Open(self._wall(), self.node, epoch))

    def released(self, slot: int) -> None:
        """It is anybody's."""

    # Queues

    def met(self, row: QueueRow) -> QueueRow:
        """A row was made or read."""
        self.names[row.id] = row.name
        return row

    def asked(self, name: str) -> Callable[[], None]:
        """What to do when there is no such queue."""
        return lambda: None

    def removed(self, row: QueueRow) -> None:
        """Nobody will meet it again."""

    # Shards

    async def write_seal(self, shard: ShardKey, seal: Seal) -> None:
        await self.store.write_seal(shard, seal)
        await self._found(shard, self._rows.pop(shard), seal)

    async def _found(self, shard: ShardKey, rows: ShardRows, seal: Seal) -> None:
        _, recovered = recover(rows, seal.owner)
        flushes = dict(seal.flushes)
        for found in recovered.buckets:
            arrived = [
                seq
                for mark in existing_marks(found.row, rows.heads.get(found.row.key, ()))
                if mark.producer is not None and mark.producer.startswith(TRANSFER)
                for seq in range(mark.seq, mark.seq + mark.count)
            ]
            bodies = await self._read_bodies(shard, found.row.key, arrived)
            assert list(bodies) == arrived, f"the store lost some of {arrived}"
            for seq in arrived:
                self._tell(self._moved(shard, found.row.key.lane, seq, bodies[seq]))
        valid = [
            row
            for partition in rows.settlements.values()
            for row in partition
            if row.n < flushes.get(row.owner, 0)
        ]
        for row in sorted(valid, key=lambda row: (row.owner, row.n)):
            self._tell(self._events(shard, row))
        for found in recovered.buckets:
            lane, first, state = found.row.key.lane, found.row.first, found.state
            purged = [s for low, high in state.gone.get("purged", ()) for s in span(low, high)]
            self._tell(self._ended(shard, lane, purged, "purged"))
            for low, high in state.settled.gaps(first, first + found.row.count - 1):
                self._live[shard][lane].update(span(low, high))

    async def _read_bodies(
        self, shard: ShardKey, key: BucketKey, seqs: Sequence[int]
    ) -> dict[int, Message]:
        return await self.store.messages(shard, key, seqs)

    # Writing

    def append_soon(
        self, shard: ShardKey, segment: Segment, opens: Bucket | None, outcome: Outcome
    ) -> None:
        def told(error: Exception | None) -> None:
            if error is None:
                self._appended(shard, segment)
            outcome(error)

        self.store.append_soon(shard, segment, opens, told)

    def _appended(self, shard: ShardKey, segment: Segment) -> None:
        lane = segment.bucket.lane
        self._live[shard][lane].update(span(segment.first, segment.last))
        for seq, message in enumerate(segment.messages, segment.first):
            self._tell(self._moved(shard, lane, seq, message))

    def settle_soon(self, shard: ShardKey, rows: Sequence[Settlement], outcome: Outcome) -> None:
        def told(error: Exception | None) -> None:
            if error is None:
                self._settled(shard, rows)
            outcome(error)

        self.store.settle_soon(shard, rows, told)

    def _settled(self, shard: ShardKey, rows: Sequence[Settlement]) -> None:
        # A purge ends what the rest of its flush did not: it comes last.
        for row in sorted(rows, key=lambda row: row.bucket == CONTROL):
            self._tell(self._events(shard, row))
            self._forget(shard, row)
            for purge in row.purges:
                live = self._live[shard][purge.lane]
                seqs = sorted(s for s in live if s <= purge.upto and s not in purge.spared)
                live.difference_update(seqs)
                self._tell(self._ended(shard, purge.lane, seqs, "purged"))

    def _forget(self, shard: ShardKey, row: Settlement) -> None:
        live = self._live[shard][row.bucket.lane]
        for low, high in [*row.acked, *((gone.low, gone.high) for gone in row.gone)]:
            live.difference_update(span(low, high))

    # Events

    def _events(self, shard: ShardKey, row: Settlement) -> Iterator[history.Event]:
        now, queue, lane = self._wall(), self.queue_of(shard), row.bucket.lane
        for void in row.voids:
            id = make_id(*shard, lane, void.seq)
            yield history.Void(now, queue, id, void.fence, void.attempts, void.deliveries)
        for leaving in row.leaving:
            id = make_id(*shard, lane, leaving.seq)
            yield history.Leaving(now, queue, id, leaving.cause, leaving.to, leaving.number)
        for low, high in row.acked:
            yield from self._ended(shard, lane, span(low, high), "acked")
        for gone in row.gone:
            how, _, cause = gone.cause.partition(":")
            yield from self._ended(shard, lane, span(gone.low, gone.high), how, cause)

    def _ended(
        self, shard: ShardKey, lane: int, seqs: Iterable[int], how: Any, cause: str = ""
    ) -> Iterator[history.Event]:
        now, queue = self._wall(), self.queue_of(shard)
        for seq in seqs:
            yield history.Ended(now, queue, make_id(*shard, lane, seq), how, cause)

    def _moved(
        self, shard: ShardKey, lane: int, seq: int, message: Message
    ) -> Iterator[history.Event]:
        if message.dedup is not None and message.dedup.startswith(TRANSFER):
            old = message.dedup.removeprefix(TRANSFER)
            source = self.names[parse_id(old).queue_id]
            new = make_id(*shard, lane, seq)
            to, uid = self.queue_of(shard), message.body.decode()
            yield history.Moved(self._wall(), source, old, to, new_id=new, uid=uid, seq=seq)

    # What a new owner reads

    def _reading(self, shard: ShardKey) -> ShardRows:
        return self._rows.setdefault(shard, ShardRows([], [], {}, {}))

    async def outline(self, shard: ShardKey) -> Outline:
        outline = await self.store.outline(shard)
        # What comes now is a new opening.
        self._rows[shard] = ShardRows(outline.seals, outline.buckets, {}, {})
        return outline

    async def heads(self, shard: ShardKey, key: BucketKey) -> list[SegmentHead]:
        heads = self._reading(shard).heads[key] = await self.store.heads(shard, key)
        return heads

    async def settlements(self, shard: ShardKey, key: BucketKey) -> list[Settlement]:
        rows = self._reading(shard).settlements[key] = await self.store.settlements(shard, key)
        return rows

    # The rest

    async def mark_bucket(self, shard: ShardKey, bucket: Bucket) -> None:
        await self.store.mark_bucket(shard, bucket)

    async def write_note(self, shard: ShardKey, note: Note) -> None:
        await self.store.write_note(shard, note)

    async def drop(
        self, shard: ShardKey, key: BucketKey, flushes: Sequence[tuple[int, int]] | None = None
    ) -> None:
        await self.store.drop(shard, key, flushes)

    async def segments(
        self, shard: ShardKey, key: BucketKey, start: int, limit: int, last: int | None = None
    ) -> list[Segment]:
        return await self.store.segments(shard, key, start, limit, last)

    async def messages(
        self, shard: ShardKey, key: BucketKey, seqs: Sequence[int]
    ) -> dict[int, Message]:
        return await self.store.messages(shard, key, seqs)

    async def due(self, shard: ShardKey, start: int, end: int, limit: int) -> list[Due]:
        return await self.store.due(shard, start, end, limit)

    async def time(self) -> int | None:
        return await self.store.time()

    def stats(self) -> msgspec.Struct:
        return self.store.stats()


def span(low: int, high: int) -> range:
    return range(low, high + 1)
