"""A folder for the data of a service that nobody needs afterwards."""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.services.locks import is_held, locked

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
