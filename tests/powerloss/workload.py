"""The recorded run: a real store and a real dispatcher, and everything that clients ask of them.

`python -m tests.powerloss.workload FOLDER --seed N --life K`, under the recorder. A run has
several lives, each a process: some end in good order, some in the middle of whatever they do, and
the next one finds what is left. The second one migrates the folder. The clock is trio's mock clock,
moved by hand; the store's threads know nothing of it.

Every life makes a backup while it goes on: into a folder of its own below the watched one, so that
its files and syncs are recorded, too, with a mark before it is begun and one when it is confirmed.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import cast

import trio
from trio.testing import MockClock

from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_history import event as history
from pushlane_storage.interface import Backend
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueConfig
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.schema import STEPS, Step
from pushlane_storage.sqlite.store import SqliteStore
from tests.powerloss import plants
from tests.powerloss.clients import Book, Consumer, publish
from tests.powerloss.log import (
    BackupBegun,
    BackupMade,
    Created,
    Deleted,
    Deleting,
    Mark,
    Marker,
    marks,
    read_log,
)
from tests.powerloss.witness import Witness, identity
from tests.redriving import first_in_line
from tests.running import runners_of

START = 1_700_000_000_000
TENANT = "default"
FOLDER = "store"
BACKUPS = "backups"
ROUNDS = 26
KILLED = 7
"""How a life ends that does not end in good order."""

LONG_MS, SHORT_MS = 3_600_000, 1_500
"""Dedup windows: one that outlives the run, and one after which drained buckets are dropped."""

ENDLESS = 1_000
"""Attempts and deliveries where there are no dead letters: then messages are retried for ever."""

QUEUES: dict[str, QueueConfig] = {
    "work.dead": QueueConfig(
        max_attempts=ENDLESS, max_deliveries=ENDLESS, dead_letter="", dedup_window_ms=LONG_MS
    ),
    "work": QueueConfig(
        max_attempts=2, backoff_base_ms=50, backoff_max_ms=200, consumer_backoff_base_ms=10,
        consumer_backoff_max_ms=50, dedup_window_ms=LONG_MS, lease_ms=1_000,
    ),
    "fast": QueueConfig(
        max_attempts=ENDLESS, max_deliveries=ENDLESS, backoff_base_ms=20, backoff_max_ms=100,
        consumer_backoff_base_ms=10, consumer_backoff_max_ms=50, dedup_window_ms=SHORT_MS,
        dead_letter="", shards=2,
    ),
    "once": QueueConfig(dedup_window_ms=SHORT_MS, dead_letter=""),
}  # fmt: skip
"""The targets of transfers come first: they are opened first."""

BOUNDS = Bounds(
    window_messages=40, page_messages=8, segment_messages=6, flushes=3, bucket_ms=2_000,
    bucket_messages=20, checkpoint_rows=3, horizon_ms=500, transfer_retry_ms=50,
    expiry_sweep_ms=50, steal_ms=200,
)  # fmt: skip
"""Small, so that buckets roll, drain and are dropped, and logs are folded, all within seconds."""

LIMITS = Limits(
    checkpoint_bytes=160 << 10, finish_bytes=64 << 10, reserve_bytes=0, readers=1,
    spare_bytes=16 << 10, vacuum_bytes=16 << 10, sweep_bytes=4 << 10, sweep_rows=10,
    rebuild_free_bytes=64 << 10, rebuild_bytes=400 << 10, idle_ms=2, tidy_ms=20,
)  # fmt: skip
"""Small for the same reason: the log of the database is copied and started anew often."""


def _next_version(connection: sqlite3.Connection) -> None:
    """A migration like those to come: a new table, filled from an old one."""
    connection.execute("CREATE TABLE migrated AS SELECT * FROM segment")
    connection.execute("CREATE INDEX migrated_bucket ON migrated (bucket)")


STEPS_OF: tuple[Sequence[Step], ...] = (STEPS, (*STEPS, _next_version))
"""The migrations that the first life knows, and all others: the second one migrates the folder."""


class Run:
    """One life."""

    def __init__(self, life: int, rng: Random, book: Book, dispatcher: Dispatcher) -> None:
        self.life = life
        self.rng = rng
        self.book = book
        self.dispatcher = dispatcher
        self.count = 0
        self.producer_seq = 0
        self.published: list[tuple[Message, int]] = []
        """Those that may be repeated, with their lanes."""
        self.queues: dict[str, OpenQueue] = {}
        self.consumers: list[Consumer] = []

    async def open(self, mark: Callable[[Mark], None]) -> None:
        for name, config in QUEUES.items():
            await self.dispatcher.ensure(TENANT, name, config)
            if self.life == 0:
                mark(Created(name))
            self.queues[name] = await self.dispatcher.open(TENANT, name)
        self._attach("work", credit=6)
        self._attach("work", credit=3, explicit=True)
        self._attach("work.dead", credit=1)
        self._attach("fast", credit=12)
        self._attach("once", credit=4, ack_none=True)

    def _attach(
        self, name: str, credit: int, explicit: bool = False, ack_none: bool = False
    ) -> None:
        for runner in runners_of(self.queues[name]):
            session = f"s{self.life}.{len(self.consumers)}"
            self.consumers.append(
                Consumer(
                    self.book, runner, name, session, credit, explicit=explicit, ack_none=ack_none
                )
            )

    def step(self) -> None:
        draw = self.rng.random
        if draw() < 0.75:
            self._publish_work()
        if draw() < 0.7:
            batch = [self._message() for _ in range(self.rng.choice((1, 2, 5, 14)))]
            publish(self.book, self.queues["fast"], batch)
        if draw() < 0.3:
            publish(self.book, self.queues["once"], [self._message()])
        for consumer in self.consumers:
            if draw() < 0.6:
                consumer.act(self.rng)
        if draw() < 0.05:
            self._purge(self.rng.choice(("fast", "work.dead")))
        if draw() < 0.1:
            self._redrive()

    def _redrive(self) -> None:
        now = self.dispatcher.clock.now()
        for runner in runners_of(self.queues["work.dead"]):
            wanted = first_in_line(runner._shard, 3, "work", now)
            for lane, targets in wanted.items():
                runner.redrive(lane, targets)

    def _publish_work(self) -> None:
        rng = self.rng
        batch, lanes = [], []
        for _ in range(rng.choice((1, 1, 2, 4))):
            if self.published and rng.random() < 0.15:
                message, lane = rng.choice(self.published)
            else:
                message, lane = self._message(rich=True), 4
                if message.key is None and rng.random() < 0.2:
                    lane = rng.choice((0, 9))
                if message.dedup is not None or message.producer is not None:
                    self.published.append((message, lane))
            batch.append(message)
            lanes.append(lane)
        publish(self.book, self.queues["work"], batch, lanes)

    def _message(self, rich: bool = False) -> Message:
        self.count += 1
        uid, now, rng = f"m{self.life}.{self.count}", self.book.wall(), self.rng
        if not rich:
            return Message(uid.encode(), now)
        key = rng.choice("abc") if rng.random() < 0.3 else None
        dedup = producer = None
        seq = not_before = 0
        if rng.random() < 0.4:
            dedup = f"d-{uid}"
        elif rng.random() < 0.6:
            self.producer_seq += 1
            producer, seq = f"p{self.life}", self.producer_seq
        if key is None and rng.random() < 0.15:
            not_before = now + rng.choice((50, 400, 2_000))
        return Message(uid.encode(), now, False, key, None, dedup, producer, seq, not_before)

    def _purge(self, queue: str) -> None:
        self.book.record(history.Allow(self.book.wall(), queue, "purged"))
        for runner in runners_of(self.queues[queue]):
            runner.purge()

    async def temporary(self, mark: Callable[[Mark], None], name: str) -> None:
        """A queue that is made, used and deleted; every second one stays."""
        config = QueueConfig(dead_letter="")
        mark(queue_set(self.book.wall(), name, config))
        await self.dispatcher.create(TENANT, name, config)
        mark(Created(name))
        queue = await self.dispatcher.open(TENANT, name)
        publish(self.book, queue, [self._message(), self._message()])
        if self.rng.random() < 0.5:
            await real_sleep(0.004)
            mark(Deleting(name))
            await self.dispatcher.delete(TENANT, name)
            mark(Deleted(name))

    async def quiet(self) -> None:
        """Until every answer is there."""
        while any(consumer.unanswered for consumer in self.consumers):
            await real_sleep(0.001)


async def real_sleep(seconds: float) -> None:
    """Give the store's threads time; the mock clock stands still."""
    await trio.to_thread.run_sync(time.sleep, seconds)


