"""Sharing one credit over several shards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane_gateway.session.credit import scarce, share

COUNTS = st.lists(st.integers(0, 50), min_size=2, max_size=8)


@given(st.integers(0, 200), COUNTS, st.data())
def test_never_more_than_the_credit_and_never_less_than_what_is_there(
    total: int, used: list[int], data: st.DataObject
) -> None:
    ready = data.draw(st.lists(st.booleans(), min_size=len(used), max_size=len(used)))
    credits = share(total, used, ready, data.draw(st.integers(0, 100)))
    free = [credit - held for credit, held in zip(credits, used, strict=True)]
    if total <= sum(used):
        assert max(credits) == 0
    else:
        assert sum(free) == total - sum(used)
        assert min(free) >= 0
        assert max(free) - min(free) <= 1


def test_what_cannot_be_shared_evenly_goes_to_those_with_something_ready() -> None:
    assert share(1, [0, 0, 0], [False, False, True], 0) == [0, 0, 1]
    assert share(2, [0, 0, 0], [True, False, True], 1) == [1, 0, 1]


def test_else_it_goes_round() -> None:
    turns = [share(1, [0, 0, 0], [False] * 3, turn) for turn in range(4)]
    assert turns == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize(
    ("total", "used", "expected"),
    [
        (3, [0, 0], False),
        (2, [0, 0], False),
        (1, [0, 0], True),
        (1, [1, 0], False),
        (5, [3, 1], True),
    ],
)
def test_scarce(total: int, used: list[int], expected: bool) -> None:
    assert scarce(total, used) is expected
