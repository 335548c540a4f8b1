"""Only the reserve is left: publishes are refused, settles and drops go on, until there is room.

`python -m tests.faults.reserve FOLDER --history FILE --control FILE`, under the library of faults.
Every step says what it expects; the judge has the last word.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import count
from pathlib import Path

import msgspec
import trio
from trio.testing import MockClock

from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.dispatcher import open_dispatcher
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_history import event as history
from pushlane_storage.message import Message
from pushlane_storage.sqlite.store import SqliteStore
from tests.faults.control import Control
from tests.faults.notebook import Notebook
from tests.faults.workload import LIMITS, RATE
from tests.powerloss.clients import Book, Consumer, publish
from tests.powerloss.log import Created
from tests.powerloss.witness import Witness
from tests.powerloss.workload import BOUNDS, QUEUES, START, TENANT, queue_set, real_sleep
from tests.running import runners_of

QUEUE = "once"
CONFIG = msgspec.structs.replace(QUEUES["fast"], shards=1)
HELD = 70
"""Messages that are out when room runs short: some buckets full."""
RESERVE, LEFT = 400 << 10, 300 << 10
PATIENCE = 2_000
"""Looks for what must come, a millisecond apart."""


class Scene:
    def __init__(self, store: SqliteStore, queue: OpenQueue, mark: Notebook, clock: Clock) -> None:
        self.store = store
        self.queue = queue
        self.answers: list[history.Event] = []
        self._mark = mark
        self._uids = count()
        self.book = Book(self._record, clock.wall)

    def _record(self, event: history.Event) -> None:
        self._mark(event)
        if isinstance(event, history.Published | history.PublishFailed | history.Verdict):
            self.answers.append(event)

    async def publish(self, number: int) -> list[str]:
        """What is answered to so many messages: `ok`, or the error's code."""
        self.answers.clear()
        wall = self.book.wall()
        batch = [Message(f"m{next(self._uids)}".encode(), wall) for _ in range(number)]
        publish(self.book, self.queue, batch)
        await until(lambda: len(self.answers) == number)
        return [getattr(answer, "code", "ok") for answer in self.answers]

    async def ack(self, consumer: Consumer) -> list[str]:
        self.answers.clear()
        held, consumer.held = consumer.held, []
        consumer._settle("ack", held)
        await until(lambda: len(self.answers) == len(held))
        return [getattr(answer, "result", "") for answer in self.answers]

    async def buckets(self) -> int:
        return len((await self.store.outline(runners_of(self.queue)[0].key)).buckets)

    async def play(self, control: Control, used: Callable[[], int]) -> None:
        consumer = Consumer(self.book, runners_of(self.queue)[0], QUEUE, "s", 2 * HELD, 600_000)
        assert await self.publish(HELD) == ["ok"] * HELD
        await until(lambda: len(consumer.held) == HELD)
        full = await self.buckets()
        assert full > 2

        control.limit(used() + LEFT)
        assert await self.publish(5) == ["unavailable"] * 5
        assert await self.ack(consumer) == ["ok"] * HELD
        for _ in range(PATIENCE):
            if await self.buckets() < full - 1 and not self.store.stats().waiting:
                break
            await real_sleep(0.001)
        assert await self.buckets() < full - 1, "drained buckets are dropped all the same"
        assert await self.publish(1) == ["unavailable"]
        assert self.store.stats().refused_full > 1
        assert not control.short, "what is left was enough"

        control.limit(0)
        assert await self.publish(5) == ["ok"] * 5
        await until(lambda: len(consumer.held) == 5)
        assert await self.ack(consumer) == ["ok"] * 5


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(PATIENCE):
        if condition():
            return
        await real_sleep(0.001)
    raise AssertionError("it does not happen")


async def live(folder: Path, path: Path, control: Control) -> None:
    mark = Notebook(path)
    clock = Clock(lambda: START / 1000 + trio.current_time())
    limits = msgspec.structs.replace(LIMITS, reserve_bytes=RESERVE)
    store = await SqliteStore.open(folder, limits)
    witness = Witness(store, "n0", mark, clock.wall)
    mark(queue_set(clock.wall(), QUEUE, CONFIG))
    numbers = count()
    async with open_dispatcher(
        witness, clock=clock, bounds=BOUNDS, owner="n0", prefix=lambda: f"r{next(numbers)}"
    ) as dispatcher:
        await dispatcher.create(TENANT, QUEUE, CONFIG)
        mark(Created(QUEUE))
        scene = Scene(store, await dispatcher.open(TENANT, QUEUE), mark, clock)
        await scene.play(control, lambda: sum(f.stat().st_size for f in folder.iterdir()))
    mark(history.Crash(clock.wall(), "n0", clean=True))
    await store.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--control", type=Path, required=True)
    args = parser.parse_args()
    control = Control(args.control)
    trio.run(live, args.folder, args.history, control, clock=MockClock(rate=RATE))


if __name__ == "__main__":
    main()
