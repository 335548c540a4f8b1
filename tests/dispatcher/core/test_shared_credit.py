"""Sharing one credit over several shards."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pushlane_dispatcher.core.shared_credit import SharedCredit

COUNTS = st.lists(st.integers(0, 50), min_size=1, max_size=8)


@given(st.integers(0, 200), COUNTS, st.data())
def test_never_more_than_the_credit_and_never_less_than_what_is_there(
    total: int, used: list[int], data: st.DataObject
) -> None:
    shards = st.integers(0, len(used) - 1)
    shares = SharedCredit(total, data.draw(shards))
    for shard in data.draw(st.lists(shards)):
        shares.hungry(shard, data.draw(st.booleans()))
    credits = shares.deal(used)
    free = [credit - held for credit, held in zip(credits, used, strict=True)]
    if total < sum(used):
        assert max(credits) == 0
    else:
        assert sum(free) == total - sum(used)
        assert min(free) >= 0
        assert max(free) - min(free) <= 1


def test_what_is_left_over_stays_where_it_is_unless_somebody_starves() -> None:
    shares = SharedCredit(2, 2)
    assert shares.deal([0, 0, 0]) == [1, 0, 1]
    assert shares.deal([0, 0, 0]) == [1, 0, 1]
    shares.hungry(1, True)
    assert shares.deal([0, 0, 0]) == [0, 1, 1]


def test_who_starves_first_comes_first_and_keeps_its_place() -> None:
    shares = SharedCredit(1)
    shares.hungry(2, True)
    shares.hungry(1, True)
    shares.hungry(2, True)
    assert shares.deal([0, 0, 0]) == [0, 0, 1]
    shares.delivered(2)
    assert shares.deal([0, 0, 1]) == [0, 0, 1], "it keeps what it has used"
    shares.hungry(2, True)
    assert shares.deal([0, 0, 0]) == [0, 1, 0], "then the next one's turn comes"


def test_a_permit_that_is_not_needed_any_more_goes_on() -> None:
    shares = SharedCredit(1)
    shares.hungry(2, True)
    shares.hungry(1, True)
    shares.hungry(2, False)
    assert shares.deal([0, 0, 0]) == [0, 1, 0]
    shares.hungry(0, False)
    shares.delivered(0)
    shares.resumed()
    assert shares.deal([0, 0, 0]) == [1, 0, 0]


def test_shards_that_are_down_keep_what_they_hold_and_get_nothing() -> None:
    shares = SharedCredit(9)
    assert shares.deal([1, 2, 0], down={0}) == [1, 5, 3]
    assert shares.deal([1, 2, 0], down={0, 1, 2}) == [1, 2, 0]


def test_where_a_backoff_ends_the_permit_is_usable_at_once() -> None:
    assert SharedCredit(3).deal([1, 2, 0]) == [1, 2, 0]
