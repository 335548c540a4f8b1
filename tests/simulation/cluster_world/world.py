"""The world of a cluster: that of a replicated store, with links between the nodes."""

from __future__ import annotations

import random

import msgspec

from tests.simulation.replicated.world import RingChances, TrioWorld


class LinkChances(msgspec.Struct, kw_only=True):
    """How likely each fault of links is, per occasion."""

    cut: float = 0.0
    break_link: float = 0.0

    @classmethod
    def draw(cls, rng: random.Random) -> LinkChances:
        def pick(most: float) -> float:
            return rng.choice((0.0, most / 4, most, most * 2))

        return cls(cut=pick(0.004), break_link=pick(0.004))


class ClusterWorld(TrioWorld):
    def __init__(self, seed: int, keep: bool = False) -> None:
        super().__init__(seed, keep)
        rng = random.Random(f"cluster/{seed}")
        self.profile = msgspec.structs.replace(
            self.profile, shards=rng.choice((1, 2, 3, 4)), sound=False, late=False,
            quiet=rng.random() < 0.1,
        )  # fmt: skip
        self.link_chances = LinkChances.draw(self.rng)
        self.drains = rng.random() < 0.5
        """In calm times a node drains, and gets its slots back."""
        self.asleep = False
        """No consumer takes up anything."""
        if self.profile.quiet:
            self.link_chances, self.ring_chances = LinkChances(), RingChances()

    def latency(self) -> int:
        """In calm times none is so long that somebody could be taken for dead."""
        return int(self.rng.random() * 6) if self.calm else super().latency()
