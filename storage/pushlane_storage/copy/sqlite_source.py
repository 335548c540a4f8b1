"""An embedded store as the source of a copy: locked, and opened for reading only.

Nothing is written there: its epoch stays what it was, which tells whether a server has opened it
since.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, TypeVar

import trio

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.copy.errors import SourceMissing, SourceServed
from pushlane_storage.copy.rows import MINUTES, PAGE_BYTES, PAGE_ROWS, Day, LogRow, Page, Rows
from pushlane_storage.errors import FolderLocked, OpenError
from pushlane_storage.interface import Due
from pushlane_storage.queue import QueueRow
from pushlane_storage.segment import FORMAT, StoredSegment
from pushlane_storage.sqlite import queue_rows, reads, usage_rows
from pushlane_storage.sqlite.columns import SELECT_SEGMENTS
from pushlane_storage.sqlite.errors import read_error
from pushlane_storage.sqlite.folder import COPYING, DATABASE, open_folder
from pushlane_storage.sqlite.schema import APPLICATION, STEPS
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


BUSY_S = 5.0
CACHE_KIB = 16_384


class SqliteSource:
    def __init__(self, name: str, rows: SqliteRows, epoch: int) -> None:
        self.name = name
        self.rows: Rows = rows
        self._epoch = epoch

    async def identity(self) -> str:
        return f"sqlite {self._epoch}"

    async def hold(self, copy: str) -> None:
        """The lock does."""

    async def is_untouched(self, copy: str) -> bool:
        return True  # else it would have another epoch, and identity

    async def confirm(self) -> None:
        """A lock can't be taken away."""

    async def epoch(self) -> int:
        return self._epoch


@asynccontextmanager
async def open_source(name: str, path: Path) -> AsyncIterator[SqliteSource]:
    database = path / DATABASE
    if not database.is_file():
        unfinished = (path / COPYING).exists()
        why = "it holds a copy that is not finished" if unfinished else f"it has no {DATABASE}"
        raise SourceMissing(f"{name} is not a store: {why}; give the folder of a server's --data")
    try:
        folder = await trio.to_thread.run_sync(open_folder, path)
    except FolderLocked as error:
        who = "another process" if error.pid is None else f"process {error.pid}"
        raise SourceServed(name, who) from error
    except OpenError as error:
        raise SourceMissing(f"{error}: it must be locked while it is copied") from error
    try:
        with closing(_connect(name, database)) as connection:
            yield SqliteSource(name, SqliteRows(connection), _greatest_epoch(connection))
    finally:
        folder.close()


def _connect(name: str, database: Path) -> sqlite3.Connection:
    connection = read_only(database)
    try:
        check_tables(name, connection)
    except sqlite3.Error as error:
        connection.close()
        raise SourceMissing(f"{database} can't be read: {error}; restore a backup") from error
    except BaseException:
        connection.close()
        raise
    return connection


def read_only(database: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{database.absolute().as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        timeout=BUSY_S,
        check_same_thread=False,
    )


def check_tables(name: str, connection: sqlite3.Connection) -> None:
    """It is a store, of this version of the tables."""
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    version = _value(connection, "PRAGMA user_version")
    if _value(connection, "PRAGMA application_id") != APPLICATION or not version:
        raise SourceMissing(f"{name} was not made by Pushlane: give the folder of a server's data")
    format = _value(connection, "SELECT value FROM meta WHERE name = 'format'")
    if version > len(STEPS) or format > FORMAT:
        raise SourceMissing(f"{name} was written by a newer version of Pushlane: use that version")
    if version < len(STEPS):
        raise SourceMissing(
            f"{name} was written by an older version of Pushlane: start and stop a server of this"
            " version on it first"
        )


def _greatest_epoch(connection: sqlite3.Connection) -> int:
    return max(
        _value(connection, "SELECT value FROM meta WHERE name = 'epoch'"),
        _value(connection, "SELECT max(epoch) FROM slot"),
    )


def _value(connection: sqlite3.Connection, query: str) -> int:
    [found] = connection.execute(query).fetchone()
    return int(found or 0)
