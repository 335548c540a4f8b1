"""A keyspace as a copy uses it: the store's parts, without being one of its servers; and its rows,
read at QUORUM.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import trio

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.cassandra import rows as columns
from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.buckets import Buckets
from pushlane_storage.cassandra.connection import Connection, outcome_of
from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.driver_ring import DriverRing
from pushlane_storage.cassandra.home import Home, find_home
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.node import is_alive
from pushlane_storage.cassandra.places import Places
from pushlane_storage.cassandra.queues import Queues
from pushlane_storage.cassandra.ring import Bound, Range, Ring, Row, Table, read_all, read_row
from pushlane_storage.cassandra.schedule import SLICE_MS
from pushlane_storage.cassandra.schema import Migration
from pushlane_storage.cassandra.slots import Claim
from pushlane_storage.cassandra.tables import (
    HEARTBEATS,
    NODES,
    NOTES,
    QUEUES,
    SCHEDULED,
    SCHEMA,
    SEALS,
    SEGMENTS,
    SETTLEMENTS,
    USAGE,
)
from pushlane_storage.cassandra.usage_rows import UsageRows
from pushlane_storage.copy.rows import MINUTES, PAGE_BYTES, PAGE_ROWS, Day, LogRow, Page
from pushlane_storage.interface import Due
from pushlane_storage.queue import QueueRow
from pushlane_storage.segment import StoredSegment
from pushlane_storage.slot import slot_of
from pushlane_storage.usage import Usage
from pushlane_storage.work import gather

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
        if row is None or row["body"] is None:
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


class _Unowned:
    """Claims of a process that has none: what is read is not remembered."""

    def find(self, shard: ShardKey) -> Claim | None:
        return None


class Keyspace:
    def __init__(self, connection: Connection, limits: Limits) -> None:
        self.connection = connection
        self.limits = limits
        self.name = connection.address.keyspace
        self.dc = connection.address.dc or ""
        self.ring = DriverRing(connection, limits)
        self.decisions = Decisions(self.ring, limits.decisions)
        self.scan = Scan(connection)
        self.places = Places(self.ring, limits)
        self.migration = Migration(connection, self.ring, self.decisions, secrets.token_bytes)

    def rows(self) -> CassandraRows:
        queues = Queues(self.ring, self.decisions, secrets.token_bytes)
        buckets = Buckets(self.ring, self.places, _Unowned(), self.limits)
        return CassandraRows(self.ring, self.scan, queues, self.places, buckets)

    async def home(self) -> Home:
        return await trio.to_thread.run_sync(find_home, self.connection)

    async def tables(self) -> set[str]:
        """The names of its tables; none when it is not there."""

        def read() -> list[Row]:
            return self.connection.execute(
                f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{self.name}'"
            )

        return {row["table_name"] for row in await trio.to_thread.run_sync(read)}

    async def salt(self) -> str:
        """Drawn when its tables were made: no two keyspaces share one."""
        [row] = await self.scan.read(SCHEMA, "nonce")
        salt: str = row["nonce"]
        return salt

    async def has_rows(self, table: Table) -> bool:
        return bool(await self.scan.read(table, "*", limit=1))

    async def beating(self, but: str = "") -> Row | None:
        """A process that shows a sign of life, if there is one. Looks for a heartbeat and a half.

        Those that don't may be alive nevertheless: claiming their slots finds out.
        """
        found = await self.scan.read(NODES, "process, address, fenced")
        known = {row["process"]: row for row in found if is_alive(row) and row["process"] != but}
        before = await gather(self._beat, known, self.limits.reads)
        if all(beat is None for beat in before.values()):
            return None
        with trio.move_on_after(1.5 * self.limits.beat_ms / 1000):
            while True:
                await trio.sleep(self.limits.poll_ms / 1000)
                now = await gather(self._beat, known, self.limits.reads)
                for process, beat in now.items():
                    if beat != before[process]:
                        return known[process]
        return None

    async def _beat(self, process: str) -> int | None:
        found = await read_row(self.ring, HEARTBEATS, (process,))
        return None if found is None else found["beat"]


@asynccontextmanager
async def connected(address: Address, limits: Limits) -> AsyncIterator[Keyspace]:
    """`OpenError` when no node lets us in."""
    connection = await trio.to_thread.run_sync(Connection.connect, address, limits)
    keyspace = Keyspace(connection, limits)
    try:
        yield keyspace
    finally:
        with trio.CancelScope(shield=True):
            await keyspace.ring.close()
