"""Garbage: what dropped buckets held, deleted bit by bit.

To drop a bucket, or a queue with ten million messages, is to write down its number. What it held
is deleted in small steps, a few with every transaction and the rest when nothing else is to do:
nobody waits behind a long delete.
"""

import sqlite3

from pushlane_storage.sqlite.limits import Limits


class Garbage:
    def __init__(self, connection: sqlite3.Connection, limits: Limits) -> None:
        self._connection = connection
        self._limits = limits
        self.there = self._next() is not None
        """Whether there may be some."""

    def sweep(self, size: int) -> bool:
        """Delete up to about `size` bytes. False says that there was nothing."""
        bucket = self._next()
        if bucket is None:
            self.there = False
            return False
        deleted = self._segments(bucket, size)
        if deleted < self._limits.sweep_rows:
            deleted += self._rows(bucket, "settlement", "owner, n")
        if deleted < self._limits.sweep_rows:
            deleted += self._rows(bucket, "schedule", "shard, due, lane, epoch, start, seq")
        if not deleted:
            self._connection.execute("DELETE FROM garbage WHERE bucket = ?", (bucket,))
        return True

    def _next(self) -> int | None:
        found = self._connection.execute("SELECT min(bucket) FROM garbage").fetchone()
        bucket: int | None = found[0]
        return bucket

    def _segments(self, bucket: int, size: int) -> int:
        cursor = self._connection.execute(
            "SELECT first, size FROM segment WHERE bucket = ? ORDER BY first LIMIT ?",
            (bucket, self._limits.sweep_rows),
        )
        last = None
        for first, held in cursor:
            last = first
            size -= held
            if size <= 0:
                break
        cursor.close()
        if last is None:
            return 0
        for table, key in (("payload", "id"), ("mark", "payload")):
            self._connection.execute(
                f"DELETE FROM {table} WHERE {key} IN"
                " (SELECT payload FROM segment WHERE bucket = ? AND first <= ?)",
                (bucket, last),
            )
        return self._connection.execute(
            "DELETE FROM segment WHERE bucket = ? AND first <= ?", (bucket, last)
        ).rowcount

    def _rows(self, bucket: int, table: str, key: str) -> int:
        return self._connection.execute(
            f"DELETE FROM {table} WHERE bucket = ? AND ({key}) IN"
            f" (SELECT {key} FROM {table} WHERE bucket = ? LIMIT ?)",
            (bucket, bucket, self._limits.sweep_rows),
        ).rowcount
