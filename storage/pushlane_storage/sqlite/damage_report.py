"""Reporting damage: each damaged segment is counted, logged, noted durably and told, once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import trio

from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.interface import StoreError
from pushlane_storage.sqlite.call import Call
from pushlane_storage.sqlite.quarantine import Damage
from pushlane_storage.sqlite.segment_rows import StoredSegment
from pushlane_storage.sqlite.stats import Stats
from pushlane_storage.sqlite.tables import Tables
from pushlane_storage.sqlite.waiting import Waiting

log = logging.getLogger(__name__)


class DamageReport:
    """Called by readers' threads."""

    def __init__(
        self,
        writes: Waiting[Tables],
        tell: Callable[[Damage], None],
        token: trio.lowlevel.TrioToken,
        wall: Callable[[], int],
        stats: Stats,
        bound: int,
    ) -> None:
        """`tell` runs in the trio loop. Up to `bound` places are remembered as known."""
        self._writes = writes
        self._tell = tell
        self._token = token
        self._wall = wall
        self._stats = stats
        self._bound = bound
        self._lock = threading.Lock()
        self._known: set[tuple[ShardKey, BucketKey, int]] = set()

    def __call__(
        self, shard: ShardKey, bucket: BucketKey, stored: StoredSegment, reason: str
    ) -> None:
        with self._lock:
            place = (shard, bucket, stored.first)
            if place in self._known or len(self._known) >= self._bound:
                return
            self._known.add(place)
            self._stats.damaged += 1
        log.error("%s %s: a damaged segment is set aside: %s", shard, bucket, reason)
        damage = Damage(shard, bucket, stored.first, stored.count, reason, self._wall())
        try:
            self._writes.put(Call(lambda tables: tables.note_damage(damage, stored)))
            self._token.run_sync_soon(self._tell, damage)
        except (StoreError, AssertionError, trio.RunFinishedError):
            pass  # full, closing or broken: the log has it, and the next opening finds it again
