"""The bounds of the shell around the shards: how long it waits, how much it keeps, and why.

`core.bounds` has those of one shard, `pushlane.wire.limits` what a client may send.
"""

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    # Writing
    decide_ms: int = 30_000
    """How long a write with an unknown outcome is repeated; then the shard steps down."""
    repeat_base_ms: int = 50
    """The first pause before a write or read is repeated; it doubles …"""
    repeat_max_ms: int = 2_000
    """… up to this."""
    close_ms: int = 10_000
    """How long a shard that closes may finish what it accepted."""

    # Back-pressure
    waiting_publishers: int = 1_000
    """Publishers of one shard that wait for room; one more is `throttled`."""
    room_ms: int = 5_000
    """How long a publisher waits for room; then it is `throttled`."""

    # Time
    tick_ms: int = 5
    """The least time between two looks at the timers, should one of them stay due."""
    clock_ms: int = 10_000
    """The most time between two looks at the wall clock while a timer runs: it may step."""

    # The lease cache
    cache_ms: int = 200
    """How long the lease cache may take; deliveries wait for it."""
    cache_claim_ms: int = 2_000
    """The same for what is out when a shard opens: it may be a lot."""
    cache_failures: int = 3
    """Failures in a row after which it is left alone …"""
    cache_rest_ms: int = 5_000
    """… for this long; then one call tries it again."""
    catch_ups: int = 100
    """Shards at once that tell a cache what it missed, every `cache_ms`: one that is just back
    is not to be overrun."""
    cached_marks: int = 20_000
    """Dedup marks of a bucket that the cache is given; those of one with more are read from the
    store. As many as a bucket has messages: a megabyte."""
    forgets: int = 1_000
    """Ended receipts that wait while deliveries go first."""

    # Looking
    peek_ms: int = 10_000
    """How long a peek may read; then it is `unavailable`."""

    # Usage
    usage: bool = True
    """Whether usage is counted."""
    usage_flush_ms: int = 10_000
    """How often it is written; a crash loses as much of what is not counted exactly."""
    usage_batch: int = 500
    """Shards, or rows of this process, whose counters are written together."""
    usage_rows: int = 100_000
    """Rows of this process that wait to be written. Beyond it the oldest are given up."""

    # Shards
    open_shards: int = 10_000
    """Shards that are open at once. At the bound an idle slot is closed, else `throttled`."""
    idle_ms: int = 600_000
    """A slot none of whose shards was used for this long is closed."""
    openings: int = 16
    """Shards that recover at once: each may read a lot."""
    recovery_reads: int = 8
    """Reads of one recovering shard under way at once."""
    open_ms: int = 60_000
    """How long an opening may take, with its wait for the slot and its reads."""
    compare_ms: int = 3_000
    """How often the slots' rows are compared with what is served, where others could take one."""
    claims: int = 3
    """How often a slot is claimed for one opening before that fails."""
    queue_rows: int = 10_000
    """Queue rows remembered; the store has the rest."""
