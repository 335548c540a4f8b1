import itertools

from hypothesis import given
from hypothesis import strategies as st

from pushlane_storage.usage import BINS, bin_of, bounds_of


@given(st.integers(0, (1 << 29) - 1))
def test_each_duration_lies_in_its_bin(ms: int) -> None:
    low, high = bounds_of(bin_of(ms))
    assert low <= ms < high
    assert high - low <= max(1, low // 4)


def test_bins_follow_each_other() -> None:
    ends = [bounds_of(number) for number in range(BINS)]
    assert ends[0][0] == 0
    assert all(high == low for (_, high), (low, _) in itertools.pairwise(ends))


def test_what_is_too_short_or_too_long() -> None:
    assert bin_of(-5) == 0
    assert bin_of(1 << 40) == BINS - 1
