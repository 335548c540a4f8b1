"""What a configuration may set below the gateway, which may not import storage itself."""

from __future__ import annotations

from pushlane.wire.limits import DEFAULTS, Limits
from pushlane_dispatcher import config
from pushlane_dispatcher.config import check_config
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.recording.settings import HistorySettings
from pushlane_dispatcher.settings import Settings
from pushlane_storage.cassandra.limits import Limits as CassandraLimits
from pushlane_storage.queue import QueueConfig
from pushlane_storage.sqlite.limits import Limits as SqliteLimits

__all__ = [
    "Bounds",
    "CassandraLimits",
    "HistorySettings",
    "QueueConfig",
    "Settings",
    "SqliteLimits",
    "check_config",
    "queue_ranges",
]


def queue_ranges(limits: Limits = DEFAULTS) -> dict[str, tuple[int, int]]:
    """The least and the most that a queue's numbers may be."""
    return {**config._ranges(limits), "max_bytes": (1, config.MAX_BYTES)}
