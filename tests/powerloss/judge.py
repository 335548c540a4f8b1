"""The judge: opens what a power cut left with the real store and the real recovery, and checks it.

The history up to the cut says what was promised. To it come the crash, the new owner, what it
finds, what it grants, how it answers publishes that were acknowledged before, and at last a dump
of everything that is stored. The checker decides.
"""

from __future__ import annotations

import logging
import time
from itertools import count
from pathlib import Path
from random import Random

import trio

from pushlane.wire.errors import PushlaneError
from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.dispatcher import open_dispatcher
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_history import event as history
from pushlane_history.checker import Checker
from pushlane_storage.damage import Damage
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueRow
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.store import SqliteStore
from tests.powerloss.backups import BackupJudge, Made
from tests.powerloss.clients import Book, Consumer, publish
from tests.powerloss.log import (
    BackupBegun,
    BackupMade,
    Created,
    Deleted,
    Deleting,
    Mark,
    Note,
)
from tests.powerloss.looking import buckets_of, left_in
from tests.powerloss.witness import Witness, identity
from tests.powerloss.workload import (
    FOLDER,
    LONG_MS,
    QUEUES,
    START,
    STEPS_OF,
    TENANT,
    unanswered,
)
from tests.running import runners_of, stats_now

LIMITS = Limits(reserve_bytes=0, readers=1)
FIRST_OP = 1_000_000_000
REPEATS = 6
PATIENCE_S = 10.0
SETTLE_S = 1.0


class Past:
    """What was said before the cut. It grows with the cuts of one log."""

    def __init__(self) -> None:
        self.events: list[history.Event] = []
        self.notes: list[Note] = []
        self.known: set[object] = set()
        self.backups: dict[str, Made] = {}

    def add(self, mark: Mark) -> None:
        if isinstance(mark, history.Event):
            self.events.append(mark)
            self.known.add(identity(mark))
        elif isinstance(mark, BackupBegun):
            self.backups[mark.backup] = Made(len(self.events))
        elif isinstance(mark, BackupMade):
            self.backups[mark.backup].confirmed = len(self.events)
        else:
            self.notes.append(mark)


