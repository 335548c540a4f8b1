"""The record of a copy, as text."""

from itertools import pairwise

import pytest

from pushlane_storage.copy.record import Counts, Place, Record, decode, encode

RECORD = Record(
    copy="c",
    source="sqlite:a",
    fingerprint="f",
    begun_at=1,
    place=Place("t", "q", 0, 4, 5, 6),
    copied=Counts(messages=7),
)


def test_there_and_back() -> None:
    assert decode(encode(RECORD)) == RECORD


@pytest.mark.parametrize("text", ["", "{}", encode(RECORD).replace('"format":1', '"format":2')])
def test_another_version(text: str) -> None:
    with pytest.raises(ValueError, match=r"truncated|missing required|format 2"):
        decode(text)


def test_counts_add_up() -> None:
    one = Counts(queues=1, messages=2, damaged=3)
    assert one + Counts(messages=5, usage=1) == Counts(queues=1, messages=7, damaged=3, usage=1)


def test_places_are_in_the_order_of_the_walk() -> None:
    walked = [
        Place("a", "x"),
        Place("a", "x", 0),
        Place("a", "x", 0, 0, 1, 5),
        Place("a", "x", 0, 4, 1, 2),
        Place("a", "x", 1),
        Place("a", "y"),
        Place("b", "a"),
    ]
    assert all(one < other for one, other in pairwise(walked))
