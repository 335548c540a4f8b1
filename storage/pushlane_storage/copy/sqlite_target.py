"""An embedded store as the target of a copy.

It grows in `copying.db`, which no server opens, and becomes `pushlane.db` at the end. Progress is
committed with the rows that it tells of, in the same file; commits are durable in their order, so
a power cut takes back the last of both.

Rows are written inside the caller's transaction. Unlike the store's own writer this one knows no
owners and no epochs: rows come with the checksums that they were stored with, whatever those say.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import msgspec
import trio

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.copy import record as records
from pushlane_storage.copy.errors import CopyFailed, TargetNotEmpty, TargetServed, TargetUnusable
from pushlane_storage.copy.record import Record
from pushlane_storage.copy.rows import MINUTES, Day, LogRow, body_of, due_of
from pushlane_storage.copy.sqlite_source import SqliteRows, read_only
from pushlane_storage.errors import FolderLocked, OpenError
from pushlane_storage.files import make_file
from pushlane_storage.interface import Due
from pushlane_storage.queue import QueueRow
from pushlane_storage.segment import StoredSegment
from pushlane_storage.slot import slot_of
from pushlane_storage.sqlite import queue_rows, usage_rows
from pushlane_storage.sqlite.backup import sync_file
from pushlane_storage.sqlite.columns import NO_MARKS, bucket_values
from pushlane_storage.sqlite.connection import PAGE_BYTES
from pushlane_storage.sqlite.folder import COPYING, DATABASE, LOCK, Folder, open_folder
from pushlane_storage.sqlite.places import Places
from pushlane_storage.sqlite.schema import migrate
from pushlane_storage.usage import Usage

PLACES = 10_000
"""Buckets, and shards, whose row number is remembered; others are looked up."""


class SqliteWriter:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._places = Places(connection, lambda: None, PLACES)
        [greatest] = connection.execute("SELECT max(id) FROM payload").fetchone()
        self._next_payload = 1 + (greatest or 0)

    def queue(self, row: QueueRow) -> None:
        queue_rows.put(self._connection, row)

    def shard(
        self, queue: QueueRow, shard: ShardKey, seals: Iterable[LogRow], note: LogRow | None
    ) -> None:
        number = self._places.shard(shard)
        self._connection.executemany(
            "INSERT OR IGNORE INTO seal VALUES (?, ?, ?, ?)",
            [(number, row.owner, row.checksum, row.body) for row in seals],
        )
        if note is not None:
            self._connection.execute(
                "INSERT OR IGNORE INTO note VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (number, slot_of(shard), due_of(note), queue.tenant, queue.name, *note),
            )

    def bucket(self, shard: ShardKey, bucket: Bucket) -> None:
        place = self._places.bucket(shard, bucket.key)
        self._connection.execute(
            "UPDATE bucket SET first = ?, closed = ?, drained = ?, count = ?, size = ?,"
            " last_at = ?, checksum = ?, marks = ? WHERE id = ?",
            (*bucket_values(bucket), place.id),
        )

    def log(self, shard: ShardKey, key: BucketKey, rows: Iterable[LogRow]) -> None:
        place = self._places.bucket(shard, key)
        self._connection.executemany(
            "INSERT OR IGNORE INTO settlement VALUES (?, ?, ?, ?, ?)",
            [(place.id, *row) for row in rows],
        )

    def segments(self, shard: ShardKey, key: BucketKey, rows: Sequence[StoredSegment]) -> None:
        place = self._places.bucket(shard, key)
        there = self._firsts(place.id, rows[0].first, rows[-1].first)
        new = [row for row in rows if row.first not in there]
        numbers = range(self._next_payload, self._next_payload + len(new))
        self._next_payload += len(new)
        bodies = [(n, body_of(row)) for n, row in zip(numbers, new, strict=True)]
        marks = [(n, row.marks) for n, row in zip(numbers, new, strict=True)]
        self._connection.executemany(
            "INSERT INTO payload VALUES (?, ?)", [row for row in bodies if row[1] is not None]
        )
        self._connection.executemany(
            "INSERT INTO mark VALUES (?, ?)", [row for row in marks if row[1] != NO_MARKS]
        )
        self._connection.executemany(
            "INSERT INTO segment VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    place.id, row.first, row.count, row.size, row.last_at, row.format,
                    row.checksum, row.head, n,
                )
                for n, row in zip(numbers, new, strict=True)
            ],
        )  # fmt: skip

    def _firsts(self, bucket: int, low: int, high: int) -> set[int]:
        """Segments that are there already: an earlier run of the copy was cut off behind them."""
        found = self._connection.execute(
            "SELECT first FROM segment WHERE bucket = ? AND first BETWEEN ? AND ?",
            (bucket, low, high),
        )
        return {first for (first,) in found.fetchall()}

    def due(self, shard: ShardKey, rows: Iterable[Due]) -> None:
        number = self._places.shard(shard)
        entries = []
        for row in rows:
            place = self._places.bucket(shard, row.bucket)
            entries.append(
                (number, row.due, row.lane, row.bucket.epoch, row.bucket.start, row.seq, place.id)
            )
        self._connection.executemany(
            "INSERT OR IGNORE INTO schedule VALUES (?, ?, ?, ?, ?, ?, ?)", entries
        )

    def usage(self, tenant: str, first: int, last: int, usage: Sequence[Usage]) -> None:
        """In place of what stands there for these minutes."""
        self._connection.execute(
            "DELETE FROM usage WHERE tenant = ? AND minute BETWEEN ? AND ?", (tenant, first, last)
        )
        usage_rows.put(self._connection, usage)


RECORD = "copy_record"
"""The table of the copy's record. It stays: who runs the copy again learns that it is finished."""
OURS = {LOCK, COPYING, COPYING + "-wal", COPYING + "-shm", "lost+found"}
CACHE_KIB = 16_384
CHECKPOINT_PAGES = 4_096


