"""Damaged segments: each is logged, counted and told once, and never delivered.

They stay where they are until their bucket is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.segment import StoredSegment

log = logging.getLogger(__name__)


class Damage(msgspec.Struct, frozen=True):
    """A segment that can't be delivered: `count` messages from seq `first` on."""

    shard: ShardKey
    bucket: BucketKey
    first: int
    count: int
    reason: str
    found_at: int
    """Wall clock, in milliseconds."""


class DamageReport:
    """Of one open store."""

    def __init__(self, tell: Callable[[Damage], None], wall: Callable[[], int], bound: int) -> None:
        """Up to `bound` places are remembered as known; beyond it nothing is told."""
        self._tell = tell
        self._wall = wall
        self._bound = bound
        self._known: set[tuple[object, ...]] = set()

    @property
    def count(self) -> int:
        return len(self._known)

    def take(
        self, shard: ShardKey, bucket: BucketKey, stored: StoredSegment, why: str
    ) -> Damage | None:
        """None: it was told before."""
        place = (shard, bucket, stored.first)
        if place in self._known or len(self._known) >= self._bound:
            return None
        self._known.add(place)
        damage = Damage(shard, bucket, stored.first, stored.count, why, self._wall())
        log.error("a damaged segment is left out: %s", damage)
        self._tell(damage)
        return damage
