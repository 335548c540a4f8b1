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

    __slots__ = ("_firsts", "_runs")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._runs: list[LeaseRun] = []

    def __len__(self) -> int:
        """How many runs there are (not how many receipts)."""
        return len(self._runs)

    def __iter__(self) -> Iterator[LeaseRun]:
        return iter(self._runs)

    def put(self, run: LeaseRun) -> None:
        """Remember a run; what was known of its numbers is replaced."""
        self._splice(run.n, last_of(run), [run])

    def cut(self, low: int, high: int) -> None:
        """Forget numbers low..high, as far as they are known."""
        self._splice(low, high, [])

    def expire(self, now: int) -> None:
        self._runs = [run for run in self._runs if run.deadline > now]
        self._firsts = [run.n for run in self._runs]

    def _splice(self, low: int, high: int, new: list[LeaseRun]) -> None:
        assert low <= high
        firsts, runs = self._firsts, self._runs
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


def last_of(run: LeaseRun) -> int:
    """The last receipt number of a run."""
    return run.n + run.count - 1


def _part(run: LeaseRun, low: int, high: int) -> LeaseRun:
    seq = run.seq + low - run.n
    return msgspec.structs.replace(run, n=low, seq=seq, count=high - low + 1)
