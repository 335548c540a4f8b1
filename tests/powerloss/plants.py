"""Planted bugs: the test must find each of them, or it would not find the real ones.

Some change the recorded process (a pragma, a missing sync, an early answer), some the disk under
it (syncs of certain files that do nothing): to the image there is no difference between a sync
that was forgotten and one that was ignored.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import trio

from pushlane_storage import files
from pushlane_storage.interface import Backend, Outcome
from pushlane_storage.outcome import outcome_of
from pushlane_storage.sqlite import backup
from pushlane_storage.sqlite.manifest import BACKUP, Manifest, write_manifest
from tests.powerloss.disk import Lies
from tests.powerloss.seams import InTurn

LIES: dict[str, Lies] = {
    "wal-unsynced": lambda path: path.endswith("-wal"),
    "database-unsynced": lambda path: path.endswith("pushlane.db"),
    "folders-unsynced": lambda path: "." not in path and not path.startswith("backups"),
    "backup-unsynced": lambda path: path.endswith("backup.db"),
    "backup-folder-unsynced": lambda path: "." not in path and path.startswith("backups/"),
}
"""The second one is a write-ahead log that is started anew before what it held is safe."""

PROCESS = (
    "synchronous-off",
    "synchronous-normal",
    "no-folder-sync",
    "early-published",
    "early-settled",
    "manifest-first",
)
ALL = (*PROCESS, *LIES)
DELAY_S = 0.002
"""How much too early an early answer is."""


def lies_of(plant: str) -> Lies:
    return LIES.get(plant, lambda path: False)


@asynccontextmanager
async def planted(plant: str) -> AsyncIterator[Callable[[Backend], Backend]]:
    """Plant a bug in this process; what is yielded changes the store that is opened inside."""
    if plant.startswith("synchronous-"):
        _weaken(plant.removeprefix("synchronous-").upper())
    elif plant == "no-folder-sync":
        setattr(files, "sync_folder", _no_sync)  # noqa: B010  (a module's function, on purpose)
    elif plant == "manifest-first":
        setattr(backup, "sync_file", _no_sync)  # noqa: B010
        setattr(backup, "write_manifest", _manifest_first)  # noqa: B010
    async with trio.open_nursery() as nursery:

        def change(store: Backend) -> Backend:
            early = {"early-published": "append_soon", "early-settled": "settle_soon"}.get(plant)
            return store if early is None else cast(Backend, Early(store, nursery, early))

        yield change


def _no_sync(path: Path) -> None:
    pass


def _manifest_first(place: Path, manifest: Manifest) -> None:
    """Finish a backup before what is in it is durable, which it is at last."""
    write_manifest(place, manifest)
    time.sleep(10 * DELAY_S)
    with (place / BACKUP).open("rb") as file:
        os.fsync(file.fileno())


def _weaken(mode: str) -> None:
    """Every connection that is made from now on asks for less than it thinks."""

    class Weak(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if sql.startswith("PRAGMA synchronous"):
                sql = f"PRAGMA synchronous = {mode}"
            return super().execute(sql, *parameters)

    real = sqlite3.connect

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        return real(*args, **options, factory=Weak)

    setattr(sqlite3, "connect", connect)  # noqa: B010


class Early:
    """A store that says "done" before it is.

    Everything else waits until it is, so that nobody but a power cut can tell.
    """

    def __init__(self, store: Backend, nursery: trio.Nursery, early: str) -> None:
        self._store = store
        self._nursery = nursery
        self._early = early
        self._under_way = 0
        self._done = trio.Event()
        self.ownership = InTurn(store.ownership, self.in_turn)
        self.catalog = InTurn(store.catalog, self.in_turn)
        self.usage = InTurn(store.usage, self.in_turn)
        self.stats = store.stats

    def append_soon(self, *args: Any) -> None:
        self._write("append_soon", *args)

    def settle_soon(self, *args: Any) -> None:
        self._write("settle_soon", *args)

    def _write(self, name: str, *args: Any) -> None:
        *content, outcome = args
        write = partial(getattr(self._store, name), *content)
        if name == self._early:
            self._under_way += 1
            trio.lowlevel.current_trio_token().run_sync_soon(outcome, None)
            self._nursery.start_soon(self._later, write)
        else:
            self._nursery.start_soon(self._write_in_turn, write, outcome)

    async def _write_in_turn(self, write: Callable[[Outcome], None], outcome: Outcome) -> None:
        while self._under_way:
            await self._done.wait()
        write(outcome)

    async def _later(self, write: Callable[[Outcome], None]) -> None:
        await trio.to_thread.run_sync(time.sleep, DELAY_S)
        await outcome_of(write)
        self._under_way -= 1
        self._done.set()
        self._done = trio.Event()

    def __getattr__(self, name: str) -> Any:
        return self.in_turn(getattr(self._store, name))

    def in_turn(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def later(*args: Any, **options: Any) -> Any:
            while self._under_way:
                await self._done.wait()
            return await call(*args, **options)

        return later
