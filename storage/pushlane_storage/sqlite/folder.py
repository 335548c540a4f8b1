"""The store's folder: made durably, and locked for as long as it is served.

A folder that a crash makes vanish takes everything in it along, so whatever is created here is
followed by an fsync of the folder that it stands in.

Messages are nobody else's business: the folder and the files in it are for their owner alone. A
folder that was there before and has something in it keeps its mode, for it may serve other ends,
too; the files in it that are ours are closed to others all the same.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from pushlane_storage import files
from pushlane_storage.errors import FolderLocked, FolderUnusable
from pushlane_storage.files import PRIVATE, PRIVATE_FOLDER, make_folder

DATABASE = "pushlane.db"
LOCK = "lock"
RESTORING = "restoring.db"
"""What becomes the database when a restore has come to its end."""
COPYING = "copying.db"
"""What becomes the database when a copy from another store has come to its end."""
_OTHERS = 0o077


class Folder:
    """An open, locked folder."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.database = path / DATABASE
        self.log = path / (DATABASE + "-wal")
        """SQLite's write-ahead log."""
        self._lock: int | None = lock

    def sync(self) -> None:
        """Make the folder's entries durable."""
        files.sync_folder(self.path)

    def free_bytes(self) -> int:
        """What the file system has left for us."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def close(self) -> None:
        """Unlock. The file stays: to remove it would let two processes lock one each."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def open_folder(path: Path) -> Folder:
    """Make the folder if need be, and lock it."""
    path = path.absolute()
    try:
        make_folder(path)
        if next(path.iterdir(), None) is None:
            _close_to_others(path, PRIVATE_FOLDER)
        lock = _lock(path)
        for name in (LOCK, DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"):
            _close_to_others(path / name, PRIVATE)
        return Folder(path, lock)
    except OSError as error:
        raise FolderUnusable(f"{path} can't be used: {error.strerror or error}") from error


def _close_to_others(path: Path, mode: int) -> None:
    """Where it is ours to close: somebody else's file is their business."""
    with suppress(FileNotFoundError, PermissionError):
        if os.lstat(path).st_mode & _OTHERS and not path.is_symlink():
            os.chmod(path, mode)


def _lock(path: Path) -> int:
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = _holder(descriptor)
        os.close(descriptor)
        raise FolderLocked(path, pid) from None
    except BaseException:
        os.close(descriptor)
        raise
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
    return descriptor


def _holder(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None
