"""An embedded store as the source of a copy: locked, and opened for reading only.

Nothing is written there: its epoch stays what it was, which tells whether a server has opened it
since.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import trio

from pushlane_storage.copy.errors import SourceMissing, SourceServed
from pushlane_storage.copy.rows import Rows
from pushlane_storage.copy.sqlite_rows import SqliteRows
from pushlane_storage.segment import FORMAT
from pushlane_storage.sqlite.errors import FolderLocked, OpenError
from pushlane_storage.sqlite.folder import COPYING, DATABASE, open_folder
from pushlane_storage.sqlite.schema import APPLICATION, STEPS

BUSY_S = 5.0
CACHE_KIB = 16_384


class SqliteSource:
    def __init__(self, name: str, rows: SqliteRows, epoch: int) -> None:
        self.name = name
        self.rows: Rows = rows
        self._epoch = epoch

    async def identity(self) -> str:
        return f"sqlite {self._epoch}"

    async def hold(self, copy: str) -> None:
        """The lock does."""

    async def is_untouched(self, copy: str) -> bool:
        return True  # else it would have another epoch, and identity

    async def confirm(self) -> None:
        """A lock can't be taken away."""

    async def epoch(self) -> int:
        return self._epoch


@asynccontextmanager
async def open_source(name: str, path: Path) -> AsyncIterator[SqliteSource]:
    database = path / DATABASE
    if not database.is_file():
        unfinished = (path / COPYING).exists()
        why = "it holds a copy that is not finished" if unfinished else f"it has no {DATABASE}"
        raise SourceMissing(f"{name} is not a store: {why}; give the folder of a server's --data")
    try:
        folder = await trio.to_thread.run_sync(open_folder, path)
    except FolderLocked as error:
        who = "another process" if error.pid is None else f"process {error.pid}"
        raise SourceServed(name, who) from error
    except OpenError as error:
        raise SourceMissing(f"{error}: it must be locked while it is copied") from error
    try:
        with closing(_connect(name, database)) as connection:
            yield SqliteSource(name, SqliteRows(connection), _greatest_epoch(connection))
    finally:
        folder.close()


def _connect(name: str, database: Path) -> sqlite3.Connection:
    connection = read_only(database)
    try:
        check_tables(name, connection)
    except sqlite3.Error as error:
        connection.close()
        raise SourceMissing(f"{database} can't be read: {error}; restore a backup") from error
    except BaseException:
        connection.close()
        raise
    return connection


def read_only(database: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{database.absolute().as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        timeout=BUSY_S,
        check_same_thread=False,
    )


def check_tables(name: str, connection: sqlite3.Connection) -> None:
    """It is a store, of this version of the tables."""
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    version = _value(connection, "PRAGMA user_version")
    if _value(connection, "PRAGMA application_id") != APPLICATION or not version:
        raise SourceMissing(f"{name} was not made by Pushlane: give the folder of a server's data")
    format = _value(connection, "SELECT value FROM meta WHERE name = 'format'")
    if version > len(STEPS) or format > FORMAT:
        raise SourceMissing(f"{name} was written by a newer version of Pushlane: use that version")
    if version < len(STEPS):
        raise SourceMissing(
            f"{name} was written by an older version of Pushlane: start and stop a server of this"
            " version on it first"
        )


def _greatest_epoch(connection: sqlite3.Connection) -> int:
    return max(
        _value(connection, "SELECT value FROM meta WHERE name = 'epoch'"),
        _value(connection, "SELECT max(epoch) FROM slot"),
    )


def _value(connection: sqlite3.Connection, query: str) -> int:
    [found] = connection.execute(query).fetchone()
    return int(found or 0)
