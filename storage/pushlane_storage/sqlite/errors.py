"""SQLite's errors, and what they mean for the store.

A stored row that must be right and is not, or that can't be read, is `StoreDamaged`.
"""

import sqlite3

from pushlane_storage.interface import StoreDamaged, StoreError, StoreUnknown


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
