"""The receipts of one subscription, as runs.

Receipt numbers are granted in order and mostly settled in order, so ten thousand leases are often
one run. Granting or releasing a run costs the same however long it is; only a release in the
middle of a run leaves two behind.
"""

from bisect import bisect_right
from collections.abc import Iterator

import msgspec

from pushlane_leases.interface import LeaseRun


class Runs:
    """Disjoint runs of one prefix, by receipt number."""

    __slots__ = ("_firsts", "all")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self.all: list[LeaseRun] = []

    def __len__(self) -> int:
        """How many runs there are (not how many receipts)."""
        return len(self.all)

    def __iter__(self) -> Iterator[LeaseRun]:
        return iter(self.all)

    def put(self, run: LeaseRun) -> int:
        """Remember a run, and say how many more there are; what was known of its numbers goes."""
        runs = self.all
        if runs and run.n < runs[-1].n + runs[-1].count:
            return self._splice(run.n, last_of(run), [run])
        runs.append(run)
        self._firsts.append(run.n)
        return 1

    def cut(self, low: int, high: int) -> int:
        """Forget numbers low..high, as far as they are known; says how many more runs there are."""
        runs = self.all
        if len(runs) == 1 and low <= runs[0].n and runs[0].n + runs[0].count <= high + 1:
            runs.clear()
            self._firsts.clear()
            return -1
        return self._splice(low, high, [])

    def expire(self, now: int) -> None:
        self.all = [run for run in self.all if run.deadline > now]
        self._firsts = [run.n for run in self.all]

    def _splice(self, low: int, high: int, new: list[LeaseRun]) -> int:
        assert low <= high
        firsts, runs = self._firsts, self.all
        before = len(runs)
        begin = max(bisect_right(firsts, low) - 1, 0)
        if begin < len(runs) and last_of(runs[begin]) < low:
            begin += 1
        end = bisect_right(firsts, high, begin)  # begin..end are the runs that low..high touches
        if begin < end:
            head, tail = runs[begin], runs[end - 1]
            if head.n < low:
                new = [_part(head, head.n, low - 1), *new]
            if last_of(tail) > high:
                new = [*new, _part(tail, high + 1, last_of(tail))]
        runs[begin:end] = new
        firsts[begin:end] = [run.n for run in new]
        return len(runs) - before


def last_of(run: LeaseRun) -> int:
    """The last receipt number of a run."""
    return run.n + run.count - 1


def _part(run: LeaseRun, low: int, high: int) -> LeaseRun:
    seq = run.seq + low - run.n
    return msgspec.structs.replace(run, n=low, seq=seq, count=high - low + 1)
