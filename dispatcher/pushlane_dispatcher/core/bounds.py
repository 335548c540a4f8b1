"""The bounds of one shard: everything that could grow has one, with its reason.

The wire's limits (what a client may send) are in `pushlane.wire.limits`; what a user may set on
a queue is its configuration. These are the dispatcher's own.
"""

import msgspec

from pushlane_storage.dropping import TRANSFER_WINDOW_MS

__all__ = ["CLOCK_TOLERANCE_MS", "TRANSFER_WINDOW_MS", "Bounds"]

CLOCK_TOLERANCE_MS = 60_000
"""How far clocks may disagree before nothing ends for its age any more."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    window_messages: int = 10_000
    """Messages whose bodies are in memory; the backlog behind them stays in the store."""
    window_bytes: int = 16 << 20
    """The same in bytes."""
    positions: int = 100_000
    """Blocked messages that are kept in memory, of all keys. Others are passed over and read again
    in their turn: slower for their keys, with no effect on others. Also the ready messages that
    may wait for their bodies before more of the schedule index is read."""
    key_positions: int = 1_000
    """Blocked messages of one key that are kept in memory. It costs a read of the store each time
    they are used up."""
    delayed: int = 20_000
    """Delayed messages in memory. Beyond it the later half is left to the schedule index."""
    retrying: int = 1_000_000
    """Messages in backoff, or on their way to another queue: each has a row in memory until it
    ends. At the bound nothing new is paged in until some of them are due, or gone."""
    page_messages: int = 1_000
    """Messages asked of the store in one read."""
    segment_messages: int = 500
    """Messages in one flush: one row of the store. What is read back comes a segment at a time;
    one that outgrows the processor's caches makes every message of a backlog more expensive."""
    segment_bytes: int = 1 << 20
    """The same in bytes: a large row is slow to write and to repair."""
    flushes: int = 32
    """Appends of one lane under way at once: hides a replicated store's latency."""
    pending_messages: int = 50_000
    """Published messages that wait for their flush; beyond it `throttled`."""
    pending_bytes: int = 64 << 20
    """The same in bytes."""
    bucket_ms: int = 600_000
    """A bucket rolls at this age …"""
    bucket_messages: int = 20_000
    """… or this many messages …"""
    bucket_bytes: int = 16 << 20
    """… or this size."""
    checkpoint_rows: int = 64
    """Settlement rows of a bucket before the next one carries its whole state."""
    patience_ms: int = 5
    """How long acks wait for a publish to be stored with, when nobody waits for them …"""
    patience_messages: int = 5_000
    """… unless there are this many."""
    dedup_ids: int = 1_000_000
    """Dedup ids remembered; beyond it publishes with ids are `throttled`."""
    producers: int = 100_000
    """Producers whose sequences are remembered, about 450 bytes each; beyond it new ones are
    `throttled`, until others were silent for the queue's dedup window."""
    producer_percent: int = 50
    """How much of these, and of `producer_runs`, one key may have: `shares.key_percent`."""
    producer_seqs: int = 1_024
    """Sequence numbers remembered per producer."""
    producer_runs: int = 4_000_000
    """Runs of sequence numbers remembered in all, 24 bytes each: a batch is one run. At the bound
    a producer's older numbers no longer say which ids they got; then it is `throttled`."""
    kept_runs: int = 20_000
    """Runs of numbers that outlive their buckets, in the shard's note, a megabyte at most; of the
    producers beyond it repeats of numbers whose buckets are gone are `duplicate` without an id."""
    note_ms: int = 30_000
    """The least time between two notes for buckets that are to be dropped."""
    bucket_producers: int = 512
    """Producers that a bucket's row names; of one with more, all marks are read at recovery."""
    retention_messages: int = 1_000
    """Messages past their retention that end together: a tick must be short."""
    retention_sweep_ms: int = 10_000
    """How long what was in flight past its retention is left alone before the next look."""
    retention_runs: int = 1_000
    """Runs of messages that retention ended and `explain` still knows of when their rows are gone.
    Older ones are `unknown` then."""
    dropped_messages: int = 1_000
    """Messages that an overflowing queue lets go at once; it goes on a little later."""
    drained_buckets: int = 16
    """Drained buckets kept although nobody needs their marks: `explain` still knows their ends."""
    subscriptions: int = 10_000
    """Subscriptions of one shard, and receives whose messages are not settled; beyond it
    `throttled`. Shared: see `[shares]`."""
    credit: int = 10_000
    """The most credit a subscription may ask for."""
    taken: int = 1_024
    """Messages of an `ack: "none"` subscription whose settlement is being written."""
    settled_runs: int = 1_024
    """Runs of settled receipts remembered per subscription, to answer `duplicate`."""
    transfers: int = 256
    """Transfers to other queues under way at once."""
    leaving: int = 10_000
    """Messages on their way out before an overflowing queue refuses publishes instead."""
    transfer_retry_ms: int = 1_000
    """How long transfers to a queue wait when it takes nothing, the first time …"""
    transfer_retry_max_ms: int = 30_000
    """… and at most, doubled from time to time."""
    redrive_wait_ms: int = 60_000
    """How long redriven messages wait for room in the queue they go to, before they come back."""
    parked_ms: int = 300_000
    """How long a dead letter that its queue refuses for good waits before it is offered again."""
    fetch_messages: int = 256
    """Messages read singly, by seq, in one read."""
    horizon_ms: int = 60_000
    """How far ahead the schedule index is read."""
    steal_ms: int = 1_000
    """How long a consumer is idle before it gets what another one only reserved."""
    adopt_ms: int = 5_000
    """How long what a consumer had only reserved waits for its session after a crash of the owner:
    a session that is still there says so at once. In a cluster it is at least `resume_ms`: a client
    whose server died too goes on with its session at another one."""
    expiry_sweep_ms: int = 1_000
    """The least time between two sweeps for expired messages."""
    max_limit: int = 100_000_000
    """How far `auto_expand` may raise `max_messages`: the tenant's quota."""
