"""Calls that wait for a thread, and rows that wait to be inserted."""

import sqlite3
import threading

import pytest

from pushlane_storage.interface import StoreRefused, StoreUnknown
from pushlane_storage.sqlite.calls import Call, Waiting
from pushlane_storage.sqlite.shard_rows import Bulk


def call() -> Call[None, None]:
    return Call(lambda _: None)


class TestWaiting:
    def test_calls_are_taken_in_order_up_to_a_number(self) -> None:
        waiting: Waiting[None] = Waiting(10)
        calls = [call() for _ in range(5)]
        for one in calls:
            waiting.put(one)
        assert len(waiting) == 5
        assert waiting.take(3) == calls[:3]
        waiting.give_back(calls[1:3])
        assert waiting.take(9) == calls[1:]
        assert waiting.take(9, 0.001) == []

    def test_it_is_bounded(self) -> None:
        waiting: Waiting[None] = Waiting(1)
        waiting.put(call())
        with pytest.raises(StoreRefused, match="1 calls wait"):
            waiting.put(call())

    def test_what_was_taken_can_not_be_withdrawn(self) -> None:
        waiting: Waiting[None] = Waiting(10)
        one, two = call(), call()
        waiting.put(one)
        waiting.put(two)
        assert waiting.withdraw(two)
        assert not waiting.withdraw(two)
        assert waiting.take(9) == [one]
        assert not waiting.withdraw(one)

    def test_a_sleeping_thread_is_woken(self) -> None:
        waiting: Waiting[None] = Waiting(10)
        taken: list[object] = []
        thread = threading.Thread(target=lambda: taken.append(waiting.take(9)))
        thread.start()
        one = call()
        waiting.put(one)
        thread.join(10)
        assert taken == [[one]]

    def test_after_closing_the_rest_is_taken(self) -> None:
        waiting: Waiting[None] = Waiting(10)
        one = call()
        waiting.put(one)
        waiting.close()
        with pytest.raises(AssertionError, match="closed"):
            waiting.put(call())
        assert waiting.take(9) == [one]
        assert waiting.take(9) is None

    def test_a_broken_one_answers_everybody_with_the_error(self) -> None:
        waiting: Waiting[None] = Waiting(10)
        one = call()
        waiting.put(one)
        assert waiting.shatter(lambda: StoreUnknown("broken")) == [one]
        assert isinstance(one.error, StoreUnknown)
        with pytest.raises(StoreUnknown, match="broken"):
            waiting.put(call())
        assert waiting.take(9) is None


@pytest.mark.parametrize("count", [0, 1, 3, 5, 63, 64, 65, 200])
def test_rows_are_inserted_in_few_statements(count: int) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE t (x, y)")
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    bulk = Bulk(connection, "t", 2)
    for number in range(count):
        bulk.add((number, b"y"))
    bulk.flush()
    bulk.flush()
    connection.set_trace_callback(None)
    assert len(statements) <= count // 64 + 9
    found = connection.execute("SELECT x, y FROM t ORDER BY x").fetchall()
    assert found == [(number, b"y") for number in range(count)]
    bulk.add((1, b""))
    bulk.clear()
    bulk.flush()
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (count,)
    connection.close()
