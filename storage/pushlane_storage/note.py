"""A shard's note: what whoever opens it next must know, and when somebody has to.

A shard has one, and its owner replaces it; the newest by (owner, n) stands. Everything in it is a
fact whoever says it, so a paused predecessor's late note does no harm.
"""

from typing import NamedTuple

import msgspec


class KeptNumbers(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is known of a producer's numbers, some of whose buckets are gone."""

    producer: str
    last_at: int
    """When it was last heard of (wall clock)."""
    floor: int
    """Up to this number all are taken for repeats."""
    runs: list[tuple[int, int, int, int]]
    """(number, how many, lane, seq of the first): lane -1 says that nobody knows where they are."""


class Note(msgspec.Struct, frozen=True):
    owner: int
    n: int
    """Counts the notes of this owner, from 0."""
    tenant: str
    queue: str
    due: int | None = None
    """Wall clock: then something is to be done in the shard, though nobody may ask for it."""
    kept: list[KeptNumbers] = []
    whole: bool = True
    """False: there were too many producers to keep all of them."""


class DueShard(NamedTuple):
    """A shard that must be opened by `due`."""

    due: int
    tenant: str
    queue: str
    queue_id: str
    shard: int
