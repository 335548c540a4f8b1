"""Usage counters: what a tenant's queue did in one minute on one node."""

import msgspec


class UsageKey(msgspec.Struct, frozen=True, order=True):
    tenant: str
    queue: str
    minute: int
    """Unix time in minutes."""
    node: str


class Usage(msgspec.Struct, frozen=True):
    """Counters that add up, by name: published, acked, dead.max_attempts, bytes_in, …"""

    key: UsageKey
    counters: dict[str, int]
