"""The bounds of the shell around the shards: how long it waits, how much it keeps, and why.

`core.bounds` has those of one shard, `pushlane.wire.limits` what a client may send.
"""

import msgspec

PART_BYTES = 1024
"""What a shard needs in memory to go on at all, at least."""


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
    """Publishers of one shard that wait for room; one more is `throttled`. Shared."""
    room_ms: int = 5_000
    """How long a publisher waits for room; then it is `throttled`."""

    # Time
    tick_ms: int = 5
    """The least time between two looks at the timers, should one of them stay due."""
    clock_ms: int = 10_000
    """How often the system's clock, and the store's, are compared with the time that passed."""

    # The lease cache
    cache_ms: int = 200
    """How long the lease cache may take; deliveries wait for it."""
    cache_claim_ms: int = 2_000
    """How long the lease cache may take to say what is out when a shard opens: it may be a lot."""
    cache_failures: int = 3
    """Failures in a row after which it is left alone …"""
    cache_rest_ms: int = 5_000
    """… for this long; then one call tries it again."""
    catch_ups: int = 100
    """Shards at once that tell a cache what it missed, every `cache_ms`: one that is just back
    must not be overloaded."""
    cached_marks: int = 20_000
    """Dedup marks of a bucket that the cache is given; those of one with more are read from the
    store. As many as a bucket has messages: a megabyte."""
    forgets: int = 1_000
    """Ended receipts that wait while deliveries go first."""

    # Looking
    views: int = 4
    """Shards at once that are looked at while nobody here has them open: each may read a lot."""
    peek_ms: int = 10_000
    """How long a peek, or another look at a queue or message, may read, with the time it waits for
    one of the `views`; then it is `unavailable`."""

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
    """Shards that are open at once. At the bound an idle one is closed, else `throttled`. Shared:
    at the share of who opens one more, an idle one of theirs is closed (see `[shares]`)."""
    windows_bytes: int = 2 << 30
    """Bodies of messages that all open shards keep in memory together, about: each has a window of
    `shard.window_bytes`, and there may be `open_shards` of them. Once half of this is used, a shard
    keeps an equal part of the other half only (100 KiB), and reads the store more often."""
    windows_ms: int = 100
    """How often shards that were limited by that check whether there is room again."""
    idle_ms: int = 600_000
    """A queue that nobody used for this long is closed."""
    shared_idle_ms: int = 15_000
    """`idle_ms` where other servers may want the queue's slots, which are given back then. Times
    the number of openings of which messages are left, up to `shard.bucket_ms`: each opening reads
    what those before it left, so a slow producer without consumers is not to open the queue every
    time."""
    openings: int = 16
    """Shards that recover at once: each may read a lot."""
    recovery_reads: int = 8
    """Reads of one recovering shard under way at once."""
    due_ms: int = 60_000
    """How often the store is asked for shards that nobody has open and in which something is due:
    messages that expire, or that wait to go to another queue."""
    due_shards: int = 100
    """Shards of one slot that are opened for that at a time."""
    open_ms: int = 60_000
    """How long an opening may take, with its wait for the slot and its reads."""
    compare_ms: int = 3_000
    """How often the slots' rows are compared with what is served, where others could take one."""
    fenced_ms: int = 10_000
    """How long a server is not ready after others took over what it had: new clients had better go
    to them, until it is clear that it is well."""
    claims: int = 3
    """How often a slot is claimed for one opening before that fails."""

    # Handing over
    hand_bytes: int = 8 << 20
    """What the leases of one shard may take when they are handed to its next server. If they take
    more, nothing is handed over: what is out is delivered again, unless Redis knows of it."""
    handed_bytes: int = 64 << 20
    """Leases of shards that this server was handed, until the shards open here; the oldest go."""
    handed_ms: int = 60_000
    """How long they are kept."""

    # Queues
    queue_rows: int = 10_000
    """Queue rows remembered; the store has the rest."""
    row_ms: int = 2_000
    """How old a cached row may be: other servers change and delete queues, too. That of every open
    queue is read as often."""
    row_reads: int = 64
    """Rows of open queues that are read at once for that, where others could have changed them."""
    finishing: int = 16
    """Deletions that others began, or have a part in, and this server goes on with at once."""
    finish_ms: int = 200
    """How often who deletes a queue looks whether others have done their part. It waits as long as
    they need: `row_ms` and `close_ms`."""

    def __post_init__(self) -> None:
        least = 2 * PART_BYTES * self.open_shards
        if self.windows_bytes < least:
            raise ValueError(
                f"windows_bytes is {self.windows_bytes}, too little for open_shards ="
                f" {self.open_shards}: at least {least}, or fewer shards"
            )
