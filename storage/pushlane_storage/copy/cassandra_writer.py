"""Rows of a copy into the tables of a replicated store.

They are written with the stamps and the time to live that a server would give them; small ones of
one partition go together.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

from pushlane_storage.bucket import CONTROL, Bucket, BucketKey, ShardKey
from pushlane_storage.cassandra import rows as columns
from pushlane_storage.cassandra import stamps
from pushlane_storage.cassandra.queues import Queues
from pushlane_storage.cassandra.ring import Level, Ring, Row, Write
from pushlane_storage.cassandra.schedule import Schedule
from pushlane_storage.cassandra.stages import outcome_of, write_stages
from pushlane_storage.cassandra.tables import BUCKETS, NOTES, SEALS, SEGMENTS, SETTLEMENTS, keyed
from pushlane_storage.cassandra.traits import Known, Traits
from pushlane_storage.cassandra.usage_rows import UsageRows
from pushlane_storage.copy.errors import CopyFailed, bucket_name
from pushlane_storage.copy.keyspace import Keyspace
from pushlane_storage.copy.rows import Day, LogRow, due_of
from pushlane_storage.interface import Due
from pushlane_storage.queue import QueueRow
from pushlane_storage.slot import slot_of
from pushlane_storage.stored_segment import StoredSegment
from pushlane_storage.usage import Usage
from pushlane_storage.wall import wall_clock

BATCH_BYTES = 4_000
"""Rows of one partition that are written together, about: Cassandra warns from 5 KiB on."""
ROW_BYTES = 120
"""What a row without its blobs takes of that."""


class CassandraWriter:
    def __init__(self, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self._ring: Ring = keyspace.ring
        self._limits = keyspace.limits
        self._known = Known(self._limits)
        self._queues = Queues(self._ring, keyspace.decisions, secrets.token_bytes)
        self._schedule = Schedule(self._ring, keyspace.places, self._limits, wall_clock)
        self._usage = UsageRows(self._ring, self._limits)

    async def put_queue(self, row: QueueRow) -> None:
        await self._queues.put(row)

    async def put_shard(
        self, queue: QueueRow, shard: ShardKey, seals: Sequence[LogRow], note: LogRow | None
    ) -> None:
        rows = [
            keyed(SEALS, (*shard, seal.owner), checksum=seal.checksum, body=seal.body)
            for seal in seals
        ]
        writes = [Write(SEALS, chunk, stamps.ONCE) for chunk in _chunks(rows)]
        if note is not None:
            row = keyed(
                NOTES, (slot_of(shard), *shard), due=due_of(note), tenant=queue.tenant,
                queue=queue.name, **note._asdict(),
            )  # fmt: skip
            writes.append(Write(NOTES, [row], stamps.noted(note.owner, note.n)))
        await self._write(self._keyspace.places.lane(shard, CONTROL.lane) + writes)

    async def put_bucket(self, shard: ShardKey, bucket: Bucket) -> None:
        row = columns.opened_row(shard, bucket)
        marked = columns.marked_row(shard, bucket, bucket.key.epoch)
        whole = row if marked is None else {**row, **marked}
        write = Write(BUCKETS, [whole], stamps.written(bucket.key))
        await self._write([*self._keyspace.places.lane(shard, bucket.key.lane), write])

    async def put_log(
        self, queue: QueueRow, shard: ShardKey, key: BucketKey, rows: Sequence[LogRow]
    ) -> None:
        found = [
            keyed(
                SETTLEMENTS, (*shard, *key, row.owner, row.n), checksum=row.checksum, body=row.body
            )
            for row in rows
        ]
        stamp = None if key == CONTROL else stamps.written(key)
        ttl, level = self._limits.most_ttl, self._traits(queue).level
        await self._write(
            [Write(SETTLEMENTS, chunk, stamp, ttl, level) for chunk in _chunks(found)]
        )

    async def put_segments(
        self, queue: QueueRow, shard: ShardKey, key: BucketKey, rows: Sequence[StoredSegment]
    ) -> None:
        for row in rows:
            size = len(row.body or b"") + len(row.marks)
            if size > self._limits.row_bytes:
                raise CopyFailed(
                    f"a segment of {bucket_name(shard, key)} has {size} bytes, and Cassandra takes"
                    f" {self._limits.row_bytes}: have its messages consumed first"
                )
        traits, stamp = self._traits(queue), stamps.written(key)
        found = [columns.stored_row(shard, key, row) for row in rows]
        await self._write(
            [
                Write(SEGMENTS, chunk, stamp, traits.ttl, traits.level)
                for chunk in _chunks(found, "payload", "marks")
            ]
        )

    async def put_due(self, queue: QueueRow, shard: ShardKey, rows: Sequence[Due]) -> None:
        waiting: dict[BucketKey, list[tuple[int, int]]] = {}
        for row in rows:
            waiting.setdefault(row.bucket, []).append((row.due, row.seq))
        for key, entries in waiting.items():
            names, writes = self._schedule.entries(shard, key, entries, self._traits(queue).ttl)
            await self._write(names)
            self._keyspace.places.note(names)
            await self._write(writes)

    async def put_usage(self, day: Day, usage: Sequence[Usage]) -> None:
        await self._usage.put(usage)

    def _traits(self, queue: QueueRow) -> Traits:
        """Of the queue; but a copy that is said to be verified stands on a quorum at least."""
        self._known.learn(queue)
        traits = self._known.of(ShardKey(queue.id, 0))
        return traits._replace(level=Level.QUORUM) if traits.level is Level.ONE else traits

    async def _write(self, writes: Sequence[Write]) -> None:
        if writes:
            await outcome_of(lambda done: write_stages(self._ring, [writes], done))


def _chunks(rows: Sequence[Row], *blobs: str) -> Iterator[list[Row]]:
    """Rows that go together, by their size."""
    chunk: list[Row] = []
    size = 0
    for row in rows:
        more = ROW_BYTES + sum(len(row[name] or b"") for name in blobs or ("body",))
        if chunk and size + more > BATCH_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += more
    if chunk:
        yield chunk
