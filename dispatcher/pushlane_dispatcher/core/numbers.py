"""One producer's newest sequence numbers, and where their messages stand.

Producers number their messages one after the other, and shards give out seqs one after the other:
so runs of both are kept, not single numbers, and a batch costs as much as one message. When many
producers publish by turns, each message is a run of its own: so runs are packed into an array,
three integers each, and past a bound the older ones no longer say where their messages stand.
Then those with numbers in a row are one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec import Struct


class Place(NamedTuple):
    """Where a message stands."""

    lane: int
    seq: int


SOMEWHERE = Place(-1, -1)
"""A message was stored with this number, or is taken for it, and nobody remembers where."""


class Run(Struct, frozen=True, gc=False):
    """`count` numbers from `low` on, whose messages stand from `seq` on."""

    low: int
    count: int
    lane: int
    seq: int

    @property
    def end(self) -> int:
        return self.low + self.count


_WIDTH = 3
_LANE_BITS = 4
_FEW = 16
"""Runs of which nothing is gained by coalescing them."""


class Numbers:
    __slots__ = ("_dense", "_runs", "count", "floor", "last_at", "owner")

    def __init__(self, now: int, owner: str = "") -> None:
        self.owner = owner
        self._runs = array("q")
        """By number, no two overlap: low, seq, count and lane in one (see `_pack`)."""
        self._dense = 0
        """With so many runs there was nothing to gain by coalescing them."""
        self.count = 0
        self.floor = 0
        """The greatest number that was forgotten; what is not above it is taken for a repeat."""
        self.last_at = now

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._runs) // _WIDTH

    def run(self, index: int) -> Run:
        low, seq, packed = self._runs[index * _WIDTH : (index + 1) * _WIDTH]
        return Run(low, packed >> _LANE_BITS, (packed & 15) - 1, seq)

    def runs(self) -> Iterator[Run]:
        """The lowest first."""
        return map(self.run, range(len(self)))

    def newest_runs(self) -> Iterator[Run]:
        """The highest first."""
        return map(self.run, reversed(range(len(self))))

    @property
    def end(self) -> int:
        """All numbers from here on are new."""
        runs = self._runs
        end = runs[-3] + (runs[-1] >> _LANE_BITS) if runs else 0
        return end if end > self.floor else self.floor + 1

    def find(self, number: int) -> Place | None:
        """Where the message with this number stands; None: it is new."""
        index = self._before(number)
        if index >= 0:
            run = self.run(index)
            if number < run.end:
                return SOMEWHERE if run.lane < 0 else Place(run.lane, run.seq + number - run.low)
        return SOMEWHERE if number <= self.floor else None

    def _before(self, number: int) -> int:
        """The last run that doesn't begin behind this number; -1: there is none."""
        runs = self._runs
        return bisect_right(range(len(self)), number, key=lambda n: runs[n * _WIDTH]) - 1

    def add(self, low: int, count: int, lane: int, seq: int) -> int:
        """Enter numbers that are not there yet; how many runs that makes more."""
        self.count += count
        runs = self._runs
        if runs:
            many = runs[-1] >> _LANE_BITS
            end = runs[-3] + many
            if low < end:
                return self._insert(low, count, lane, seq)
            if low == end and runs[-2] + many == seq and (runs[-1] & 15) - 1 == lane:
                runs[-1] += count << _LANE_BITS
                return 0
        runs.extend((low, seq, count << _LANE_BITS | lane + 1))
        return 1

    def _insert(self, low: int, count: int, lane: int, seq: int) -> int:
        index = self._before(low)
        if index >= 0:
            before = self.run(index)
            assert before.end <= low, "a number that is there already"
            if before.end == low and before.lane == lane and before.seq + before.count == seq:
                self._runs[index * _WIDTH + 2] += count << _LANE_BITS
                return 0
        at = (index + 1) * _WIDTH
        self._runs[at:at] = _pack(low, count, lane, seq)
        return 1

    def remove(self, number: int) -> None:
        """Take one number out: its message was never stored, or is not the newest one of it."""
        index = self._before(number)
        if index < 0 or number >= (run := self.run(index)).end:
            return
        before, after = number - run.low, run.end - number - 1
        rest = array("q")
        if before:
            rest += _pack(run.low, before, run.lane, run.seq)
        if after:
            rest += _pack(number + 1, after, run.lane, run.seq + before + 1)
        self._runs[index * _WIDTH : (index + 1) * _WIDTH] = rest
        self.count -= 1

    def forget_lowest(self, count: int) -> None:
        """Forget this many of the lowest run's numbers."""
        run = self.run(0)
        assert count <= run.count
        left = run.count - count
        rest = _pack(run.low + count, left, run.lane, run.seq + count) if left else array("q")
        self._runs[:_WIDTH] = rest
        self.count -= count
        self.floor = max(self.floor, run.low + count - 1)

    def coalesce(self, stored: Callable[[Run], int]) -> bool:
        """Make the older half of the runs fewer: forget where their messages stand.

        Not of those that are pending. False: there is nothing to gain.
        """
        many = len(self)
        if abs(many - self._dense) < _FEW:
            return False
        half = many // 2
        older: list[Run] = []
        for run in map(self.run, range(half)):
            if stored(run) == run.count:
                run = Run(run.low, run.count, -1, 0)
                if older and older[-1].lane < 0 and older[-1].end == run.low:
                    run = Run(older[-1].low, older.pop().count + run.count, -1, 0)
            older.append(run)
        packed = array("q")
        for run in older:
            packed += _pack(run.low, run.count, run.lane, run.seq)
        self._runs[: half * _WIDTH] = packed
        gained = many - len(self)
        if gained < _FEW:
            self._dense = len(self)
        return gained > 0


def _pack(low: int, count: int, lane: int, seq: int) -> array[int]:
    return array("q", (low, seq, count << _LANE_BITS | lane + 1))
