"""Tidying up, in steps of a few milliseconds: garbage first, then the space that it took."""

from __future__ import annotations

import sqlite3

from pushlane_storage.sqlite.checkpointer import Checkpointer
from pushlane_storage.sqlite.errors import BUSY, FULL, code_of
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.stats import Stats
from pushlane_storage.sqlite.tables import Tables
from pushlane_storage.sqlite.vacuum import Vacuum


class Tidier:
    def __init__(
        self,
        tables: Tables,
        vacuum: Vacuum,
        checkpointer: Checkpointer,
        limits: Limits,
        stats: Stats,
    ) -> None:
        self._tables = tables
        self._vacuum = vacuum
        self._checkpointer = checkpointer
        self._limits = limits
        self._stats = stats

    def step(self) -> bool:
        """One step. False says that there was nothing to do, or no room to do it."""
        try:
            return self._sweep() or self._give_back()
        except sqlite3.Error as error:
            if code_of(error) not in (FULL, BUSY):
                raise
            return False

    def _sweep(self) -> bool:
        tables = self._tables
        if not tables.garbage.there:
            return False
        try:
            tables.begin()
            swept = tables.garbage.sweep(self._limits.sweep_bytes)
            tables.commit()
        except BaseException:
            tables.rollback()
            raise
        if swept:
            self._stats.sweeps += 1
            self._checkpointer.committed(self._limits.sweep_bytes // 4)
        return swept

    def _give_back(self) -> bool:
        if not self._vacuum.due:
            return False
        written = self._vacuum.step()
        self._stats.vacuums += 1
        self._checkpointer.committed(written)
        return True