class Judge:
    """One image, one judgement: what is wrong with it, in words."""

    def __init__(self, past: Past, rng: Random) -> None:
        self._past = past.events
        self._notes = past.notes
        self._known = past.known
        self._backups = past.backups
        self._rng = rng
        self._checker = Checker()
        self.faults: list[str] = []

    def run(self, folder: Path) -> list[str]:
        for event in self._past:
            self._checker.feed(event)
        for event in unanswered(self._past, self._cut):
            self._checker.feed(event)
        try:
            trio.run(self._judge, folder)
        except Exception as error:  # whatever the code under test raises is a finding
            self._fault(f"{type(error).__name__}: {error}")
        report = self._checker.finish()
        if not report.ok:
            self.faults.append(str(report))
        return self.faults

    def _fault(self, text: str) -> None:
        self.faults.append(text)

    @property
    def _cut(self) -> int:
        return self._past[-1].at if self._past else START

    async def _judge(self, folder: Path) -> None:
        begun, cut = time.monotonic(), self._cut
        clock = Clock(lambda: cut / 1000 + time.monotonic() - begun)

        def damaged(damage: Damage) -> None:
            self._fault(f"a damaged segment: {damage}")

        token = trio.lowlevel.current_trio_token()

        def fail_stop(error: BaseException) -> None:
            self._fault(f"the store failed: {error!r}")
            token.run_sync_soon(scope.cancel)  # a real process would be over now

        with trio.move_on_after(PATIENCE_S) as scope:
            store = await SqliteStore.open(
                folder / FOLDER, LIMITS, damaged=damaged, wall=clock.wall, fail_stop=fail_stop,
                steps=STEPS_OF[-1],
            )  # fmt: skip
            try:
                witness = Witness(store, "judge", self._checker.feed, clock.wall, self._known)
                rows = self._expected(await witness.catalog.list(TENANT, "", 1_000))
                await self._serve(witness, clock, rows)
                for row in rows:
                    await self._dump(witness, clock, row)
            finally:
                await store.close()
            backups = BackupJudge(self._past, self._notes, clock, self._fault)
            for name, made in self._backups.items():
                await backups.judge(folder, name, made)
        if scope.cancelled_caught and not self.faults:
            self._fault(f"not done after {PATIENCE_S} s")

    def _expected(self, rows: list[QueueRow]) -> list[QueueRow]:
        """The queues that must be there and can be opened."""
        there = {row.name: row for row in rows}
        certain: dict[str, bool | None] = {}
        for note in self._notes:
            certain[note.queue] = {Created: True, Deleting: None, Deleted: False}[type(note)]
        for name, exists in certain.items():
            if exists and (name not in there or there[name].deleting):
                self._fault(f"queue {name} was created, and is gone")
            if exists is False and name in there:
                self._fault(f"queue {name} was deleted, and is there")
        order = [*QUEUES, *sorted(there.keys() - QUEUES.keys())]
        return [there[name] for name in order if name in there and not there[name].deleting]

    # Serving

    async def _serve(self, witness: Witness, clock: Clock, rows: list[QueueRow]) -> None:
        numbers = count()
        book = Book(self._checker.feed, clock.wall, FIRST_OP)
        async with open_dispatcher(
            witness, clock=clock, chance=self._rng.random, owner="judge",
            prefix=lambda: f"judge.{next(numbers)}",
        ) as dispatcher:  # fmt: skip
            queues = {}
            for row in rows:
                try:
                    queues[row.name] = await dispatcher.open(TENANT, row.name)
                except PushlaneError as error:
                    self._fault(f"queue {row.name} can't be opened: {error}")
            if "work" in queues:
                self._repeat(book, queues["work"])
            for name, queue in queues.items():
                for runner in runners_of(queue):
                    Consumer(book, runner, name, f"judge-{name}", 1_000, 60_000)
            with trio.move_on_after(SETTLE_S):
                while not all(map(_idle, queues.values())):  # noqa: ASYNC110  (nobody tells us)
                    await trio.sleep(0.001)

    def _repeat(self, book: Book, queue: OpenQueue) -> None:
        """Publish again what was acknowledged: it must be recognised, acked meanwhile or not."""
        asked: dict[int, history.Publish] = {}
        done: dict[str, history.Publish] = {}
        for event in self._past:
            if isinstance(event, history.Publish) and (event.dedup or event.producer):
                asked[event.op] = event
            elif isinstance(event, history.Published) and event.op in asked:
                done[asked[event.op].uid] = asked[event.op]
        young = [e for e in done.values() if self._cut - e.at < LONG_MS // 2]
        picked = young[-2:] + self._rng.sample(young, min(REPEATS, len(young)))
        messages = [
            Message(
                e.uid.encode(), book.wall(), key=e.key, dedup=e.dedup, producer=e.producer,
                producer_seq=e.producer_seq or 0,
            )
            for e in {e.uid: e for e in picked}.values()
        ]  # fmt: skip
        if messages:
            publish(book, queue, messages)

    # Looking

    async def _dump(self, witness: Witness, clock: Clock, row: QueueRow) -> None:
        left: dict[str, str] = {}
        epoch = witness.epoch + 1
        async for key, found in buckets_of(witness.store, row, epoch, clock):
            left |= await left_in(witness, key, found)
        dump = history.Stored(clock.wall(), row.name, list(left), list(left.values()))
        self._checker.feed(dump)


def _idle(queue: OpenQueue) -> bool:
    """Nothing is on its way, and everything that can be granted is."""
    stats = stats_now(queue)
    held = stats.reserved + stats.leased + stats.delayed + stats.retrying + stats.blocked
    return not stats.pending and not stats.leaving and held == stats.stored


def quiet_logs() -> None:
    """What a dispatcher says of queues that it can't open is in the faults."""
    logging.disable(logging.CRITICAL)
