"""How a shard takes in what was stored before it: buckets, dedup marks, leavers, leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import Lane, LiveBucket
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.marks import Marks
from pushlane_dispatcher.core.recovered import Recovered, RecoveredBucket, RecoveredLease
from pushlane_dispatcher.core.subscription import Subscription

if TYPE_CHECKING:
    from pushlane_dispatcher.core.shard import Shard

from pushlane_storage.message import MESSAGE_OVERHEAD, size_of

RECEIPT_EPOCH_BITS = 32
"""A subscription that outlives its owner goes on with receipt numbers from here times the epoch.

Nobody knows which numbers the old owner used last; a number that is used twice would let a stale
receipt settle another message.
"""


def restore(shard: Shard, recovered: Recovered, now: int) -> None:
    """Fill a fresh shard. Effects that this asks for stand in its list like all others."""
    wall = now + shard.offset
    judged = 0 if shard.clock_suspect else wall  # then nothing is old
    for found in recovered.buckets:
        _restore_bucket(shard, found, now)
    leaving = [
        entry for found in recovered.buckets for entry in _restore_leaving(shard, found, now)
    ]
    for entry in sorted(leaving, key=lambda entry: entry.number):
        shard.departures.decided(entry, now)
    if recovered.note is not None:
        shard.notes.restore(recovered.note, now, wall)
    for lane_number, mark in sorted(recovered.marks, key=lambda item: item[1].published_at):
        shard.dedup.restore(mark, lane_number, now, judged)
    for producer, number in recovered.floors.items():
        shard.dedup.producers.restore_floor(producer, number)
    shard.dedup.producers.restored(recovered.note)
    for row in recovered.drained:  # now it is known which of their marks are needed
        shard.drop_later(row, now)
    for lease in recovered.leases:
        if lease.owner == recovered.predecessor:
            _restore_lease(shard, lease, now, wall)
    for lane in shard.window.order:
        for bucket in list(lane.buckets):
            shard.close(lane, bucket, now)


def _restore_bucket(shard: Shard, found: RecoveredBucket, now: int) -> None:
    row = found.row
    lane = shard.window.lane(row.key.lane)
    marks = Marks(shard.bounds.bucket_producers, row.marks)
    bucket = LiveBucket(row.key, row.first, now, marks)
    bucket.assigned = bucket.count = row.count
    bucket.assigned_size = bucket.size = row.size
    bucket.last_at = row.last_at
    bucket.rolled = True
    bucket.closed = row.closed
    bucket.state = found.state
    lane.buckets.append(bucket)
    lane.cursor = min(lane.cursor, row.first)
    shard.overflow.recount(bucket)


def _restore_leaving(shard: Shard, found: RecoveredBucket, now: int) -> list[Entry]:
    lane = shard.window.lane(found.row.key.lane)
    entries = []
    for leaving in found.state.leaving.values():
        entry = _bare(lane, leaving.seq, State.LEAVING, now)
        entry.cause, entry.to, entry.number = leaving.cause, leaving.to, leaving.number
        entry.attempts, entry.error = leaving.attempts, leaving.error
        entry.deliveries, entry.fence = leaving.deliveries, leaving.fence
        entries.append(entry)
    shard.life.born(State.LEAVING, len(entries))
    return entries


def _bare(lane: Lane, seq: int, state: State, now: int) -> Entry:
    entry = Entry(seq, lane, None, MESSAGE_OVERHEAD, state, now)
    lane.entries[seq] = entry
    return entry


def _restore_lease(shard: Shard, lease: RecoveredLease, now: int, wall: int) -> None:
    """Honour a grant that outlived its owner, unless the log says that it ended."""
    lane = shard.window.lane(lease.lane)
    bucket = lane.bucket_of(lease.seq)
    if bucket is None or lease.seq in bucket.state.settled or lease.seq in lane.entries:
        return
    void = bucket.state.voids.get(lease.seq)
    if void is not None and void.fence >= lease.fence:
        return
    subscription = shard.consumers.subscriptions.get(lease.prefix)
    if subscription is None:
        if shard.consumers.places.is_full:
            return  # the cache can't keep a shard from opening
        subscription = Subscription(
            lease.prefix, lease.session, 1, lease.lease_ms, explicit=True, ack_none=False
        )
        shard.attach(subscription)
        shard.credit(subscription, 0)  # until its session resumes and says
        subscription.next_n = (shard.epoch << RECEIPT_EPOCH_BITS) + 1
        subscription.away_until = now
        subscription.adopt_until = now + shard.bounds.adopt_ms
    left = max(0, lease.deadline - wall)
    if shard.clock_suspect:  # nobody who is gone for good may hold it for as long as that
        left = min(left, lease.lease_ms)
    deadline = now + left
    entry = _bare(lane, lease.seq, State.LEASED if lease.started else State.RESERVED, now)
    entry.message = lease.message
    entry.size = size_of(lease.message)
    shard.window.bodies.resident += 1
    shard.window.bodies.resident_bytes += entry.size
    entry.attempts = lease.attempts + lease.started
    entry.deliveries = lease.deliveries
    entry.fence, entry.n, entry.deadline = lease.fence, lease.n, deadline
    entry.holder = subscription
    entry.key = lease.message.key
    entry.expires_at = lease.message.expires_at
    if entry.key is not None:
        shard.window.keys.claim(entry.key, entry)
    shard.life.born(entry.state)
    subscription.held[lease.n] = entry
    shard.consumers.adopted(subscription, entry)
