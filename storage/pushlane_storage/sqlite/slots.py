"""Slots: who may write.

One process owns them all, so a claim only ever fences an earlier claim of its own. The first
claim of a slot after opening answers the epoch of the opening, each one more than the one
before; the next opening's epoch is above all of them.
"""

import sqlite3

from pushlane_storage.interface import Fenced
from pushlane_storage.slot import SLOTS


class Slots:
    def __init__(self, connection: sqlite3.Connection, epoch: int) -> None:
        self._connection = connection
        self._opened = epoch
        self._epochs: list[int] = []
        self.load()

    def load(self) -> None:
        """Take what is stored: after opening, and after a rollback."""
        self._epochs = [0] * SLOTS
        for slot, epoch in self._connection.execute("SELECT slot, epoch FROM slot"):
            self._epochs[slot] = epoch

    def claim(self, slot: int, owner: str) -> int:
        assert 0 <= slot < SLOTS
        epoch = max(self._opened, self._epochs[slot] + 1)
        self._connection.execute("REPLACE INTO slot VALUES (?, ?, ?)", (slot, epoch, owner))
        self._epochs[slot] = epoch
        return epoch

    def check(self, slot: int, epoch: int) -> None:
        """`Fenced` unless this epoch may write."""
        newest = max(self._opened, self._epochs[slot])
        if epoch < newest:
            raise Fenced(f"slot {slot} has epoch {newest}, this write is of epoch {epoch}")
