"""What kind of world a seed gets: a run shows a few things at a time, thousands show them all."""

from __future__ import annotations

import random
from typing import Literal

import msgspec

Manner = Literal["crowd", "worker", "sleeper"]

SMALL_STEPS = (-90_000, -5_000, -400, 400, 5_000, 90_000)
LARGE_STEPS = (-7_200_000, 7_200_000)
"""Of clocks, in milliseconds: much longer than any window."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    quiet: bool = False
    """Nothing fails but consumers and connections: who stands still has no excuse."""
    shards: int = 1
    dead_shards: int = 1
    manners: tuple[Manner, ...] = ("crowd",)
    """Of the consumers of the queue."""
    hot_key: bool = False
    """One key gets more than fits into the window."""
    changing_limits: bool = False
    annex: bool = False
    """There is a third queue: deleted and made again, full, or unwilling to take large ones."""
    unsure: bool = False
    """Producers ask again whether something was stored, with nothing new beside it."""
    late: bool = False
    """What consumers say is overtaken: an extension by its ack, an ack by their resume."""
    sound: bool = False
    """Of a replicated world: Cassandra, Redis and processes are well, but for what operators do."""

    @classmethod
    def draw(cls, seed: int) -> Profile:
        """From a source of its own: what a world does otherwise doesn't depend on it."""
        rng = random.Random(f"profile/{seed}")
        quiet = rng.random() < 0.15
        kinds: tuple[tuple[Manner, ...], ...] = (
            ("crowd",), ("crowd", "crowd"), ("crowd", "crowd", "crowd", "crowd"),
            ("worker",), ("worker", "crowd"), ("worker", "worker", "sleeper"),
            ("sleeper", "sleeper", "worker"), ("crowd", "sleeper"),
        )  # fmt: skip
        return cls(
            quiet=quiet,
            shards=rng.choice((1, 1, 1, 2, 3)),
            dead_shards=rng.choice((1, 1, 2, 3)),
            manners=rng.choice(kinds),
            hot_key=rng.random() < 0.15,
            changing_limits=rng.random() < 0.2,
            annex=rng.random() < 0.25,
            unsure=rng.random() < 0.4,
            sound=rng.random() < 0.15,
            late=rng.random() < 0.3,
        )
