"""The store's folder: made durably, and locked for as long as it is served.

A folder that a crash makes vanish takes everything in it along, so whatever is created here is
followed by an fsync of the folder that it stands in.
"""

import fcntl
import os
from pathlib import Path

from pushlane_storage.sqlite.errors import FolderLocked, FolderUnusable

DATABASE = "pushlane.db"
LOCK = "lock"
RESTORING = "restoring.db"
"""What becomes the database when a restore has come to its end."""
COPYING = "copying.db"
"""The same of a copy from another store."""


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
        sync_folder(self.path)

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
        return Folder(path, _lock(path))
    except OSError as error:
        raise FolderUnusable(f"{path} can't be used: {error.strerror or error}") from error


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_size(path: Path) -> int:
    """In bytes; 0 when there is no such file."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, durably."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def _lock(path: Path) -> int:
    descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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