class SqliteTarget:
    """Made by `open_target`."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._path = path
        self._folder: Folder | None = None
        self._rows: SqliteRows | None = None
        self._writer: SqliteWriter | None = None

    # What is there

    async def read_record(self) -> Record | None:
        return await trio.to_thread.run_sync(self._read_record)

    def _read_record(self) -> Record | None:
        finished = self._record_in(DATABASE)
        if finished is not None:
            return finished
        found = self._record_in(COPYING)
        if found is not None and found.state == "finished":  # all but its name
            return msgspec.structs.replace(found, state="verified")
        return found

    def _record_in(self, file: str) -> Record | None:
        """None: there is no such file, or it is of something else."""
        database = self._path / file
        if not database.is_file():
            return None
        try:
            with closing(read_only(database)) as connection:
                found = connection.execute(f"SELECT record FROM {RECORD}").fetchone()
        except sqlite3.Error:
            return None
        try:
            return None if found is None else records.decode(found[0])
        except ValueError as error:
            raise TargetNotEmpty(self.name, f"a copy of another version: {error}") from error

    async def check_empty(self) -> None:
        try:
            there = self._path.exists()
            names = {entry.name for entry in self._path.iterdir()} if there else set()
        except OSError as error:
            raise TargetUnusable(
                f"{self.name} can't be used: {error.strerror}; choose another folder"
            ) from error
        if foreign := names - OURS:
            raise TargetNotEmpty(self.name, f"{min(foreign)} is in it")

    # Beginning and ending

    async def begin(self, record: Record) -> SqliteRows:
        await trio.to_thread.run_sync(self._lock)
        await self.check_empty()
        try:
            connection = await trio.to_thread.run_sync(self._open, record)
        except (sqlite3.Error, OSError) as error:
            raise TargetUnusable(
                f"{self.name} can't be written: {error}; check the disk, or choose another folder"
            ) from error
        self._writer = SqliteWriter(connection)
        self._rows = SqliteRows(connection)
        return self._rows

    def _lock(self) -> None:
        try:
            self._folder = open_folder(self._path)
        except FolderLocked as error:
            who = "another process" if error.pid is None else f"process {error.pid}"
            raise TargetServed(self.name, who) from error
        except OpenError as error:
            raise TargetUnusable(f"{error}: choose another folder") from error

    def _open(self, record: Record) -> sqlite3.Connection:
        assert self._folder is not None
        make_file(self._path / COPYING)
        connection = sqlite3.connect(
            self._path / COPYING, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = OFF").fetchall()
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}").fetchall()
            migrate(connection, self._path)
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"CREATE TABLE IF NOT EXISTS {RECORD} (record TEXT NOT NULL)")
            _commit(connection, record)
            self._folder.sync()
        except BaseException:
            connection.close()
            raise
        return connection

    async def note(self, record: Record) -> None:
        await self._write(lambda connection: _commit(connection, record))

    async def finish(self, record: Record) -> None:
        await self._write(lambda connection: self._finish(connection, record))
        self._rows = None

    def _finish(self, connection: sqlite3.Connection, record: Record) -> None:
        assert self._folder is not None
        connection.execute("UPDATE meta SET value = ? WHERE name = 'epoch'", (record.epoch,))
        _commit(connection, record)
        connection.execute("ROLLBACK")  # of what `_commit` has begun: nothing
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()
        sync_file(self._path / COPYING)
        self._folder.sync()
        (self._path / COPYING).rename(self._folder.database)
        self._folder.sync()

    async def _write(self, work: Callable[[sqlite3.Connection], None]) -> None:
        assert self._rows is not None
        try:
            await self._rows.run(work)
        except (sqlite3.Error, OSError) as error:
            raise CopyFailed(
                f"{self.name} can't be written: {error}; make room or check the disk, then run it"
                " again"
            ) from error

    async def close(self) -> None:
        if self._rows is not None:
            await self._rows.run(sqlite3.Connection.close)
        if self._folder is not None:
            self._folder.close()

    # Rows

    async def _put(self, work: Callable[[SqliteWriter], None]) -> None:
        writer = self._writer
        assert writer is not None
        await self._write(lambda _: work(writer))

    async def put_queue(self, row: QueueRow) -> None:
        await self._put(lambda writer: writer.queue(row))

    async def put_shard(
        self, queue: QueueRow, shard: ShardKey, seals: Sequence[LogRow], note: LogRow | None
    ) -> None:
        await self._put(lambda writer: writer.shard(queue, shard, seals, note))

    async def put_bucket(self, shard: ShardKey, bucket: Bucket) -> None:
        await self._put(lambda writer: writer.bucket(shard, bucket))

    async def put_log(
        self, queue: QueueRow, shard: ShardKey, key: BucketKey, rows: Sequence[LogRow]
    ) -> None:
        await self._put(lambda writer: writer.log(shard, key, rows))

    async def put_segments(
        self, queue: QueueRow, shard: ShardKey, key: BucketKey, rows: Sequence[StoredSegment]
    ) -> None:
        await self._put(lambda writer: writer.segments(shard, key, rows))

    async def put_due(self, queue: QueueRow, shard: ShardKey, rows: Sequence[Due]) -> None:
        await self._put(lambda writer: writer.due(shard, rows))

    async def put_usage(self, day: Day, usage: Sequence[Usage]) -> None:
        first = day.day * MINUTES
        await self._put(lambda writer: writer.usage(day.tenant, first, first + MINUTES - 1, usage))


def _commit(connection: sqlite3.Connection, record: Record) -> None:
    """Everything up to here; a transaction is always under way."""
    connection.execute(f"DELETE FROM {RECORD}")
    connection.execute(f"INSERT INTO {RECORD} VALUES (?)", (records.encode(record),))
    connection.execute("COMMIT")
    connection.execute("BEGIN IMMEDIATE")


@asynccontextmanager
async def open_target(name: str, path: Path) -> AsyncIterator[SqliteTarget]:
    target = SqliteTarget(name, path)
    try:
        yield target
    finally:
        with trio.CancelScope(shield=True):
            await target.close()
