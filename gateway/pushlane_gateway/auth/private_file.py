"""Small files that only their owner may read, and that a crash leaves old or new, never torn.

A new version is written beside the old one, fsynced, and renamed over it; then the folder is
fsynced, because the name is part of the folder. When root writes for a server that runs as
somebody else, the file goes to whom the old one, or else the folder, belongs: it would be
unreadable otherwise.

That somebody may write into the folder. So what is written or locked here is never a link: root
would follow it to any file of the machine, and hand that over.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PRIVATE = 0o600
PRIVATE_FOLDER = 0o700
MAX_BYTES = 16 << 20
"""What is larger is not read: 10,000 keys with 64 rules each have room."""


class FileTooLarge(OSError):
    """A file that can't be one of ours."""


class NotOurFile(OSError):
    """A link, or no plain file: somebody put it there."""


def write_private(path: Path, content: bytes) -> None:
    """Put the content into the file, durably and at once. Its folder must be there."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    try:
        try:
            _hand_over(descriptor, path)
            _write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(draft, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft)
        raise
    sync_folder(path.parent)


def read_bounded(path: Path, *, follow: bool = True) -> tuple[bytes, os.stat_result]:
    """A file's content, and what the system said of that very file before it was read.

    Before, so that a change while it is read shows as one when the file is looked at again.
    """
    with open(path, "rb", opener=None if follow else _open_no_link) as file:
        status = os.fstat(file.fileno())
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise FileTooLarge(f"it has more than {MAX_BYTES} bytes")
    return content, status


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time reads, changes and writes this file.

    The lock is a file of its own beside it, which stays: the file itself is replaced with every
    change, and a lock on the old one would lock nothing.
    """
    lock = path.with_name(f"{path.name}.lock")
    descriptor = _open_no_link(lock, os.O_RDWR | os.O_CREAT)
    try:
        _hand_over(descriptor, lock)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make_folder(path: Path, mode: int = PRIVATE_FOLDER) -> None:
    """Make a folder for its owner alone, and those above it, durably."""
    if path.is_dir():
        return
    make_folder(path.parent, 0o777)
    path.mkdir(mode, exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _open_no_link(path: str | Path, flags: int) -> int:
    """A plain file of one name, or one that is made; never what a link leads to."""
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, PRIVATE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotOurFile(error.errno, "it is a link: name the file itself", str(path)) from None
        raise
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return descriptor
    os.close(descriptor)
    raise NotOurFile(errno.EINVAL, "it is not a plain file with one name", str(path))


def _hand_over(descriptor: int, path: Path) -> None:
    if os.geteuid() != 0:
        return
    try:
        model = os.lstat(path)
    except FileNotFoundError:
        model = os.stat(path.parent)
    os.fchown(descriptor, model.st_uid, model.st_gid)