async def live(folder: Path, seed: int, life: int, plant: str, log: Path) -> None:
    """One life: every second one is killed, the others end in good order."""
    rng = Random(f"{seed}/{life}")
    mark = Marker()
    past = [event for _, event in marks(read_log(log)) if isinstance(event, history.Event)]
    if past:  # the clock goes on where the life before ended
        mock = trio.lowlevel.current_clock()
        assert isinstance(mock, MockClock)
        mock.jump(max(event.at for event in past) / 1000 - START / 1000 + 0.1)
    clock = Clock(lambda: START / 1000 + trio.current_time())
    book = Book(mark, clock.wall, first_op=life * 1_000_000)
    node = f"n{life}"
    if life:
        for event in unanswered(past, clock.wall()):
            mark(event)
    numbers = count()
    async with open_store(folder, rng, plant, STEPS_OF[min(life, 1)]) as store:
        witness = Witness(store, node, mark, clock.wall, map(identity, past))
        async with open_dispatcher(
            witness, clock=clock, bounds=BOUNDS, chance=rng.random, owner=node,
            prefix=lambda: f"r{life}.{next(numbers)}",
        ) as dispatcher:  # fmt: skip
            if life == 0:
                for name, config in QUEUES.items():
                    mark(queue_set(clock.wall(), name, config))
                mark(history.Allow(clock.wall(), "work.dead", "redriven"))
            else:
                await witness.catalog.list(TENANT, "", 1_000)
            run = Run(life, rng, book, dispatcher)
            await run.open(mark)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(rounds, run, mark)
                await backed_up(store, folder.parent / BACKUPS / node, rng, mark)
            if (seed + life) % 2:
                os._exit(KILLED)
            await run.quiet()
        mark(history.Crash(clock.wall(), node, clean=True))


