"""What the store must know of a queue when it writes for one of its shards.

It learns it from every queue row that passes through it: whoever opens a shard has read the row.
Only what differs from the default is kept.
"""

from __future__ import annotations

from typing import NamedTuple

from pushlane_storage.bucket import ShardKey
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.ring import Level
from pushlane_storage.queue import QueueConfig, QueueRow

_LEVELS = {"quorum": Level.QUORUM, "all": Level.ALL, "one": Level.ONE}


class Traits(NamedTuple):
    level: Level
    """Of writes of segments and settlements."""
    ttl: int
    """Seconds that segments are kept at the most: twice the retention."""


class Known:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._default = self._of(QueueConfig())
        self._others: dict[str, Traits] = {}

    def learn(self, row: QueueRow) -> None:
        traits = self._of(row.config)
        if traits == self._default:
            self._others.pop(row.id, None)
            return
        if row.id not in self._others and len(self._others) >= self._limits.traits:
            del self._others[next(iter(self._others))]
        self._others[row.id] = traits

    def forget(self, row: QueueRow) -> None:
        self._others.pop(row.id, None)

    def of(self, shard: ShardKey) -> Traits:
        return self._others.get(shard.queue_id, self._default)

    def _of(self, config: QueueConfig) -> Traits:
        seconds = 2 * config.retention_ms // 1000
        ttl = min(max(seconds, self._limits.least_ttl), self._limits.most_ttl)
        return Traits(_LEVELS[config.durability], ttl)
