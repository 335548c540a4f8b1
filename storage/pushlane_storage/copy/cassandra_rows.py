"""The rows of a replicated store, read at QUORUM."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import trio

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.cassandra import rows as columns
from pushlane_storage.cassandra.buckets import Buckets
from pushlane_storage.cassandra.connection import Connection
from pushlane_storage.cassandra.faults import outcome_of
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.places import Places
from pushlane_storage.cassandra.queues import Queues
from pushlane_storage.cassandra.ring import Bound, Range, Ring, Row, Table, read_all, read_row
from pushlane_storage.cassandra.schedule import SLICE_MS
from pushlane_storage.cassandra.tables import (
    NOTES,
    QUEUES,
    SCHEDULED,
    SEALS,
    SEGMENTS,
    SETTLEMENTS,
    USAGE,
)
from pushlane_storage.cassandra.usage_rows import UsageRows
from pushlane_storage.copy.rows import MINUTES, PAGE_BYTES, PAGE_ROWS, Day, LogRow, Page
from pushlane_storage.interface import Due
from pushlane_storage.queue import QueueRow
from pushlane_storage.slot import slot_of
from pushlane_storage.stored_segment import StoredSegment
from pushlane_storage.usage import Usage

SCAN_SECONDS = 60
FIRST_ROWS = 8
"""Segments of the first page, when nothing is known of their sizes yet."""
_EVER = 1 << 62


class Scan:
    """Reads of whole tables, which the store itself never does: all tenants, all processes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._keyspace = connection.address.keyspace

    async def read(self, table: Table, what: str, limit: int | None = None) -> list[Row]:
        """`what` is a column list, or `DISTINCT` with the partition key."""
        text = f"SELECT {what} FROM {self._keyspace}.{table.name}"
        if limit is not None:
            text += f" LIMIT {limit}"

        def run() -> list[Row]:
            return self._run(text)

        return await trio.to_thread.run_sync(run)

    def _run(self, text: str) -> list[Row]:
        from cassandra import ConsistencyLevel, DriverException
        from cassandra.query import SimpleStatement

        level = (
            ConsistencyLevel.LOCAL_QUORUM
            if self._connection.address.is_local
            else ConsistencyLevel.QUORUM
        )
        statement = SimpleStatement(text, consistency_level=level, fetch_size=PAGE_ROWS)
        try:
            return list(self._connection.session.execute(statement, timeout=SCAN_SECONDS))
        except DriverException as error:
            raise outcome_of(error, 1) from error


class CassandraRows:
    def __init__(
        self, ring: Ring, scan: Scan, queues: Queues, places: Places, buckets: Buckets
    ) -> None:
        self._ring = ring
        self._scan = scan
        self._queues = queues
        self._places = places
        self._buckets = buckets
        self._usage = UsageRows(ring, Limits())

    async def tenants(self) -> list[str]:
        return sorted(row["tenant"] for row in await self._scan.read(QUEUES, "DISTINCT tenant"))

    async def queues(self, tenant: str, after: str, limit: int) -> list[QueueRow]:
        return await self._queues.list_after(tenant, after, limit)

    async def shards(self, queue_id: str) -> list[int]:
        return sorted(await self._places.all(queue_id))

    async def buckets(self, shard: ShardKey) -> list[Bucket]:
        return await self._buckets.read(shard)

    async def count(self, shard: ShardKey, key: BucketKey) -> int:
        range = Range(SEGMENTS, (*shard, *key), PAGE_ROWS, ("first", "count"))
        return sum(row["count"] or 0 for row in await read_all(self._ring, range))

    async def seals(self, shard: ShardKey) -> list[LogRow]:
        found = await read_all(self._ring, Range(SEALS, shard, PAGE_ROWS))
        return [LogRow(row["owner"], 0, row["checksum"], row["body"]) for row in found]

    async def note(self, shard: ShardKey) -> LogRow | None:
        row = await read_row(self._ring, NOTES, (slot_of(shard), *shard))
        if row is None:
            return None
        return LogRow(row["owner"], row["n"], row["checksum"], row["body"])

    async def log(self, shard: ShardKey, key: BucketKey, after: Any) -> Page[LogRow]:
        low = None if after is None else Bound(after, included=False)
        range = Range(SETTLEMENTS, (*shard, *key), PAGE_ROWS, low=low)
        found = [
            LogRow(row["owner"], row["n"], row["checksum"], row["body"])
            for row in await self._ring.read(range)
        ]
        return Page(found, (found[-1].owner, found[-1].n) if len(found) == PAGE_ROWS else None)

    async def segments(self, shard: ShardKey, key: BucketKey, after: Any) -> Page[StoredSegment]:
        """`after` is the last seq, and how many rows fit a page by what was seen of them."""
        first, size = after or (None, FIRST_ROWS)
        low = None if first is None else Bound((first,), included=False)
        # All columns are named: Cassandra repairs what a read names, and this read decides what
        # of a bucket that was cut off counts.
        found = await self._ring.read(Range(SEGMENTS, (*shard, *key), size, low=low))
        stored = [columns.stored_segment(row) for row in found]
        if len(found) < size:
            return Page(stored, None)
        held = sum(len(one.body or b"") + len(one.marks or b"") for one in stored)
        fitting = PAGE_BYTES * len(stored) // max(held, 1)
        return Page(stored, (stored[-1].first, max(1, min(fitting, 4 * size, 4 * PAGE_ROWS))))

    async def due(self, shard: ShardKey, live: Collection[BucketKey], after: Any) -> Page[Due]:
        low = -_EVER if after is None else after[0] // SLICE_MS
        for slice in await self._places.slices(shard, low, _EVER):
            begin = None
            if after is not None and slice == low:
                begin = Bound(after, included=False)
            range = Range(SCHEDULED, (*shard, slice), PAGE_ROWS, low=begin)
            found = await self._ring.read(range)
            if found:
                last = tuple(found[-1][name] for name in SCHEDULED.clustering)
                rows = [_due_of(row) for row in found]
                return Page([due for due in rows if due.bucket in live], last)
        return Page([], None)

    async def days(self) -> list[Day]:
        found = await self._scan.read(USAGE, "DISTINCT tenant, day")
        return sorted(Day(row["tenant"], row["day"]) for row in found)

    async def usage(self, day: Day) -> list[Usage]:
        first = day.day * MINUTES
        return await self._usage.read(day.tenant, first, first + MINUTES - 1)


def _due_of(row: Row) -> Due:
    bucket = BucketKey(row["lane"], row["epoch"], row["start"])
    return Due(row["due"], row["lane"], bucket, row["seq"])
