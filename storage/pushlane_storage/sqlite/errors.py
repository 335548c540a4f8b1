"""What can go wrong with the embedded store, besides the answers of every store.

OpenError                 the folder can't be served, and nothing was changed
├── FolderLocked          another process serves it
├── FolderNewer           a newer version of Pushlane wrote it
├── FolderForeign         the file in it is not ours
└── FolderUnusable        no such thing can be made or read there
StoreUnknown
└── StoreBroken           a commit failed: nothing is known any more, and the process ends

A stored row that must be right and is not, or that can't be read, is the interface's
`StoreDamaged`.
"""

import sqlite3
from pathlib import Path

from pushlane_storage.interface import StoreDamaged as StoreDamaged
from pushlane_storage.interface import StoreError, StoreUnknown


class OpenError(Exception):
    """The folder can't be served."""


class FolderLocked(OpenError):
    def __init__(self, folder: Path, pid: int | None) -> None:
        who = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{folder} is in use by {who}: stop it first, or choose another folder")
        self.folder = folder
        self.pid = pid


class FolderNewer(OpenError):
    def __init__(self, folder: Path, found: int, known: int) -> None:
        super().__init__(
            f"{folder} was written by a newer version of Pushlane (format {found}, this version"
            f" knows up to {known}): run that version, or restore a backup made before"
        )
        self.found = found
        self.known = known


class FolderForeign(OpenError):
    """The database file holds something else."""


class FolderUnusable(OpenError):
    """The folder can't be made, read or written."""


class StoreBroken(StoreUnknown):
    """The store has stopped for good: after a failed commit nothing can be trusted."""


FULL = sqlite3.SQLITE_FULL
BUSY = sqlite3.SQLITE_BUSY
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def code_of(error: BaseException) -> int:
    """SQLite's primary result code; 0 for errors that are not from the library."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else 0


def is_fault(error: BaseException) -> bool:
    """Whether the disk or the file is at fault, and not what a caller handed in."""
    return code_of(error) not in (
        0,
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_MISUSE,
        sqlite3.SQLITE_RANGE,
        sqlite3.SQLITE_TOOBIG,
    )


def read_error(error: sqlite3.Error) -> StoreError:
    """What a reader is told. An EIO comes as `SQLITE_CORRUPT`: SQLite makes no difference."""
    kind = StoreDamaged if code_of(error) in _CORRUPT else StoreUnknown
    return kind(f"reading failed: {error}")
