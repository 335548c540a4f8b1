"""The budget of those whom nobody knows: the one that keeps the most goes."""

from __future__ import annotations

from pushlane_dispatcher.core.places import Claim, Claims
from pushlane_gateway.listener.hub import FELL_BYTES, Budget
from pushlane_gateway.listener.listener import find_trim


class One:
    def __init__(self) -> None:
        self.cuts = 0

    def cut(self) -> None:
        self.cuts += 1


def test_what_is_held_is_counted_and_given_back() -> None:
    budget, one, other = Budget(100), One(), One()
    budget.hold(one, 30)
    budget.hold(other, 70)
    assert (budget.held, one.cuts, other.cuts) == (100, 0, 0)
    budget.hold(one, 10)
    budget.hold(other, 0)
    budget.hold(other, 0)
    assert (budget.held, one.cuts, other.cuts) == (10, 0, 0)


def test_the_largest_is_cut_whoever_asks() -> None:
    budget, small, large, new = Budget(100), One(), One(), One()
    budget.hold(small, 10)
    budget.hold(large, 60)
    budget.hold(new, 31)
    assert (small.cuts, large.cuts, new.cuts) == (0, 1, 0)
    assert budget.held == 41
    budget.hold(new, 95)
    assert (small.cuts, new.cuts) == (0, 1)
    budget.hold(large, 0)
    assert budget.held == 10


def claims(who: str) -> Claims:
    return (Claim("key", 50), Claim(who, 10))


def test_of_those_who_share_the_one_that_has_too_much_is_cut() -> None:
    budget, mine, theirs = Budget(1_000), [One() for _ in range(3)], One()
    budget.hold(theirs, 400)
    budget.hold(mine[0], 40, claims("mine"))
    budget.hold(mine[1], 60, claims("mine"))
    assert budget.held == 500
    budget.hold(mine[2], 10, claims("mine"))
    assert [one.cuts for one in (*mine, theirs)] == [0, 1, 0, 0]
    assert budget.held == 450
    budget.hold(mine[0], 45, claims("mine"))
    budget.hold(mine[0], 0, claims("mine"))
    budget.hold(mine[2], 0)
    assert [one.cuts for one in (*mine, theirs)] == [0, 1, 0, 0]
    assert budget.held == 400


def test_a_share_is_good_for_one_whatever_its_size() -> None:
    budget, one, other, key = Budget(1_000), One(), One(), One()
    budget.hold(one, 300, claims("mine"))
    budget.hold(key, 200, claims("other"))
    assert (one.cuts, key.cuts) == (0, 0)
    budget.hold(other, 1, claims("third"))
    assert (one.cuts, other.cuts, key.cuts) == (1, 0, 0), "the key's share is used up"
    budget.hold(key, 1_001, claims("other"))
    assert (key.cuts, budget.held) == (1, 1), "and all together is the end of it"


def test_it_says_when_much_was_given_back() -> None:
    budget, one = Budget(100 * FELL_BYTES), One()
    assert not budget.fell()
    budget.hold(one, 2 * FELL_BYTES)
    assert not budget.fell()
    budget.hold(one, 1)
    assert budget.fell()
    assert not budget.fell()


def test_trimming_can_be_called() -> None:
    find_trim()()
