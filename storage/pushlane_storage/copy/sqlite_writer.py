"""Rows of a copy into the tables of an embedded store, inside the caller's transaction.

Unlike the store's own writer it knows no owners and no epochs: rows come with the checksums that
they were stored with, whatever those say.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.copy.rows import LogRow, body_of, due_of
from pushlane_storage.interface import Due
from pushlane_storage.queue import QueueRow
from pushlane_storage.slot import slot_of
from pushlane_storage.sqlite import queue_rows, usage_rows
from pushlane_storage.sqlite.bucket_rows import bucket_values
from pushlane_storage.sqlite.places import Places
from pushlane_storage.sqlite.segment_rows import NO_MARKS
from pushlane_storage.stored_segment import StoredSegment
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
