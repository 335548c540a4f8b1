"""Calls that wait for the connection."""

import threading

import pytest

from pushlane_leases.interface import LeaseCacheError
from pushlane_leases.redis.calls import Call, Waiting


def call(commands: int = 1) -> Call:
    return Call([("PING",)] * commands)


def test_calls_are_taken_together_up_to_a_number_of_commands() -> None:
    waiting = Waiting(10)
    calls = [call(), call(2), call(5), call()]
    for each in calls:
        waiting.put(each)
    assert waiting.take(4) == calls[:3]
    assert waiting.take(4) == calls[3:]


def test_no_more_than_the_bound() -> None:
    waiting = Waiting(2)
    first = call()
    waiting.put(first)
    waiting.put(call())
    with pytest.raises(LeaseCacheError, match="2 calls wait for Redis"):
        waiting.put(call())
    waiting.withdraw(first)
    waiting.put(call())
    assert len(waiting) == 2


def test_a_call_that_was_taken_can_not_be_withdrawn() -> None:
    waiting = Waiting(2)
    first, second = call(), call()
    waiting.put(first)
    assert waiting.take(1) == [first]
    waiting.put(second)
    waiting.withdraw(first)
    assert len(waiting) == 1


def test_a_sleeping_thread_is_woken_by_a_call_and_by_the_end() -> None:
    waiting = Waiting(2)
    taken: list[list[Call]] = []

    def take() -> None:
        while calls := waiting.take(8):
            taken.append(calls)

    thread = threading.Thread(target=take)
    thread.start()
    first = call()
    waiting.put(first)
    while not taken:
        thread.join(0.01)
    assert waiting.close() == []
    thread.join()
    assert taken == [[first]]


def test_the_end_hands_out_what_waits() -> None:
    waiting = Waiting(2)
    first = call()
    waiting.put(first)
    assert waiting.close() == [first]
    assert waiting.take(1) == []
    with pytest.raises(AssertionError, match="closed"):
        waiting.put(call())
