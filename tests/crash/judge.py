"""The verdict on a campaign: the checker's, and what its clients went through, in figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import msgspec

from pushlane_history import event as history
from pushlane_history.checker import Checker
from pushlane_history.rule import Report
from tests.crash.load import DEAD, queue_sets
from tests.crash.recorder import merged


class Seen(msgspec.Struct):
    """What happened to the clients."""

    messages: int = 0
    """Different ones that were asked to be stored."""
    confirmed: int = 0
    unknown: int = 0
    """Publishes whose outcome nobody knows."""
    duplicates: int = 0
    """Publishes that were answered with an earlier one's id."""
    deliveries: int = 0
    again: int = 0
    """Deliveries of what had been delivered before."""
    acked: int = 0
    dead: int = 0
    """Deliveries of dead letters."""
    verdicts: dict[str, int] = {}
    outages_ms: list[int] = []
    """From each kill to the first publish that was confirmed after the server was ready again."""


class Verdict(msgspec.Struct):
    report: Report
    seen: Seen


def judge(paths: Iterable[Path]) -> Verdict:
    checker, watcher = Checker(), Watcher()
    for event in _history(paths):
        checker.feed(event)
        watcher.watch(event)
    return Verdict(checker.finish(), watcher.seen())


def _history(paths: Iterable[Path]) -> Iterator[history.AnyEvent]:
    begin, *configured = next(events := merged(paths)), *queue_sets()
    return chain([begin, *configured], events)


class Watcher:
    """Counts."""

    def __init__(self) -> None:
        self._seen = Seen()
        self._uids: set[str] = set()
        self._granted: set[tuple[str, str]] = set()
        self._settles: dict[int, str] = {}
        self._verdicts: Counter[str] = Counter()
        self._down_at = 0
        self._waiting = False

    def watch(self, event: history.AnyEvent) -> None:
        seen = self._seen
        match event:
            case history.Publish():
                self._uids.add(event.uid)
            case history.Published():
                seen.confirmed += 1
                seen.duplicates += event.duplicate
                if self._waiting:
                    self._waiting = False
                    seen.outages_ms.append(event.at - self._down_at)
            case history.PublishFailed():
                seen.unknown += 1
            case history.Grant():
                self._grant(event)
            case history.Crash():
                self._down_at, self._waiting = event.at, False
            case history.Bound():
                self._waiting = True  # the restart was measured: it is ready
            case history.Settle():
                self._settles[event.op] = event.kind
            case history.Verdict():
                kind = self._settles.pop(event.op)
                self._verdicts[f"{kind} {event.result}"] += 1
            case _:
                pass

    def _grant(self, event: history.Grant) -> None:
        message = event.queue, event.id
        self._seen.deliveries += 1
        self._seen.again += message in self._granted
        self._seen.dead += event.queue in DEAD.values()
        self._granted.add(message)

    def seen(self) -> Seen:
        self._seen.messages = len(self._uids)
        self._seen.verdicts = dict(sorted(self._verdicts.items()))
        self._seen.acked = self._verdicts["ack ok"]
        return self._seen
