"""`pushlane store copy` with a bomb in it.

The process kills itself with SIGKILL when it comes to a point for the N-th time (from 1). Progress
is noted after every few units, so that there is something to go on from.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pushlane import cli
from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.slots import NOBODY
from pushlane_storage.copy import run, walk
from pushlane_storage.copy.cassandra_target import CassandraTarget
from pushlane_storage.copy.sqlite_target import SqliteTarget
from pushlane_storage.copy.transfer import Transfer
from pushlane_storage.copy.verification import Verification
from tests.storage.copy.tools import QUICK

GROUP_UNITS = 3


class Bomb:
    def __init__(self, times: int) -> None:
        self._left = times

    def count(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, owner: Any, name: str, when: Callable[..., bool] = lambda *_: True) -> None:
        self._wrap(owner, name, when, early=True)

    def after(self, owner: Any, name: str, when: Callable[..., bool] = lambda *_: True) -> None:
        self._wrap(owner, name, when, early=False)

    def _wrap(self, owner: Any, name: str, when: Callable[..., bool], *, early: bool) -> None:
        plain = getattr(owner, name)

        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            if early and when(*args):
                self.count()
            answer = await plain(*args, **kwargs)
            if not early and when(*args):
                self.count()
            return answer

        setattr(owner, name, wrapped)


def _opens_slot(_: object, change: Any, __: object) -> bool:
    return bool(change.table.name == "slots" and change.row.get("process") == NOBODY)


def plant(point: str, times: int) -> None:
    bomb = Bomb(times)
    if point == "begun":  # the record is there, and nothing else
        bomb.after(SqliteTarget, "begin")
        bomb.after(CassandraTarget, "begin")
    elif point == "half a unit":
        bomb.before(Transfer, "_move_log")
    elif point == "unit":
        bomb.after(Transfer, "move")
    elif point == "noted":
        bomb.after(SqliteTarget, "note")
        bomb.after(CassandraTarget, "note")
    elif point == "verified":
        bomb.after(Verification, "run")
    elif point == "named":  # before the file gets its name
        rename = Path.rename

        def renamed(self: Path, target: Path) -> Path:
            bomb.count()
            return rename(self, target)

        Path.rename = renamed  # type: ignore[method-assign,assignment]
    elif point == "opened":  # some slots are open to servers, and some are not
        bomb.after(Decisions, "decide", _opens_slot)
    elif point == "finished":
        bomb.after(SqliteTarget, "finish")
        bomb.after(CassandraTarget, "finish")
    else:
        raise AssertionError(point)


def run_until_killed(point: str, times: int, source: str, target: str) -> None:
    """In a child, which never comes back."""
    plant(point, times)
    walk.GROUP_UNITS = GROUP_UNITS
    setattr(run, "Limits", lambda: QUICK)  # noqa: B010
    sys.argv = ["pushlane", "store", "copy", source, target]
    cli.main()


def main() -> None:
    """Each run in a process of its own, one after the other; prints how each of them ended."""
    for point, times, source, target in msgspec.json.decode(sys.argv[1]):
        child = os.fork()  # nothing runs here yet but this thread
        if child == 0:
            run_until_killed(point, times, source, target)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
