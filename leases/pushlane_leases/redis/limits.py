"""The bounds of the Redis cache, and why."""

import msgspec


class RedisLimits(msgspec.Struct, frozen=True, kw_only=True):
    # Calls
    pending: int = 10_000
    """Calls that wait for the connection: a shard has one at a time, and a node 10,000 shards."""
    commands: int = 256
    """Commands in one round trip: past this a longer pipeline is no faster, only later."""
    chunk: int = 500
    """Runs, receipts, ids in one script call: Redis does nothing else for that time, 1 to 3 ms."""
    connect_ms: int = 1_000
    """How long a connection may take."""
    answer_ms: int = 2_000
    """How long an answer may take; as `cache_claim_ms` of the dispatcher, the longest wait."""

    seen: int = 10_000
    """Shards of which is noticed that Redis forgot them: as many as a node opens."""

    # What is kept
    shard_runs: int = 100_000
    """Runs of one shard: ten full credits of subscriptions that settle at random, 200 bytes each.
    Past it some go, whichever: a cache may forget."""
    epoch_ms: int = 24 * 3_600_000
    """How long an epoch is kept after its owner's last call, at least. The longest lease is 12 h:
    so whatever a run says is still worth something, the epoch that it was written in is known,
    and a stale owner that wakes up in between finds it. Where runs are kept for longer, so is
    the epoch."""
    grace_ms: int = 60_000
    """What is over is kept for this much longer: Redis' clock and a node's may differ, and whether
    a lease is over is decided by the node that asks."""
