"""A set of integers as sorted, disjoint, inclusive ranges.

Acks come mostly in order, so a bucket of 20,000 settled messages is usually one range. Adding to
the end or next to a range costs O(log n); a hole in the middle shifts a list.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]


class Ranges:
    __slots__ = ("_highs", "_lows", "count")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []
        self.count = 0
        for low, high in ranges:
            self.add(low, high)

    def add(self, low: int, high: int) -> int:
        """Add low..high and say how many of them are new."""
        assert low <= high, f"{low}..{high} is no range"
        lows, highs = self._lows, self._highs
        first = bisect_left(highs, low - 1)  # first range that touches or follows low
        last = bisect_right(lows, high + 1, first)  # one past the last range that touches high
        if first == last:
            lows.insert(first, low)
            highs.insert(first, high)
            added = high - low + 1
        else:
            covered = sum(highs[first:last]) - sum(lows[first:last]) + last - first
            low, high = min(low, lows[first]), max(high, highs[last - 1])
            lows[first:last] = [low]
            highs[first:last] = [high]
            added = high - low + 1 - covered
        self.count += added
        return added

    def __contains__(self, value: int) -> bool:
        index = bisect_left(self._highs, value)
        return index < len(self._lows) and self._lows[index] <= value

    def __iter__(self) -> Iterator[Range]:
        return zip(self._lows, self._highs, strict=True)

    def __len__(self) -> int:
        """How many ranges there are (`count` is how many integers)."""
        return len(self._lows)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Ranges) and self._lows == other._lows and self._highs == other._highs
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ranges({list(self)})"

    def drop_first(self) -> None:
        """Forget the lowest range."""
        self.count -= self._highs.pop(0) - self._lows.pop(0) + 1

    def gaps(self, low: int, high: int) -> Iterator[Range]:
        """The ranges of low..high that are not in the set, in order."""
        index = bisect_left(self._highs, low)
        while low <= high:
            if index == len(self._lows) or self._lows[index] > high:
                yield low, high
                return
            if self._lows[index] > low:
                yield low, self._lows[index] - 1
            low = self._highs[index] + 1
            index += 1
