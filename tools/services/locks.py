"""Locks between processes. The kernel lets go of them when a process ends, however it ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Wait for a lock file, and hold it. Only who holds it alone may remove the file."""
    held = _take(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(held)


def _take(path: Path, how: int) -> int:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # the folder was removed just now
            held = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(held, how)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(held), path.stat()):
                    return held
            os.close(held)  # it was removed while we waited


def is_held(path: Path) -> bool:
    """Whether anybody holds it now."""
    probe = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(probe)
    return False
