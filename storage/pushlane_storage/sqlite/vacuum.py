"""Giving space back: free pages go from the end of the file to the file system, in small steps."""

import sqlite3

from pushlane_storage.sqlite.connection import PAGE_BYTES
from pushlane_storage.sqlite.limits import Limits


class Vacuum:
    def __init__(self, connection: sqlite3.Connection, limits: Limits) -> None:
        self._connection = connection
        self._spare = limits.spare_bytes // PAGE_BYTES
        self._step = limits.vacuum_bytes // PAGE_BYTES

    @property
    def free(self) -> int:
        """Free pages in the file."""
        [pages] = self._connection.execute("PRAGMA freelist_count").fetchone()
        assert isinstance(pages, int)
        return pages

    @property
    def due(self) -> bool:
        return self.free >= self._spare + self._step

    def step(self) -> None:
        # It frees a page with every empty row that it yields: `execute` takes only the first.
        self._connection.executescript(f"PRAGMA incremental_vacuum({self._step})")
