"""A producer's numbers: runs that behave as single numbers would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane_dispatcher.core.numbers import SOMEWHERE, Numbers, Place, Run


def test_runs_grow_where_number_and_place_go_on() -> None:
    numbers = Numbers(0)
    numbers.add(1, 5, 4, 100)
    numbers.add(6, 5, 4, 105)
    numbers.add(11, 1, 4, 200)
    numbers.add(12, 1, 7, 201)
    assert [(run.low, run.count) for run in numbers.runs()] == [(1, 10), (11, 1), (12, 1)]
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
    assert (len(numbers), numbers.floor, numbers.end, numbers.count) == (0, 4, 5, 0)
    assert numbers.find(2) is SOMEWHERE


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
        elif len(numbers):
            lowest = sorted(model)[: min(count, numbers.run(0).count)]
            numbers.forget_lowest(len(lowest))
            floor = max(floor, *lowest)
            for n in lowest:
                del model[n]
        old = [SOMEWHERE if n <= floor else None for n in range(20)]
        assert [numbers.find(n) for n in range(20)] == [model.get(n, old[n]) for n in range(20)]
        assert (numbers.count, numbers.floor) == (len(model), floor)
        assert numbers.end == max([floor, *model]) + 1


def all_stored(run: Run) -> int:
    return run.count


def test_coalesced_runs_are_known_but_not_where_they_stand() -> None:
    numbers = Numbers(0)
    for n in range(1, 101):
        numbers.add(n, 1, 4, 2 * n)
    assert len(numbers) == 100
    assert numbers.coalesce(all_stored)
    assert len(numbers) == 51
    assert [numbers.find(n) for n in (1, 50, 51, 100)] == [SOMEWHERE, SOMEWHERE, (4, 102), (4, 200)]
    assert (numbers.count, numbers.end, numbers.floor) == (100, 101, 0)
    assert numbers.coalesce(all_stored)
    assert len(numbers) == 27
    numbers.remove(30)
    assert (numbers.find(30), numbers.find(31)) == (None, SOMEWHERE)
    numbers.forget_lowest(5)
    assert (numbers.floor, numbers.find(6)) == (5, SOMEWHERE)


def test_gaps_stay_when_runs_are_coalesced_and_it_is_not_tried_in_vain() -> None:
    numbers = Numbers(0)
    for n in range(1, 101):
        numbers.add(2 * n, 1, 4, n)
    tried: list[Run] = []

    def count(run: Run) -> int:
        tried.append(run)
        return run.count

    assert not numbers.coalesce(count)
    assert numbers.find(2) is SOMEWHERE
    assert numbers.find(3) is None
    assert len(tried) == 50
    assert not numbers.coalesce(count)
    assert len(tried) == 50


def test_what_is_pending_is_not_coalesced() -> None:
    numbers = Numbers(0)
    for n in range(1, 101):
        numbers.add(n, 1, 4, 2 * n)
    numbers.coalesce(lambda run: 0 if run.low in (10, 11) else 1)
    assert [numbers.find(n) for n in (9, 10, 11, 12)] == [SOMEWHERE, (4, 20), (4, 22), SOMEWHERE]


def test_few_runs_are_left_as_they_are() -> None:
    numbers = Numbers(0)
    numbers.add(1, 1, 4, 1)
    assert not numbers.coalesce(all_stored)
    assert numbers.find(1) == Place(4, 1)
