"""A long history of one server with many queues, each with its dead letters; clean, or broken.

Each pair of queues is a model of its own (`tests.history.model`). They share what a real
server's queues share: the process, its epochs, its crashes. Violations are planted among them, one
of each rule, as the checker's own tests have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count as numbers
from itertools import islice
from pathlib import Path
from random import Random

from pushlane_history.event import (
    Begin,
    Crash,
    Drained,
    Event,
    Fault,
    Open,
    Quiesce,
    write,
)
from tests.history.model import Model
from tests.history.test_checker import CASES
from tests.spark.auditing.histories import History, renamed

AT_ONCE = 50
"""Families whose events mix. The others come before them, or after."""
STEPS = 150
"""Of a family: about 180 events."""


class Family(Model):
    """The queues of one model. Owners come and go for all of them."""

    def __init__(self, number: int, epoch: int) -> None:
        self.label = number
        self.owner = epoch
        self._told = 1  # not how its history begins: there is one
        super().__init__(number)

    def open(self) -> None:
        self.epoch = self.owner

    def crash(self) -> None:
        """Not for itself."""

    takeover = crash

    def drain(self) -> None:
        """When all of a server is well is for the server to say."""

    def news(self) -> Iterator[Event]:
        fresh = self.history[self._told :]
        self._told = len(self.history)
        yield from renamed(fresh, self.label)


def busy_history(events: int, seed: int, *, crashes: int = 10) -> Iterator[Event]:
    """A clean history of about so many events."""
    return _run(events, seed, crashes, {})


def broken_history(events: int, seed: int, *, crashes: int = 10) -> Iterator[Event]:
    """The same with one violation of each rule in it. `drain` is the last: it is about the end."""
    return _run(events, seed, crashes, {rule: broken for rule, (_, broken) in CASES.items()})


def _run(events: int, seed: int, crashes: int, planted: dict[str, History]) -> Iterator[Event]:
    random = Random(seed)
    yield Begin(0, note=f"seed {seed}")
    yield Open(0, "n1", 1)
    before, after = _around_the_crash(planted)
    count, epoch, number = 0, 1, len(planted)
    families: list[Family] = []
    steps: dict[Family, int] = {}
    while count < events or families:
        if len(families) < AT_ONCE and count < events:
            number += 1
            families.append(Family(number, epoch))
            steps[families[-1]] = 0
        family = random.choice(families)
        steps[family] += 20
        _step(family, steps[family] >= STEPS)
        if steps[family] >= STEPS:
            families.remove(family)
        for event in family.news():
            count += 1
            yield event
        if count > epoch * events // (crashes + 1) and epoch <= crashes:
            yield from before
            before = []
            epoch += 1
            yield from _crash(families, epoch)
            yield from after
            after = []
    yield from _end("drain" in planted)


def _step(family: Family, is_last: bool) -> None:
    if is_last:
        family.finish()
    else:
        family.work(20)


def _crash(families: list[Family], epoch: int) -> Iterator[Event]:
    yield Fault(0, "crash")
    yield Crash(0, f"n{epoch - 1}")
    yield Open(0, f"n{epoch}", epoch)
    for family in families:
        family.owner = epoch
        family.change_owner()
        yield from family.news()


def _end(late: bool) -> Iterator[Event]:
    yield Quiesce(0, [], 100)
    yield Drained(101 if late else 100)


def _around_the_crash(planted: dict[str, History]) -> tuple[History, History]:
    """What is planted before the first crash, and after it: those that have a crash are cut."""
    before: History = []
    after: History = []
    for number, (rule, history) in enumerate(planted.items(), 1):
        if rule == "drain":
            continue
        part = before
        for event in renamed(history[1:], number):
            if isinstance(event, Crash | Open):
                part = after
            else:
                part.append(event)
    return before, after


def write_files(folder: Path, history: Iterable[Event], *, file_events: int) -> int:
    """A history as a recorder leaves it: files of a folder, in the order of their names."""
    folder.mkdir(parents=True, exist_ok=True)
    events = iter(history)
    written = 0
    for number in numbers():
        part = list(islice(events, file_events))
        if not part:
            return written
        written += len(part)
        with (folder / f"{number:06}.jsonl").open("wb") as file:
            write(file, part)
    raise AssertionError
