"""A store as plain dicts: what `test_machine.py` compares back ends with."""

from collections.abc import Iterator

import msgspec

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.interface import Due
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueRow
from pushlane_storage.seal import Seal
from pushlane_storage.segment import Segment
from pushlane_storage.settlement import Settlement
from pushlane_storage.usage import Usage, UsageKey


class ShardModel:
    def __init__(self) -> None:
        self.rows: dict[BucketKey, Bucket] = {}
        self.segments: dict[tuple[BucketKey, int], Segment] = {}
        self.settlements: dict[tuple[BucketKey, int, int], Settlement] = {}
        self.seals: dict[int, Seal] = {}
        self.counters: dict[tuple[int, int], int] = {}
        self.flushes: dict[int, int] = {}

    def take(self, lane: int, epoch: int, count: int) -> int:
        """The first of the next `count` counters of a lane."""
        counter = self.counters.get((lane, epoch), 0)
        self.counters[lane, epoch] = counter + count
        return counter

    def next_flush(self, epoch: int) -> int:
        self.flushes[epoch] = self.flushes.get(epoch, -1) + 1
        return self.flushes[epoch]

    def open_bucket(self, lane: int, epoch: int) -> Bucket | None:
        """The newest bucket of a lane, if it may still be written to."""
        rows = [row for key, row in self.rows.items() if (key.lane, key.epoch) == (lane, epoch)]
        newest = max(rows, key=lambda row: row.key.start, default=None)
        return None if newest is None or newest.closed else newest

    def close(self, key: BucketKey) -> Bucket:
        held = [segment for place, segment in self.segments.items() if place[0] == key]
        return msgspec.structs.replace(
            self.rows[key],
            closed=True,
            count=sum(len(segment.messages) for segment in held),
            size=len(held),
            last_at=max(segment.messages[-1].published_at for segment in held),
        )

    def drop(self, key: BucketKey) -> None:
        self.rows.pop(key, None)
        self.segments = {k: v for k, v in self.segments.items() if k[0] != key}
        self.settlements = {k: v for k, v in self.settlements.items() if k[0] != key}

    def messages(self) -> Iterator[tuple[BucketKey, int, Message]]:
        for (key, first), segment in self.segments.items():
            for seq, message in enumerate(segment.messages, first):
                yield key, seq, message

    def buckets_read(self) -> list[Bucket]:
        return [self.rows[key] for key in sorted(self.rows)]

    def segments_read(self, bucket: BucketKey, start: int, limit: int) -> list[Segment]:
        read: list[Segment] = []
        for (key, _), segment in sorted(self.segments.items(), key=lambda item: item[0]):
            full = sum(len(one.messages) for one in read) >= limit
            if key == bucket and segment.last >= start and not (read and full):
                read.append(segment)
        return read

    def messages_read(self, bucket: BucketKey, seqs: list[int]) -> dict[int, Message]:
        return {seq: one for key, seq, one in self.messages() if key == bucket and seq in seqs}

    def settlements_read(self, bucket: BucketKey) -> list[Settlement]:
        return [self.settlements[place] for place in sorted(self.settlements) if place[0] == bucket]

    def due_read(self, start: int, end: int, limit: int) -> list[Due]:
        every = [
            Due(message.not_before, key.lane, key, seq)
            for key, seq, message in self.messages()
            if message.not_before
        ]
        return sorted(entry for entry in every if start <= entry.due < end)[:limit]


class Model:
    def __init__(self) -> None:
        self.queues: dict[str, QueueRow] = {}
        self.shards: dict[ShardKey, ShardModel] = {}
        self.usage: dict[UsageKey, Usage] = {}

    def remove(self, row: QueueRow) -> None:
        if row.name in self.queues and self.queues[row.name].id == row.id:
            del self.queues[row.name]
        self.shards = {key: shard for key, shard in self.shards.items() if key.queue_id != row.id}

    def list(self, after: str, limit: int) -> list[QueueRow]:
        names = [name for name in sorted(self.queues) if name > after]
        return [self.queues[name] for name in names[:limit]]

    def put_usage(self, row: Usage) -> None:
        known = self.usage.get(row.key)
        if known is None or known.version < row.version:
            self.usage[row.key] = row
