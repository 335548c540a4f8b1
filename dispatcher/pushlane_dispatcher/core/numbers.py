"""One producer's newest sequence numbers, and where their messages stand.

Producers number their messages one after the other, and shards give out seqs one after the other:
so runs of both are kept, not single numbers, and a batch costs as much as one message.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple


class Place(NamedTuple):
    """Where a message stands."""

    lane: int
    seq: int


class Run:
    """`count` numbers from `low` on, whose messages stand from `seq` on."""

    __slots__ = ("count", "lane", "low", "seq")

    def __init__(self, low: int, count: int, lane: int, seq: int) -> None:
        self.low = low
        self.count = count
        self.lane = lane
        self.seq = seq

    @property
    def end(self) -> int:
        return self.low + self.count

    def drop(self, count: int) -> None:
        """Forget the lowest numbers."""
        self.low += count
        self.seq += count
        self.count -= count


class Numbers:
    __slots__ = ("count", "floor", "last_at", "runs")

    def __init__(self, now: int) -> None:
        self.runs: list[Run] = []
        """By number; no two of them overlap."""
        self.count = 0
        self.floor = 0
        """The greatest number that was forgotten; what is not above it can't be judged."""
        self.last_at = now

    @property
    def end(self) -> int:
        """All numbers from here on are new."""
        return max(self.floor + 1, self.runs[-1].end if self.runs else 0)

    def find(self, number: int) -> Place | None:
        index = bisect_right(self.runs, number, key=_low) - 1
        if index < 0 or number >= self.runs[index].end:
            return None
        run = self.runs[index]
        return Place(run.lane, run.seq + number - run.low)

    def add(self, low: int, count: int, lane: int, seq: int) -> None:
        """Enter numbers that are not there yet."""
        self.count += count
        index = bisect_right(self.runs, low, key=_low)
        if index:
            before = self.runs[index - 1]
            assert before.end <= low, "a number that is there already"
            if before.end == low and before.lane == lane and before.seq + before.count == seq:
                before.count += count
                return
        self.runs.insert(index, Run(low, count, lane, seq))

    def remove(self, number: int) -> None:
        """Take one number out: its message was never stored, or is not the newest one of it."""
        index = bisect_right(self.runs, number, key=_low) - 1
        if index < 0 or number >= self.runs[index].end:
            return
        run = self.runs[index]
        before, after = number - run.low, run.end - number - 1
        rest = []
        if before:
            rest.append(Run(run.low, before, run.lane, run.seq))
        if after:
            rest.append(Run(number + 1, after, run.lane, run.seq + before + 1))
        self.runs[index : index + 1] = rest
        self.count -= 1

    def forget_lowest(self, count: int) -> None:
        """Forget this many of the lowest run's numbers."""
        run = self.runs[0]
        assert count <= run.count
        run.drop(count)
        self.count -= count
        self.floor = max(self.floor, run.low - 1)
        if not run.count:
            del self.runs[0]


def _low(run: Run) -> int:
    return run.low
