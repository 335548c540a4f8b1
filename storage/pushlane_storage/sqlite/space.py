"""Space: what dropped buckets held is deleted bit by bit, and what that frees is given back.

To drop a bucket, or a queue with ten million messages, is to write down its number. What it held
is deleted in small steps, a few with every transaction and the rest when nothing else is to do:
nobody waits behind a long delete.

Free pages go from the end of the file to the file system, in small steps, too. For every page
SQLite looks through the list of free pages, so a step takes longer the more of them there are: it
is cut to what fits a few milliseconds. When a big file is nearly empty, what is left of it is
written anew at once instead: that costs by what is left, not by what goes.
"""

import sqlite3
import time
from collections.abc import Callable

from pushlane_storage.sqlite.connection import PAGE_BYTES
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


SLOW_S, QUICK_S = 0.02, 0.005
"""A step that takes longer is halved; one that takes less may grow again."""


class Vacuum:
    def __init__(
        self,
        connection: sqlite3.Connection,
        limits: Limits,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._spare = limits.spare_bytes // PAGE_BYTES
        self._most = self._pages = limits.vacuum_bytes // PAGE_BYTES
        self._much = limits.rebuild_free_bytes // PAGE_BYTES
        self._few = limits.rebuild_bytes // PAGE_BYTES

    @property
    def free(self) -> int:
        """Free pages in the file."""
        return self._count("freelist_count")

    @property
    def due(self) -> bool:
        return self.free >= self._spare + self._most

    def step(self) -> int:
        """Give some back; how many bytes were written for that, about."""
        left = self._count("page_count") - self.free
        if self.free >= self._much and left <= self._few:
            self._connection.execute("VACUUM")
            return left * PAGE_BYTES
        began = self._clock()
        # It frees a page with every empty row that it yields: `execute` takes only the first.
        self._connection.executescript(f"PRAGMA incremental_vacuum({self._pages})")
        self._adapt(self._clock() - began)
        return self._most * PAGE_BYTES // 4

    def _adapt(self, took: float) -> None:
        if took > SLOW_S:
            self._pages = max(1, self._pages // 2)
        elif took < QUICK_S:
            self._pages = min(self._most, 2 * self._pages)

    def _count(self, what: str) -> int:
        [pages] = self._connection.execute(f"PRAGMA {what}").fetchone()
        assert isinstance(pages, int)
        return pages
