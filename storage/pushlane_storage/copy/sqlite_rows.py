"""The rows of an embedded store, read from its file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from contextlib import closing
from typing import Any, TypeVar

import trio

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.copy.rows import MINUTES, PAGE_BYTES, PAGE_ROWS, Day, LogRow, Page
from pushlane_storage.interface import Due
from pushlane_storage.queue import QueueRow
from pushlane_storage.sqlite import queue_rows, reads, usage_rows
from pushlane_storage.sqlite.errors import read_error
from pushlane_storage.sqlite.segment_rows import SELECT_SEGMENTS
from pushlane_storage.stored_segment import StoredSegment
from pushlane_storage.usage import Usage

T = TypeVar("T")

_SHARD = "(SELECT id FROM shard WHERE queue_id = ? AND number = ?)"
_BUCKET = f"(SELECT id FROM bucket WHERE shard = {_SHARD} AND lane = ? AND epoch = ? AND start = ?)"


class SqliteRows:
    """One connection, used by one thread at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._turn = trio.CapacityLimiter(1)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something with the connection, in a thread."""
        return await trio.to_thread.run_sync(work, self._connection, limiter=self._turn)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self.run(work)
        except sqlite3.Error as error:
            raise read_error(error) from error

    async def tenants(self) -> list[str]:
        def read(connection: sqlite3.Connection) -> list[str]:
            found = connection.execute("SELECT DISTINCT tenant FROM queue ORDER BY tenant")
            return [tenant for (tenant,) in found.fetchall()]

        return await self._read(read)

    async def queues(self, tenant: str, after: str, limit: int) -> list[QueueRow]:
        return await self._read(
            lambda connection: queue_rows.list_after(connection, tenant, after, limit)
        )

    async def shards(self, queue_id: str) -> list[int]:
        def read(connection: sqlite3.Connection) -> list[int]:
            query = "SELECT number FROM shard WHERE queue_id = ? ORDER BY number"
            return [number for (number,) in connection.execute(query, (queue_id,)).fetchall()]

        return await self._read(read)

    async def buckets(self, shard: ShardKey) -> list[Bucket]:
        return await self._read(lambda connection: reads.buckets(connection, shard))

    async def count(self, shard: ShardKey, key: BucketKey) -> int:
        def read(connection: sqlite3.Connection) -> int:
            [found] = connection.execute(
                f"SELECT coalesce(sum(count), 0) FROM segment WHERE bucket = {_BUCKET}"
                " AND typeof(count) = 'integer'",
                (*shard, *key),
            ).fetchone()
            return int(found)

        return await self._read(read)

    async def seals(self, shard: ShardKey) -> list[LogRow]:
        found = await self._read(lambda connection: reads.seals(connection, shard))
        return [LogRow(owner, 0, checksum, body) for owner, checksum, body in found]

    async def note(self, shard: ShardKey) -> LogRow | None:
        found = await self._read(lambda connection: reads.note(connection, shard))
        return None if found is None else LogRow(*found)

    async def log(self, shard: ShardKey, key: BucketKey, after: Any) -> Page[LogRow]:
        def read(connection: sqlite3.Connection) -> list[LogRow]:
            found = connection.execute(
                "SELECT owner, n, checksum, CAST(body AS BLOB) FROM settlement"
                f" WHERE bucket = {_BUCKET} AND (owner, n) > (?, ?) ORDER BY owner, n LIMIT ?",
                (*shard, *key, *(after or (-1, -1)), PAGE_ROWS),
            )
            return [LogRow(*columns) for columns in found.fetchall()]

        rows = await self._read(read)
        return Page(rows, (rows[-1].owner, rows[-1].n) if len(rows) == PAGE_ROWS else None)

    async def segments(self, shard: ShardKey, key: BucketKey, after: Any) -> Page[StoredSegment]:
        def read(connection: sqlite3.Connection) -> Page[StoredSegment]:
            found: list[StoredSegment] = []
            size = 0
            with closing(
                connection.execute(
                    f"{SELECT_SEGMENTS} WHERE bucket = {_BUCKET} AND first > ? ORDER BY first",
                    (*shard, *key, -1 if after is None else after),
                )
            ) as cursor:
                for columns in cursor:
                    stored = StoredSegment(*columns)
                    found.append(stored)
                    size += len(stored.body or b"") + len(stored.marks)
                    if size >= PAGE_BYTES:
                        return Page(found, stored.first)
            return Page(found, None)

        return await self._read(read)

    async def due(self, shard: ShardKey, live: Collection[BucketKey], after: Any) -> Page[Due]:
        def read(connection: sqlite3.Connection) -> list[tuple[int, ...]]:
            return connection.execute(
                "SELECT DISTINCT due, lane, epoch, start, seq FROM schedule"
                f" WHERE shard = {_SHARD} AND (due, lane, epoch, start, seq) > (?, ?, ?, ?, ?)"
                " ORDER BY due, lane, epoch, start, seq LIMIT ?",
                (*shard, *(after or (-1, -1, -1, -1, -1)), PAGE_ROWS),
            ).fetchall()

        found = await self._read(read)
        rows = [
            Due(at, lane, BucketKey(lane, epoch, start), seq)
            for at, lane, epoch, start, seq in found
        ]
        here = [due for due in rows if due.bucket in live]
        return Page(here, found[-1] if len(found) == PAGE_ROWS else None)

    async def days(self) -> list[Day]:
        def read(connection: sqlite3.Connection) -> list[Day]:
            found = connection.execute(
                f"SELECT DISTINCT tenant, minute / {MINUTES} FROM usage ORDER BY 1, 2"
            )
            return [Day(tenant, day) for tenant, day in found.fetchall()]

        return await self._read(read)

    async def usage(self, day: Day) -> list[Usage]:
        first = day.day * MINUTES
        return await self._read(
            lambda connection: usage_rows.read(connection, day.tenant, first, first + MINUTES - 1)
        )
