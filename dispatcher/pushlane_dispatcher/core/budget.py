"""The budget of all windows of a server: how many bytes of bodies they keep in memory together.

Each shard has a window of its own, which is large, so that a busy queue is fast; and a server may
have thousands open. So a half of the budget is for whoever comes first, and the other half is dealt
out evenly: once the first is spent, a shard keeps only its own part. That is enough to go on with,
one read of the store after the other.
"""

from __future__ import annotations

EVERYTHING = 1 << 62


class Budget:
    __slots__ = ("free", "least", "refused", "squeezes", "used")

    def __init__(self, most_bytes: int = EVERYTHING, shards: int = 1, window: int = 0) -> None:
        """For so many shards, each with a window of so many bytes."""
        enough = window * shards <= most_bytes
        self.free = most_bytes if enough else most_bytes // 2
        """What is for whoever comes first."""
        self.least = max(1, most_bytes // 2 // shards)
        """What a shard may always keep."""
        self.used = 0
        self.refused: set[object] = set()
        """Whose window wanted to have more than its part since somebody last looked."""
        self.squeezes = 0
        """How often a shard had to give bodies up."""

    @property
    def spent(self) -> bool:
        """Each shard has its own part only."""
        return self.used >= self.free
