"""Seals: what a new owner writes before it serves, so that its predecessors are over for good.

For each older epoch a seal says where the gap-free stored prefix of each lane ends, and which
settlement flush was the last whole one. What lies beyond does not exist, also when a paused
predecessor writes it after all, also for every later owner. The newest seal decides: its writer
had read all seals before it and carried on what they say, while a seal that lands late comes
from an owner that never served.
"""

from collections.abc import Iterable

import msgspec


class Seal(msgspec.Struct, frozen=True):
    """Written once by the owner with this epoch."""

    owner: int
    counters: list[tuple[int, int, int]]
    """(lane, older epoch, counters stored: 0 says none)."""
    flushes: list[tuple[int, int]]
    """(older epoch, settlement flushes that count: 0 says none)."""


class Seals:
    """All seals of a shard, read together."""

    def __init__(self, seals: Iterable[Seal] = ()) -> None:
        newest = max(seals, key=lambda seal: seal.owner, default=Seal(0, [], []))
        self._sealed = newest.owner
        self._counters = {(lane, epoch): count for lane, epoch, count in newest.counters}
        self._flushes = dict(newest.flushes)

    def counters(self, lane: int, epoch: int) -> int | None:
        """How many counters of a lane's epoch exist; None when no seal speaks of it yet."""
        if epoch < self._sealed:
            return self._counters.get((lane, epoch), 0)
        return None

    def flushes(self, epoch: int) -> int | None:
        """How many settlement flushes of an epoch count; None when no seal speaks of it yet."""
        if epoch < self._sealed:
            return self._flushes.get(epoch, 0)
        return None
