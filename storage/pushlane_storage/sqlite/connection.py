"""Connections to the database file, and how it is opened.

Checkpoints are ours (checkpointer.py), so SQLite's own are off. `secure_delete` is off, too:
overwriting what is deleted would double the work of dropping a bucket.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pushlane_storage.errors import FolderForeign, FolderUnusable
from pushlane_storage.files import make_file
from pushlane_storage.sqlite.folder import COPYING, RESTORING, Folder
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.manifest import BACKUP
from pushlane_storage.sqlite.schema import Step, migrate, raise_epoch

PAGE_BYTES = 4096
"""A commit writes whole pages, and the smallest commits are the most frequent ones."""

STATEMENTS = 256
"""Prepared statements kept per connection: there are fewer than a hundred different ones."""


def connect(path: Path, cache_bytes: int, limits: Limits) -> sqlite3.Connection:
    """A connection that any one thread may use."""
    connection = sqlite3.connect(
        path,
        timeout=limits.busy_ms / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS,
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute(f"PRAGMA journal_size_limit = {2 * limits.checkpoint_bytes}")
        connection.execute(f"PRAGMA cache_size = -{cache_bytes >> 10}")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: Path, limits: Limits) -> sqlite3.Connection:
    connection = connect(path, limits.reader_cache_bytes, limits)
    connection.execute("PRAGMA query_only = ON")
    return connection


def open_database(
    folder: Folder, limits: Limits, steps: Sequence[Step]
) -> tuple[sqlite3.Connection, int]:
    """The writer's connection, and the epoch of this opening, raised durably."""
    _refuse_what_is_no_store(folder)
    with opening(folder):
        make_file(folder.database)
        connection = connect(folder.database, limits.writer_cache_bytes, limits)
        try:
            return connection, _prepare(connection, folder, steps)
        except BaseException:
            connection.close()
            raise


@contextmanager
def opening(folder: Folder) -> Iterator[None]:
    """Whatever the disk or the file is at fault with meanwhile, as an `OpenError`."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB:
            raise FolderForeign(f"{folder.database} is not a database") from error
        raise FolderUnusable(f"{folder.database} can't be opened: {error}") from error
    except OSError as error:
        raise FolderUnusable(f"{folder.path} can't be used: {error.strerror or error}") from error


def _refuse_what_is_no_store(folder: Folder) -> None:
    """An empty store made beside these would only hide what is wrong."""
    if folder.database.exists():
        return
    if (folder.path / RESTORING).exists():
        raise FolderUnusable(f"a restore into {folder.path} was interrupted: run it again")
    if (folder.path / COPYING).exists():
        raise FolderUnusable(f"a copy into {folder.path} is not finished: run it again")
    if (folder.path / BACKUP).exists():
        raise FolderForeign(f"{folder.path} is a backup: restore it into another folder")


def _prepare(connection: sqlite3.Connection, folder: Folder, steps: Sequence[Step]) -> int:
    # Only an empty file takes these two; the first step writes them down.
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    migrate(connection, folder.path, steps)
    [mode] = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise FolderUnusable(f"{folder.path} is on a file system without shared memory maps")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    epoch = raise_epoch(connection)
    folder.sync()
    return epoch
