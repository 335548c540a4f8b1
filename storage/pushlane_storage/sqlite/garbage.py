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
        self.there = True
        """Whether there may be some."""

    def sweep(self, size: int) -> bool:
        """Delete up to about `size` bytes. False says that there was nothing."""
        found = self._connection.execute("SELECT min(bucket) FROM garbage").fetchone()
        if found[0] is None:
            self.there = False
            return False
        bucket: int = found[0]
        deleted = self._segments(bucket, size)
        if deleted < self._limits.sweep_rows:
            deleted += self._rows(bucket, "settlement", "owner, n")
        if deleted < self._limits.sweep_rows:
            deleted += self._rows(bucket, "schedule", "shard, due, lane, epoch, start, seq")
        if not deleted:
            self._connection.execute("DELETE FROM garbage WHERE bucket = ?", (bucket,))
        return True

    def _segments(self, bucket: int, size: int) -> int:
        found = self._connection.execute(
            "SELECT first, payload, size FROM segment WHERE bucket = ? ORDER BY first LIMIT ?",
            (bucket, self._limits.sweep_rows),
        ).fetchall()
        deleted = 0
        for _, payload, bytes in found:
            self._connection.execute("DELETE FROM payload WHERE id = ?", (payload,))
            deleted += 1
            size -= bytes
            if size <= 0:
                break
        if deleted:
            self._connection.execute(
                "DELETE FROM segment WHERE bucket = ? AND first <= ?",
                (bucket, found[deleted - 1][0]),
            )
        return deleted

    def _rows(self, bucket: int, table: str, key: str) -> int:
        return self._connection.execute(
            f"DELETE FROM {table} WHERE bucket = ? AND ({key}) IN"
            f" (SELECT {key} FROM {table} WHERE bucket = ? LIMIT ?)",
            (bucket, bucket, self._limits.sweep_rows),
        ).rowcount
