"""One service for all processes of a test run: the first starts it, the last one out stops it.

Every user holds a shared lock. A keeper process (`keeper.py`) runs the service and waits for that
lock alone: it gets it when the last user let go, or died. So nothing is counted, and nothing is
left behind.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from tools.services.cassandra_files import ROOT
from tools.services.folder import is_held, locked
from tools.services.process import CannotStart

POLL_SECONDS = 0.05


class Service(msgspec.Struct, frozen=True):
    """Where a shared service is."""

    hosts: list[str]
    port: int
    pid: int
    """Of its first process."""

    @property
    def redis_url(self) -> str:
        return f"redis://{self.hosts[0]}:{self.port}"

    def cassandra_url(self, keyspace: str) -> str:
        return f"cassandra://{','.join(self.hosts)}:{self.port}/{keyspace}"


class Place:
    """The files that the users of one service and its keeper meet at."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.start = folder / f"{kind}.start"
        """Held by whoever looks whether to start it."""
        self.users = folder / f"{kind}.users"
        self.keeper = folder / f"{kind}.keeper"
        self.log = folder / f"{kind}.keeper.log"
        self.address = folder / f"{kind}.json"
        """There while it serves."""


@contextmanager
def shared_service(kind: str, folder: Path) -> Iterator[Service]:
    """A service (see `keeper.KINDS`) for all who name the same folder."""
    folder.mkdir(parents=True, exist_ok=True)
    place = Place(kind, folder)
    with ExitStack() as held:
        with locked(place.start):
            # A keeper that is about to stop its service has this lock: wait until it is gone.
            held.enter_context(locked(place.users, shared=True))
            if not (place.address.exists() and is_held(place.keeper)):
                place.address.unlink(missing_ok=True)
                _start_keeper(place)
            service = msgspec.json.decode(place.address.read_bytes(), type=Service)
        yield service


def _start_keeper(place: Place) -> None:
    with place.log.open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tools.services.keeper", place.kind, str(place.folder)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    while not place.address.exists():
        if keeper.poll() is not None:
            raise CannotStart(place.log.read_text(errors="replace"))
        time.sleep(POLL_SECONDS)
    # It may outlive this process, for others may use the service: nobody here waits for it.
    keeper.returncode = 0
