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

from pushlane_storage.sqlite.errors import FolderLocked, FolderUnusable

DATABASE = "pushlane.db"
LOCK = "lock"
RESTORING = "restoring.db"
"""What becomes the database when a restore has come to its end."""
COPYING = "copying.db"
"""The same of a copy from another store."""
PRIVATE = 0o600
PRIVATE_FOLDER = 0o700

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
        if next(path.iterdir(), None) is None:
            _close_to_others(path, PRIVATE_FOLDER)
        lock = _lock(path)
        for name in (LOCK, DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"):
            _close_to_others(path / name, PRIVATE)
        return Folder(path, lock)
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


def make_folder(path: Path, mode: int = PRIVATE_FOLDER) -> None:
    """Make a folder, and those above it, durably."""
    if path.is_dir():
        return
    make_folder(path.parent, 0o777)
    path.mkdir(mode, exist_ok=True)
    sync_folder(path.parent)


def make_file(path: Path) -> None:
    """Make an empty file that is for us alone, unless it is there. SQLite's own follow its mode."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))


def private_opener(path: str, flags: int) -> int:
    """For `open`: what it makes is for us alone."""
    return os.open(path, flags, PRIVATE)


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
