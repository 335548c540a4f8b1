"""Planted bugs: each forgives the disk something that it must not, and the sweep must find it.

They change the process they are planted in for as long as it lives.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from pushlane_storage.sqlite import reads
from pushlane_storage.sqlite.committer import Committer
from pushlane_storage.sqlite.tables import Tables


def commit_failures_are_ignored() -> None:
    commit = Tables.commit

    def deaf(self: Tables) -> None:
        try:
            commit(self)
        except sqlite3.Error:
            self.rollback()

    setattr(Tables, "commit", deaf)  # noqa: B010  (a class's method, on purpose)


def refusals_are_forgotten() -> None:
    setattr(Committer, "_refuse", lambda self, call: None)  # noqa: B010


def what_can_not_be_read_is_lost() -> None:
    def blind(read: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        def empty(*args: Any) -> list[Any]:
            try:
                return read(*args)
            except sqlite3.Error:
                return []

        return empty

    for name in ("segments", "segments_of"):
        setattr(reads, name, blind(getattr(reads, name)))


PLANTS: dict[str, Callable[[], None]] = {
    plant.__name__: plant
    for plant in (commit_failures_are_ignored, refusals_are_forgotten, what_can_not_be_read_is_lost)
}
