"""Reporting damage: each damaged segment is counted, logged, kept durably and told, once.

It is in the quarantine before the read that found it returns: whoever sees a gap can ask why.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from pushlane_storage.damage import Damage
from pushlane_storage.interface import StoreError
from pushlane_storage.sqlite.segment_reads import Found
from pushlane_storage.sqlite.stats import Stats
from pushlane_storage.sqlite.tables import Tables

log = logging.getLogger(__name__)

Write = Callable[[Callable[[Tables], None]], Awaitable[None]]


class DamageReport:
    """Used by the trio tasks that read."""

    def __init__(
        self,
        write: Write,
        tell: Callable[[Damage], None],
        wall: Callable[[], int],
        stats: Stats,
        bound: int,
    ) -> None:
        """Up to `bound` places are remembered as known; beyond it nothing is kept or told."""
        self._write = write
        self._tell = tell
        self._wall = wall
        self._stats = stats
        self._bound = bound
        self._known: set[tuple[object, ...]] = set()

    async def take(self, found: Sequence[Found]) -> None:
        for one in found:
            place = (one.shard, one.bucket, one.stored.first)
            if place not in self._known and len(self._known) < self._bound:
                self._known.add(place)
                await self._report(one)

    async def _report(self, found: Found) -> None:
        stored = found.stored
        damage = Damage(
            found.shard, found.bucket, stored.first, stored.count, found.reason, self._wall()
        )
        self._stats.damaged += 1
        log.error("a damaged segment is set aside: %s", damage)
        self._tell(damage)
        try:
            await self._write(lambda tables: tables.note_damage(damage, stored))
        except StoreError as error:  # the read itself is as good as it can be
            log.error("it could not be kept: %r", error)
