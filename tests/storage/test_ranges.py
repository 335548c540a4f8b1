"""Ranges against a plain set."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane_storage.ranges import Range, Ranges

TOP = 30
spans = st.tuples(st.integers(0, TOP), st.integers(0, TOP)).map(lambda pair: (min(pair), max(pair)))
lists = st.lists(spans, max_size=12)


def members(ranges: list[Range]) -> set[int]:
    return {value for low, high in ranges for value in range(low, high + 1)}


@given(lists)
def test_it_holds_what_was_added(added: list[Range]) -> None:
    ranges = Ranges()
    known: set[int] = set()
    for low, high in added:
        new = set(range(low, high + 1)) - known
        assert ranges.add(low, high) == len(new)
        known |= new
        assert ranges.count == len(known)
        assert {value for value in range(-1, TOP + 2) if value in ranges} == known


@given(lists)
def test_ranges_are_as_few_as_can_be(added: list[Range]) -> None:
    ranges = list(Ranges(added))
    assert members(ranges) == members(added)
    assert all(low <= high for low, high in ranges)
    assert all(one[1] + 1 < two[0] for one, two in pairwise(ranges))
    assert len(Ranges(added)) == len(ranges)


@given(lists)
def test_the_order_of_adding_does_not_matter(added: list[Range]) -> None:
    assert Ranges(added) == Ranges(reversed(added)) == Ranges(sorted(added))


@given(lists, spans)
def test_gaps_are_what_is_missing(added: list[Range], span: Range) -> None:
    gaps = list(Ranges(added).gaps(*span))
    assert members(gaps) == members([span]) - members(added)
    assert gaps == list(Ranges(gaps))


@given(lists.filter(bool))
def test_the_lowest_range_can_be_dropped(added: list[Range]) -> None:
    ranges = Ranges(added)
    rest = list(ranges)[1:]
    ranges.drop_first()
    assert list(ranges) == rest
    assert ranges.count == len(members(rest))


def test_an_empty_span_has_no_gaps() -> None:
    assert list(Ranges().gaps(5, 4)) == []


def test_a_backward_range_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        Ranges([(5, 4)])


def test_ranges_are_equal_by_content_and_not_hashable() -> None:
    assert Ranges([(1, 2), (3, 4)]) == Ranges([(1, 4)])
    assert Ranges([(1, 2)]) != Ranges([(1, 3)])
    assert Ranges([(1, 2)]) != Ranges([(0, 2)])
    assert Ranges([(1, 2)]) != [(1, 2)]
    with pytest.raises(TypeError):
        hash(Ranges())


def test_repr_shows_the_ranges() -> None:
    assert repr(Ranges([(1, 2)])) == "Ranges([(1, 2)])"
