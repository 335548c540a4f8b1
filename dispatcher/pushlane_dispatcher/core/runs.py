"""Runs: what stands in a row travels as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.core.effects import Run
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.life import State


def make_fresh_runs(entries: Sequence[Entry], deadline: int) -> list[Run]:
    """Deliveries of messages of one lane that all were granted for the first time."""
    first, count = entries[0], len(entries)
    if entries[-1].seq - first.seq != count - 1:
        return make_runs(entries, deadline)
    messages = [entry.message for entry in entries]
    return [
        Run(
            first.lane.number, first.seq, first.n, first.state is State.LEASED, 1, 0,
            first.fence, deadline,
            messages,  # type: ignore[arg-type]  # see Run.messages
        )
    ]  # fmt: skip


def make_runs(entries: Sequence[Entry], deadline: int) -> list[Run]:
    """Deliveries of granted messages: as few runs as they make."""
    runs: list[Run] = []
    run: Run | None = None
    lane, seq, n = None, -1, -1
    for entry in entries:
        started = entry.state is State.LEASED
        attempt = entry.attempts if started else entry.attempts + 1
        message = entry.message
        if (
            run is not None
            and entry.seq == seq
            and entry.n == n
            and entry.lane is lane
            and entry.fence == run.fence
            and attempt == run.attempt
            and started == run.started
            and entry.deliveries == run.deliveries
        ):
            run.messages.append(message)  # type: ignore[arg-type]  # see Run.messages
        else:
            lane = entry.lane
            run = Run(
                lane.number, entry.seq, entry.n, started, attempt, entry.deliveries,
                entry.fence, deadline, [message],  # type: ignore[list-item]
            )  # fmt: skip
            runs.append(run)
        seq = entry.seq + 1
        n = entry.n + 1
    return runs


def held_runs(entries: Iterable[Entry]) -> Iterator[Run]:
    """What a subscription holds: runs that end together."""
    for deadline, group in groupby(entries, attrgetter("deadline")):
        yield from make_runs(list(group), deadline)


def receipts_of(prefix: str, entries: Iterable[Entry]) -> list[ReceiptRun]:
    """The receipts of messages that one subscription holds."""
    return runs_of_numbers(prefix, [entry.n for entry in entries])


def runs_of_numbers(prefix: str, numbers: Sequence[int]) -> list[ReceiptRun]:
    """Receipt numbers as runs, in the order given."""
    runs: list[ReceiptRun] = []
    low = high = -1
    for n in numbers:
        if n != high + 1 or high < 0:
            if high >= 0:
                runs.append((prefix, low, high))
            low = n
        high = n
    if high >= 0:
        runs.append((prefix, low, high))
    return runs
