"""Retry: attempt n waits min(max, base · 2^(n-1)), with full jitter."""

from hypothesis import given
from hypothesis import strategies as st

from pushlane_dispatcher.core.backoff import ceiling, full_jitter

numbers = st.integers(1, 10**9)


def test_the_wait_doubles_up_to_its_maximum() -> None:
    waits = [ceiling(n, 1_000, 300_000) for n in range(1, 12)]
    assert waits[:4] == [1_000, 2_000, 4_000, 8_000]
    assert waits[9:] == [300_000, 300_000]


def test_who_has_not_failed_does_not_wait() -> None:
    assert ceiling(0, 1_000, 300_000) == 0
    assert full_jitter(0, 1_000, 300_000, 0.999) == 0


@given(numbers, numbers, numbers)
def test_the_ceiling_is_the_formula(failures: int, base: int, most: int) -> None:
    expected = min(most, base * 2 ** min(failures - 1, 64))
    assert ceiling(failures, base, most) == expected


@given(numbers, numbers, numbers, st.floats(0, 1, exclude_max=True))
def test_jitter_is_full(failures: int, base: int, most: int, chance: float) -> None:
    wait = full_jitter(failures, base, most, chance)
    top = ceiling(failures, base, most)
    assert 0 <= wait < top
    assert abs(wait - top * chance) < 1
