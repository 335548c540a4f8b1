"""A producer's numbers: runs that behave as single numbers would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane_dispatcher.core.numbers import Numbers, Place


def test_runs_grow_where_number_and_place_go_on() -> None:
    numbers = Numbers(0)
    numbers.add(1, 5, 4, 100)
    numbers.add(6, 5, 4, 105)
    numbers.add(11, 1, 4, 200)
    numbers.add(12, 1, 7, 201)
    assert [(run.low, run.count) for run in numbers.runs] == [(1, 10), (11, 1), (12, 1)]
    assert numbers.end == 13
    assert numbers.find(10) == Place(4, 109)
    assert numbers.find(12) == Place(7, 201)


def test_a_number_is_entered_once() -> None:
    numbers = Numbers(0)
    numbers.add(1, 5, 4, 100)
    with pytest.raises(AssertionError, match="there already"):
        numbers.add(5, 1, 4, 200)


def test_the_end_is_behind_what_was_forgotten() -> None:
    numbers = Numbers(0)
    assert numbers.end == 1
    numbers.add(3, 2, 4, 100)
    numbers.forget_lowest(2)
    assert (numbers.runs, numbers.floor, numbers.end, numbers.count) == ([], 4, 5, 0)


steps = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "forget"]), st.integers(1, 12), st.integers(1, 5))
)


@given(steps)
def test_runs_are_the_same_as_single_numbers(steps: list[tuple[str, int, int]]) -> None:
    numbers, model, seq, floor = Numbers(0), dict[int, Place](), 100, 0
    for what, number, count in steps:
        if what == "add":
            new = [n for n in range(number, number + count) if n not in model]
            if len(new) == count:
                numbers.add(number, count, 4, seq)
                model.update({n: Place(4, seq + n - number) for n in new})
                seq += count
        elif what == "remove":
            numbers.remove(number)
            model.pop(number, None)
        elif numbers.runs:
            lowest = sorted(model)[: min(count, numbers.runs[0].count)]
            numbers.forget_lowest(len(lowest))
            floor = max(floor, *lowest)
            for n in lowest:
                del model[n]
        assert [numbers.find(n) for n in range(20)] == [model.get(n) for n in range(20)]
        assert (numbers.count, numbers.floor) == (len(model), floor)
        assert numbers.end == max([floor, *model]) + 1
