"""A folder for the data of a service that nobody needs afterwards, and locks between processes.

The kernel lets go of locks when a process ends, however it ends.
"""

import fcntl
import os
import shutil
import sys
import tempfile
import time
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


MEMORY = Path("/dev/shm")
ROOM_BYTES = 4 << 30
"""A ring of three with its commit logs takes less than half of it."""
PREFIX = "pushlane-service-"
LOCK = "in-use"
KEEP_SECONDS = 24 * 3_600
"""How long logs of failures are kept."""


@contextmanager
def scratch_folder(*, on_disk: bool = False) -> Iterator[Path]:
    """In memory where there is room, for no test needs its data after a power cut.

    It is removed at the end. After an error it stays, without its data: somebody will want to
    read the logs in it.
    """
    place = Path(tempfile.gettempdir()) if on_disk else _place()
    _sweep(place)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    with locked(folder / LOCK):
        try:
            yield folder
        except BaseException:
            _keep_logs(folder)
            raise
        shutil.rmtree(folder)


def _keep_logs(folder: Path) -> None:
    for inside in folder.iterdir():
        if inside.is_dir():
            shutil.rmtree(inside, ignore_errors=True)
    if any(folder.glob("*.log")):
        print(f"logs are kept in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder)


def _place() -> Path:
    in_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    return MEMORY if in_memory else Path(tempfile.gettempdir())


def _sweep(place: Path) -> None:
    """Remove what processes left behind that were killed, and logs that nobody came for."""
    for folder in place.glob(f"{PREFIX}*"):
        lock = folder / LOCK
        if lock.exists() and not is_held(lock):
            has_data = any(one.is_dir() for one in folder.iterdir())
            if has_data or time.time() - lock.stat().st_mtime > KEEP_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
