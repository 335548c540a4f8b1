"""Runs: what stands in a row travels as one."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import Lane
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.runs import (
    make_fresh_runs,
    make_runs,
    receipts_of,
    runs_of_numbers,
)
from pushlane_storage.message import Message

ONE, OTHER = Lane(4, 1), Lane(5, 1)
MESSAGE = Message(b"x", 0)


def entry(seq: int, n: int, lane: Lane = ONE, state: State = State.LEASED, **past: int) -> Entry:
    made = Entry(seq, lane, MESSAGE, 65, state, 0)
    made.n = n
    made.attempts = past.get("attempts", 1 if state is State.LEASED else 0)
    made.deliveries = past.get("deliveries", 0)
    made.fence = past.get("fence", 7)
    return made


def spans(entries: list[Entry]) -> list[tuple[int, int, int, int]]:
    return [(run.lane, run.seq, run.n, len(run.messages)) for run in make_runs(entries, 9)]


def test_a_row_is_one_run() -> None:
    assert spans([entry(1, 1), entry(2, 2), entry(3, 3)]) == [(4, 1, 1, 3)]


def test_whatever_differs_begins_a_new_run() -> None:
    first = entry(1, 1)
    others = [
        entry(3, 2),
        entry(2, 3),
        entry(2, 2, OTHER),
        entry(2, 2, fence=8),
        entry(2, 2, attempts=2),
        entry(2, 2, deliveries=1),
        entry(2, 2, state=State.RESERVED),
    ]
    for other in others:
        assert len(spans([first, other])) == 2


def test_a_run_says_which_attempt_it_is_or_will_be() -> None:
    started, reserved = entry(1, 1, attempts=3), entry(5, 2, state=State.RESERVED, attempts=3)
    runs = make_runs([started, reserved], 9)
    assert [(run.started, run.attempt, run.deadline) for run in runs] == [
        (True, 3, 9),
        (False, 4, 9),
    ]


def test_what_is_granted_for_the_first_time_is_one_run_where_it_can() -> None:
    entries = [entry(1, 1), entry(2, 2)]
    (run,) = make_fresh_runs(entries, 9)
    assert (run.seq, run.n, run.attempt, run.deliveries, run.started) == (1, 1, 1, 0, True)
    assert run.messages == [MESSAGE, MESSAGE]
    (run,) = make_fresh_runs([entry(1, 1, state=State.RESERVED, attempts=0)], 9)
    assert (run.attempt, run.started) == (1, False)
    assert len(make_fresh_runs([entry(1, 1), entry(3, 2)], 9)) == 2


@given(st.lists(st.integers(0, 12)))
def test_numbers_as_runs_say_the_same(numbers: list[int]) -> None:
    runs = runs_of_numbers("P", numbers)
    assert [n for _, low, high in runs for n in range(low, high + 1)] == numbers
    assert all(prefix == "P" and low <= high for prefix, low, high in runs)
    for (_, _, high), (_, low, _) in pairwise(runs):
        assert low != high + 1, "as few as there can be"


def test_the_receipts_of_entries() -> None:
    assert receipts_of("P", [entry(9, 1), entry(3, 2), entry(4, 5)]) == [("P", 1, 2), ("P", 5, 5)]
