"""Latency histograms that add up: fixed bins over milliseconds, a quarter of a power of two wide.

The bins never change, so histograms of any minutes, nodes and queues can be added bin by bin, and a
percentile of the sum is at most a fifth off.
"""

_EXACT = 8
"""Below this every millisecond has a bin of its own."""
BINS = 4 * 28
"""The last bin takes whatever is longer: a value of 2 ** 30 ms is twelve days."""


def bin_of(ms: int) -> int:
    """The bin of a duration; one that a clock makes negative counts as 0."""
    if ms < _EXACT:
        return max(ms, 0)
    power = ms.bit_length() - 1
    return min(4 * (power - 1) + (ms >> (power - 2) & 3), BINS - 1)


def bounds_of(number: int) -> tuple[int, int]:
    """The shortest duration of a bin, and the first one that is too long for it."""
    if number < _EXACT:
        return number, number + 1
    power, quarter = number // 4 + 1, number % 4
    return (4 + quarter) << (power - 2), (5 + quarter) << (power - 2)
