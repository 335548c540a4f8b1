"""In which places a test runs: a place is a shell, a transport and a store.

Most faults need one choice, or two that meet: "polling from JavaScript", "JavaScript on Cassandra".
So each test runs in half of the places, chosen so that any two choices meet in one of them. Which
half depends on the test's name: over the whole suite all places have many tests.
`ALL_PLACES=1` runs every test in every place.
"""

from __future__ import annotations

import os
from itertools import combinations, product
from zlib import crc32

from tests.behaviour.worlds import SHELLS, STORES, TRANSPORTS

Place = tuple[str, ...]

PLACES: list[Place] = list(product(SHELLS, TRANSPORTS, STORES))
_FEWEST = len(TRANSPORTS) * len(STORES)
"""Each transport meets each store, and the shells share these places."""


def places_of(test: str) -> list[Place]:
    """Where the test of this name runs."""
    return PLACES if os.environ.get("ALL_PLACES") else chosen(test)


def chosen(test: str) -> list[Place]:
    return list(_COVERING[crc32(test.encode()) % len(_COVERING)])


def pairs(places: list[Place] | tuple[Place, ...]) -> set[Place]:
    """The choices that meet in one of these places."""
    return {pair for place in places for pair in combinations(place, 2)}


_COVERING = [some for some in combinations(PLACES, _FEWEST) if pairs(some) == pairs(PLACES)]
