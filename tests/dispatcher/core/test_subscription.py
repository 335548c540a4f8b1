"""A subscription's two semaphores, whose turn it is, and when to look at whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import Lane
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.subscription import Fair, Subscription, Timers

BOUNDS = Bounds(taken=7, settled_runs=2)


def make(credit: int = 10, *, prefix: str = "P", ack_none: bool = False) -> Subscription:
    return Subscription(prefix, "s", credit, 1_000, explicit=False, ack_none=ack_none)


def hold(subscription: Subscription, n: int, deadline: int) -> None:
    entry = Entry(n, Lane(4, 1), None, 64, State.LEASED, 0, n=n, deadline=deadline)
    subscription.held[n] = entry


# Credit and backoff


def test_each_held_message_takes_a_permit() -> None:
    subscription = make(3)
    assert subscription.free(BOUNDS) == 3
    hold(subscription, 1, 0)
    hold(subscription, 2, 0)
    assert subscription.free(BOUNDS) == 1
    del subscription.held[1]
    assert subscription.free(BOUNDS) == 2


def test_permits_in_backoff_are_not_free_until_it_is_over() -> None:
    subscription = make(5)
    subscription.penalize(200, 2)
    subscription.penalize(100, 1)
    assert (subscription.waiting, subscription.free(BOUNDS)) == (3, 2)
    subscription.pardon(99)
    assert subscription.free(BOUNDS) == 2
    subscription.pardon(100)
    assert subscription.free(BOUNDS) == 3
    subscription.pardon(300)
    assert subscription.free(BOUNDS) == 5


def test_who_is_away_or_has_unsubscribed_gets_nothing() -> None:
    away, closed = make(), make()
    away.away_until = 10
    closed.closed = True
    assert away.free(BOUNDS) == closed.free(BOUNDS) == 0


def test_without_acks_credit_is_ignored_but_for_a_pause() -> None:
    subscription = make(1, ack_none=True)
    assert subscription.free(BOUNDS) == 7
    subscription.taking = 7
    assert subscription.free(BOUNDS) == 0
    subscription.taking = 0
    subscription.credit = 0
    assert subscription.free(BOUNDS) == 0


def test_settled_receipts_are_remembered_up_to_a_bound() -> None:
    subscription = make()
    for low in (1, 10, 20):
        subscription.remember(low, low + 1, BOUNDS)
    assert list(subscription.settled) == [(10, 11), (20, 21)]


def test_the_next_check_is_the_first_thing_that_runs_out() -> None:
    subscription = make()
    assert subscription.next_check() is None
    subscription.away_until = 90
    assert subscription.next_check() == 90
    subscription.penalize(70, 1)
    assert subscription.next_check() == 70
    hold(subscription, 1, 80)
    hold(subscription, 2, 60)
    assert subscription.next_check() == 60


# Whose turn it is


def test_the_most_free_permits_first() -> None:
    fair = Fair()
    few, many = make(), make()
    fair.offer(few, 2)
    fair.offer(many, 5)
    assert fair.best() is many
    fair.offer(many, 1)
    assert fair.best() is few
    fair.offer(few, 0)
    assert fair.best() is many
    fair.offer(many, 0)
    assert fair.best() is None
    assert fair.takers == set()


def test_ties_in_turn() -> None:
    fair = Fair()
    all_three = [make(), make(), make()]
    for subscription in all_three:
        fair.offer(subscription, 5)
    served = []
    for _ in range(6):
        best = fair.best()
        assert best is not None
        served.append(best)
        fair.served(best)
        fair.offer(best, 5)
    assert served == all_three * 2


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 4)), max_size=300))
def test_the_best_is_always_one_of_those_with_the_most(offers: list[tuple[int, int]]) -> None:
    fair = Fair()
    subscriptions = [make() for _ in range(4)]
    free = dict.fromkeys(subscriptions, 0)
    for number, permits in offers:
        fair.offer(subscriptions[number], permits)
        free[subscriptions[number]] = permits
        best = fair.best()
        most = max(free.values())
        assert (best is None) == (most <= 0)
        assert best is None or free[best] == most
        assert fair.takers == {one for one, count in free.items() if count > 0}
        assert len(fair._heap) <= 4 * len(fair.takers) + 64


def test_old_offers_do_not_pile_up() -> None:
    fair = Fair()
    one, other = make(), make()
    fair.offer(other, 1_000)
    for permits in range(1, 500):
        fair.offer(one, permits)
    assert len(fair._heap) < 100
    assert fair.best() is other


# Timers


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50))), st.integers(0, 50))
def test_timers_find_whoever_is_due(watches: list[tuple[int, int]], now: int) -> None:
    timers = Timers()
    subscriptions = [make() for _ in range(4)]
    first: dict[Subscription, int] = {}
    for number, at in watches:
        subscription = subscriptions[number]
        timers.watch(subscription, at)
        first[subscription] = min(at, first.get(subscription, at))
    assert timers.next() == min(first.values(), default=None)
    due = timers.due(now)
    assert len(due) == len(set(due))
    assert set(due) == {subscription for subscription, at in first.items() if at <= now}
    rest = [at for at in first.values() if at > now]
    assert timers.next() == min(rest, default=None)


def test_whoever_was_due_can_be_watched_again() -> None:
    timers = Timers()
    subscription = make()
    timers.watch(subscription, 50)
    timers.watch(subscription, 10)
    assert timers.due(10) == [subscription]
    timers.watch(subscription, 50)
    assert timers.next() == 50
    assert timers.due(50) == [subscription]
    assert timers.next() is None


@pytest.mark.parametrize("later", [10, 11])
def test_a_later_time_changes_nothing(later: int) -> None:
    timers = Timers()
    subscription = make()
    timers.watch(subscription, 10)
    timers.watch(subscription, later)
    assert timers.next() == 10


def test_who_is_over_is_not_kept_until_its_last_deadline() -> None:
    timers = Timers()
    there = [make() for _ in range(20)]
    for subscription in there:
        timers.watch(subscription, 500)
    for _ in range(1_000):
        subscription = make()
        timers.watch(subscription, 1_000)
        timers.watch(subscription, 100)
        timers.forget(subscription)
        timers.forget(subscription)
    assert len(timers) <= 4 * 20 + 64
    assert timers.next() == 500
    assert timers.due(500) == there
    assert timers.next() is None
