"""One life of a real store and a real dispatcher on a disk that may fail, with all their clients.

`python -m tests.faults.workload FOLDER --seed N --life K --history FILE --control FILE`, under the
library of faults. It is the workload of the power-loss test, told by a notebook, and ready for a
store that says no. It ends in one of four ways: in good order, by the store's own hand when nothing
is certain any more, because the folder can't be opened, or in one that nobody planned.

The clock runs fast, so that what is repeated after a pause is repeated within the test.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import trio
from trio.testing import MockClock

from pushlane.wire.errors import Unavailable
from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.dispatcher import open_dispatcher
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.repeat import until_done
from pushlane_history import event as history
from pushlane_storage.errors import OpenError
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.store import SqliteStore
from tests.faults.control import Control
from tests.faults.notebook import Notebook, read_notebook
from tests.faults.plants import PLANTS
from tests.powerloss.clients import Book
from tests.powerloss.log import Mark
from tests.powerloss.witness import Witness, identity
from tests.powerloss.workload import (
    BOUNDS,
    QUEUES,
    START,
    TENANT,
    Run,
    queue_set,
    real_sleep,
    unanswered,
)

ROUNDS, AFTER = 20, 8
"""Rounds on a disk that may be too small, and after somebody has made room."""
RATE = 30.0
"""Seconds of the dispatcher in one of ours."""
OPENINGS = 20
"""Tries to open the queues, for a store that can't be read."""
QUIET = 300
"""Looks at whether all is answered, five milliseconds apart."""

STUCK_S = 40
"""A life that takes longer says where it hangs, and ends."""

LIFTED = "disk.room_made"
"""The fault that is none: from here on there is room."""

GOOD = 0
STOPPED = os.EX_IOERR
"""By the store: see pushlane_storage.sqlite.writer."""
CLOSED = os.EX_UNAVAILABLE
"""The folder can't be opened, and this process says why."""

LIMITS = Limits(
    checkpoint_bytes=100 << 10, finish_bytes=50 << 10, reserve_bytes=60 << 10, readers=1,
    spare_bytes=16 << 10, vacuum_bytes=16 << 10, sweep_bytes=4 << 10, sweep_rows=10,
    idle_ms=2, tidy_ms=20, writer_cache_bytes=64 << 10, reader_cache_bytes=16 << 10,
)  # fmt: skip
"""Small, so that the log is copied often, little is read from memory, and a full disk goes through
all that it can: first the reserve is left, then nothing."""


class PatientWitness(Witness):
    """What it has to read itself it reads until it can."""

    async def _found(self, *args: Any) -> None:
        found = super()._found
        await until_done(lambda: found(*args), Settings())

    async def meet_queues(self) -> bool:
        """Learn the names of all queues; False when the store can't be read for long."""
        with trio.move_on_after(30):
            await until_done(lambda: self.catalog.list(TENANT, "", 1_000), Settings())
            return True
        return False


class FaultyRun(Run):
    """Asks for things that it may not get."""

    async def open_patiently(self, mark: Callable[[Mark], None]) -> bool:
        for _ in range(OPENINGS):
            if await attempt(lambda: self.open(mark)):
                return True
            await real_sleep(0.005)
        return False

    async def rounds(self, number: int) -> None:
        for _ in range(number):
            await attempt(self._step)
            await real_sleep(self.rng.choice((0.0002, 0.001, 0.003)))

    async def _step(self) -> None:
        self.step()

    async def calm(self) -> None:
        """Until every answer is there, or so long that there will be none."""
        for _ in range(QUIET):
            if not any(consumer.unanswered for consumer in self.consumers):
                return
            await real_sleep(0.005)


async def attempt(action: Callable[[], Awaitable[object]]) -> bool:
    """Do it, or be told that it can't be done now."""
    try:
        await action()
    except Unavailable:
        return False
    return True


async def live(folder: Path, seed: int, life: int, path: Path, control: Control) -> None:
    rng = Random(f"faults/{seed}/{life}")
    mark = Notebook(path)
    events = [note for note in read_notebook(path) if isinstance(note, history.Event)]
    begun = max((event.at for event in events), default=START - 100) + 100
    clock = Clock(lambda: begun / 1000 + trio.current_time())
    for event in unanswered(events, clock.wall()):
        mark(event)
    store = await SqliteStore.open(folder, LIMITS, randbytes=rng.randbytes)
    node, numbers = f"n{life}", count()
    witness = PatientWitness(store, node, mark, clock.wall, map(identity, events))
    async with open_dispatcher(
        witness, clock=clock, bounds=BOUNDS, chance=rng.random, owner=node,
        prefix=lambda: f"r{life}.{next(numbers)}",
    ) as dispatcher:  # fmt: skip
        if life == 0:
            for name, config in QUEUES.items():
                mark(queue_set(clock.wall(), name, config))
            mark(history.Allow(clock.wall(), "work.dead", "redriven"))
        book = Book(mark, clock.wall, first_op=life * 1_000_000)
        run = FaultyRun(life, rng, book, dispatcher)
        opened = await witness.meet_queues() and await run.open_patiently(mark)
        if opened:
            await run.rounds(ROUNDS // 2)
            await attempt(lambda: run.temporary(mark, f"temporary{life}"))
            await run.rounds(ROUNDS // 2)
        control.limit(0)
        mark(history.Fault(clock.wall(), LIFTED))
        if opened or (await witness.meet_queues() and await run.open_patiently(mark)):
            await run.rounds(AFTER)
            await run.calm()
    mark(history.Crash(clock.wall(), node, clean=True))
    await store.close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--life", type=int, required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--control", type=Path, required=True)
    parser.add_argument("--plant", default="")
    args = parser.parse_args()
    if args.plant:
        PLANTS[args.plant]()
    control = Control(args.control)
    clock = MockClock(rate=RATE)
    faulthandler.dump_traceback_later(STUCK_S, exit=True)
    try:
        trio.run(live, args.folder, args.seed, args.life, args.history, control, clock=clock)
    except OpenError as error:
        print(error, file=sys.stderr)
        return CLOSED
    return GOOD


if __name__ == "__main__":
    sys.exit(main())
