"""Half of the places for each test, and what each half must have."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from tests.behaviour.places import PLACES, chosen, pairs, places_of
from tests.behaviour.worlds import SHELLS, STORES, TRANSPORTS

NAMES = [
    line.removeprefix("async def ").partition("(")[0]
    for path in sorted(Path(__file__).parent.glob("test_*.py"))
    for line in path.read_text().splitlines()
    if line.startswith("async def test_")
]


def test_any_two_choices_meet() -> None:
    for test in NAMES:
        places = chosen(test)
        assert len(places) == len(PLACES) / 2
        for one, other in [(SHELLS, TRANSPORTS), (SHELLS, STORES), (TRANSPORTS, STORES)]:
            assert set(product(one, other)) <= pairs(places)


def test_every_place_has_many_tests() -> None:
    used = Counter(place for test in NAMES for place in chosen(test))
    assert set(used) == set(PLACES)
    assert min(used.values()) >= len(NAMES) / 4


def test_a_name_always_has_the_same_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALL_PLACES", raising=False)
    assert places_of("test_nobody_there") == [
        ("asyncio", "ws", "cassandra"),
        ("asyncio", "poll", "memory"),
        ("asyncio", "poll", "sqlite"),
        ("javascript", "ws", "memory"),
        ("javascript", "ws", "sqlite"),
        ("javascript", "poll", "cassandra"),
    ]


def test_all_places_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PLACES", "1")
    assert places_of("test_nobody_there") == PLACES
