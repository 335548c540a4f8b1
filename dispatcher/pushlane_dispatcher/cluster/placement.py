"""Placement: which node each slot belongs to, and which slots a node gives up for that.

Pure functions of who is there: every node works them out alone and comes to the same result. A
slot belongs to the node with the highest rendezvous hash, so when a node comes or goes only its own
slots move. Nodes are hashed by name: one that starts again gets back what it had.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from math import log
from typing import NamedTuple

SCALE = float(1 << 64)


class Place(NamedTuple):
    """A node that may own slots."""

    name: str
    process: str
    weight: int = 100
    """Its share of the slots, beside the others' weights."""


def placed(slot: int, places: Iterable[Place]) -> Place | None:
    """Where a slot belongs; None: there is no node for it. Of one name the newest process counts
    no more than the other: the order of processes decides."""
    return max(places, key=lambda place: (_score(slot, place), place.process), default=None)


def _score(slot: int, place: Place) -> float:
    """Weighted rendezvous hashing: the chance to be the highest is in proportion to the weight."""
    digest = blake2b(f"{place.name}/{slot}".encode(), digest_size=8).digest()
    hashed = (int.from_bytes(digest, "big") + 0.5) / SCALE
    return -place.weight / log(hashed) if place.weight > 0 else 0.0


def to_give_up(
    held: Mapping[int, int], own: str, places: Sequence[Place], now: int, tenure_ms: int, most: int
) -> list[int]:
    """Slots that belong to others by now: those held the longest, a few at a time.

    `held` says since when each is ours, `own` is our process. Each was ours for `tenure_ms` at
    least, so that no slot goes to and fro while nodes come and go.
    """
    moving = [
        (since, slot)
        for slot, since in held.items()
        if since <= now - tenure_ms
        and (place := placed(slot, places)) is not None
        and place.process != own
    ]
    return [slot for _, slot in sorted(moving)[:most]]
