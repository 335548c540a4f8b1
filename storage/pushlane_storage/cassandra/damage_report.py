"""Damaged segments: each is counted, logged and told, once. They stay where they are until their
bucket is dropped, and are never delivered."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.damage import Damage
from pushlane_storage.stored_segment import StoredSegment

log = logging.getLogger(__name__)


class DamageReport:
    def __init__(self, tell: Callable[[Damage], None], wall: Callable[[], int], bound: int) -> None:
        """Up to `bound` places are remembered as known; beyond it nothing is told."""
        self._tell = tell
        self._wall = wall
        self._bound = bound
        self._known: set[tuple[object, ...]] = set()

    @property
    def count(self) -> int:
        return len(self._known)

    def take(self, shard: ShardKey, bucket: BucketKey, stored: StoredSegment, why: str) -> None:
        place = (shard, bucket, stored.first)
        if place in self._known or len(self._known) >= self._bound:
            return
        self._known.add(place)
        damage = Damage(shard, bucket, stored.first, stored.count, why, self._wall())
        log.error("a damaged segment is left out: %s", damage)
        self._tell(damage)
