"""What a power cut does to changes that were not synced: kept, lost, torn, reordered.

Inside the range of one write anything may be missing; bytes outside of it stay as they were.
That is what SQLite calls powersafe overwrite, and what every disk of this century does.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import TypeVar

from tests.powerloss.disk import Change, Damage, Names, Resize, Write

SECTOR = 512
PAGE = 4096
C = TypeVar("C")


class Lost:
    """Nothing that was not synced is there."""

    def changes(self, pending: list[Change]) -> list[Change]:
        return []

    def names(self, pending: list[Names]) -> list[Names]:
        return []


class Kept:
    """Everything is there, synced or not: what a killed process leaves."""

    def changes(self, pending: list[Change]) -> list[Change]:
        return list(pending)

    def names(self, pending: list[Names]) -> list[Names]:
        return list(pending)


class Torn:
    """Each file has its changes up to some point, the one there in part."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def changes(self, pending: list[Change]) -> list[Change]:
        if not pending:
            return []
        last = self._rng.randrange(len(pending))
        return [*pending[:last], *_tear(self._rng, pending[last])]

    def names(self, pending: list[Names]) -> list[Names]:
        return pending[: self._rng.randint(0, len(pending))]


class Reordered:
    """Each change is there or not, whatever became of those before it; some only in part."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._chance = rng.choice((0.05, 0.5, 0.95))

    def changes(self, pending: list[Change]) -> list[Change]:
        kept: list[Change] = []
        for change in self._some(pending):
            kept += _tear(self._rng, change) if self._rng.random() < 0.1 else [change]
        return kept

    def names(self, pending: list[Names]) -> list[Names]:
        return self._some(pending)

    def _some(self, pending: list[C]) -> list[C]:
        return [change for change in pending if self._rng.random() < self._chance]


class Swapped:
    """The data of all files is there and their names are not, or the other way round."""

    def __init__(self, rng: Random) -> None:
        self._data = rng.random() < 0.7

    def changes(self, pending: list[Change]) -> list[Change]:
        return list(pending) if self._data else []

    def names(self, pending: list[Names]) -> list[Names]:
        return [] if self._data else list(pending)


KINDS: dict[str, Callable[[Random], Damage]] = {
    "lost": lambda rng: Lost(),
    "kept": lambda rng: Kept(),
    "torn": Torn,
    "reordered": Reordered,
    "swapped": Swapped,
}
WEIGHTS = {"lost": 25, "kept": 15, "torn": 25, "reordered": 30, "swapped": 5}


def choose(rng: Random) -> str:
    return rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]


def _tear(rng: Random, change: Change) -> list[Change]:
    """A part of a change: a prefix, some sectors or pages, or only the growth of the file."""
    if isinstance(change, Resize):
        return [change] if rng.random() < 0.5 else []
    how = rng.randrange(4)
    if how == 0:
        return [Write(change.offset, change.data[: rng.randint(0, len(change.data))])]
    if how == 1:
        return [Resize(change.offset + len(change.data), shrinks=False)]
    return _pieces(rng, change, SECTOR if how == 2 else PAGE)


def _pieces(rng: Random, write: Write, size: int) -> list[Change]:
    """Some of the sectors or pages, by their place on the disk, in no order."""
    end = write.offset + len(write.data)
    cuts = [write.offset, *range(write.offset // size * size + size, end, size), end]
    pieces: list[Change] = [
        Write(low, write.data[low - write.offset : high - write.offset])
        for low, high in pairwise(cuts)
        if rng.random() < 0.5
    ]
    rng.shuffle(pieces)
    return pieces
