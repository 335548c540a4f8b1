from pushlane_dispatcher.shard.lease_guard import Breaker


def tripped(now: int = 0) -> Breaker:
    breaker = Breaker(failures=2, rest_ms=100)
    assert not breaker.failed(now)
    assert breaker.failed(now)
    return breaker


def test_closed_it_lets_calls_go() -> None:
    breaker = Breaker(2, 100)
    assert breaker.allows(0)
    assert not breaker.open


def test_it_opens_after_failures_in_a_row() -> None:
    breaker = tripped()
    assert breaker.open
    assert breaker.trips == 1
    assert not breaker.allows(99)


def test_a_success_between_failures_counts_from_the_start() -> None:
    breaker = Breaker(2, 100)
    breaker.failed(0)
    assert not breaker.succeeded()
    assert not breaker.failed(0)
    assert not breaker.open


def test_after_its_rest_one_call_tries() -> None:
    breaker = tripped()
    assert breaker.allows(100)
    assert not breaker.allows(100)


def test_a_good_try_closes_it() -> None:
    breaker = tripped()
    breaker.allows(100)
    assert breaker.succeeded()
    assert breaker.allows(100)
    assert not breaker.open


def test_a_bad_try_lets_it_rest_again() -> None:
    breaker = tripped()
    breaker.allows(100)
    assert not breaker.failed(100)
    assert not breaker.allows(199)
    assert breaker.allows(200)
    assert breaker.trips == 1


def test_failures_of_calls_under_way_change_nothing_once_it_is_open() -> None:
    breaker = tripped()
    assert not breaker.failed(50)
    assert breaker.allows(100)


def test_a_try_that_was_given_up_leaves_it_to_the_next() -> None:
    breaker = tripped()
    breaker.allows(100)
    breaker.gave_up()
    assert breaker.open
    assert breaker.allows(100)
