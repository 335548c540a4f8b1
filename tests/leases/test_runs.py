"""Runs of receipts against a plain dict."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane_leases.interface import LeaseRun
from pushlane_leases.runs import Runs, last_of
from tests.leases.samples import NOW, by_receipt, run

numbers = st.integers(0, 30)
spans = st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair)))
steps = st.lists(st.tuples(st.booleans(), spans, st.integers(0, 9)), max_size=15)


@given(steps)
def test_runs_know_what_a_dict_knows(taken: list[tuple[bool, tuple[int, int], int]]) -> None:
    runs = Runs()
    known: dict[int, LeaseRun] = {}
    for puts, (low, high), attempts in taken:
        if puts:
            granted = run(low, high - low + 1, attempts=attempts)
            runs.put(granted)
            known |= {n: one for (_, n), one in by_receipt([granted]).items()}
        else:
            runs.cut(low, high)
            known = {n: one for n, one in known.items() if not low <= n <= high}
        assert by_receipt(runs) == {("p", n): one for n, one in known.items()}
        assert [one.n for one in runs] == sorted(one.n for one in runs)
        assert len(runs) == len(list(runs))


def test_a_settled_run_leaves_nothing_behind() -> None:
    runs = Runs()
    for n in range(0, 1_000, 10):
        runs.put(run(n, 10))
    for n in range(1_000):
        runs.cut(n, n)
        assert len(runs) <= 100
    assert not runs


def test_only_a_hole_makes_two_of_one() -> None:
    runs = Runs()
    runs.put(run(1, 10_000))
    runs.cut(5_000, 5_000)
    assert [(one.n, last_of(one), one.seq) for one in runs] == [
        (1, 4_999, 1_001),
        (5_001, 10_000, 6_001),
    ]


def test_expired_runs_go() -> None:
    runs = Runs()
    runs.put(run(1, 2, deadline=NOW))
    runs.put(run(3, 2, deadline=NOW + 1))
    runs.expire(NOW)
    assert sorted(by_receipt(runs)) == [("p", 3), ("p", 4)]
    runs.cut(3, 3)
    assert sorted(by_receipt(runs)) == [("p", 4)]


def test_a_backward_run_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        Runs().cut(2, 1)