async def rounds(run: Run, mark: Callable[[Mark], None]) -> None:
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    for number in range(ROUNDS):
        run.step()
        if number in (ROUNDS // 3, 2 * ROUNDS // 3):
            await run.temporary(mark, f"temporary{run.life}.{number}")
        await real_sleep(run.rng.choice((0.0002, 0.001, 0.003)))
        clock.jump(run.rng.choice((0.001, 0.02, 0.1, 0.4)))


async def backed_up(
    store: Backend, target: Path, rng: Random, mark: Callable[[Mark], None]
) -> None:
    """A backup in the middle of it all. Where it begins is up to the disk."""
    await real_sleep(rng.choice((0.005, 0.02, 0.04)))
    mark(BackupBegun(target.name))
    await cast(SqliteStore, store).backup(target)
    mark(BackupMade(target.name))


def queue_set(now: int, name: str, config: QueueConfig) -> history.QueueSet:
    return history.QueueSet(
        now,
        name,
        config.max_attempts,
        config.max_deliveries,
        config.dedup_window_ms,
        config.overflow,
        config.dead_letter,
    )


def unanswered(past: list[history.Event], now: int) -> list[history.Event]:
    """The end of a life that was killed: nobody will answer what was asked of it."""
    events: list[history.Event] = []
    asked: dict[int, history.Event] = {}
    sessions: dict[str, None] = {}
    node, gone = "", True
    for event in past:
        match event:
            case history.Open():
                node, gone = event.node, False
            case history.Crash():
                gone = True
                sessions.clear()
            case history.Publish() | history.Settle():
                asked[event.op] = event
            case history.Published() | history.PublishFailed() | history.Verdict():
                asked.pop(event.op, None)
            case history.Subscribe():
                sessions[event.session] = None
    for op, request in asked.items():
        if isinstance(request, history.Publish):
            events.append(history.PublishFailed(now, op, "connection_lost"))
        else:
            events.append(history.Verdict(now, op, "unknown"))
    events += [history.SessionEnd(now, session) for session in sessions]
    if not gone:
        events.append(history.Crash(now, node))
    return events


@asynccontextmanager
async def open_store(
    folder: Path, rng: Random, plant: str, migrations: Sequence[Step]
) -> AsyncIterator[Backend]:
    async with plants.planted(plant) as change:
        store = await SqliteStore.open(folder, LIMITS, randbytes=rng.randbytes, steps=migrations)
        yield change(store)
        await store.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--life", type=int, required=True)
    parser.add_argument("--plant", default="")
    parser.add_argument("--log", type=Path, required=True)
    args = parser.parse_args()
    folder = args.folder / FOLDER
    trio.run(live, folder, args.seed, args.life, args.plant, args.log, clock=MockClock())


if __name__ == "__main__":
    main()
