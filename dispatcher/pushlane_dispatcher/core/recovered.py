"""What a new owner knows of a shard before it serves: the fold of everything stored.

`recover` finds it in the rows of a store. For each older epoch that no seal speaks of yet, it finds
where the gap-free stored prefix of each lane ends and which settlement flush was the last whole one
(`pushlane_storage.seal`). Whatever lies beyond was never confirmed to anybody, and from the seal on
it does not exist. `restore` is how a fresh shard takes it in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import Lane, LiveBucket
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.marks import Marks, summarize
from pushlane_dispatcher.core.snapshot import Snapshot, outlive, restore_holder
from pushlane_leases.interface import LeaseRun
from pushlane_storage.bucket import CONTROL, Bucket
from pushlane_storage.message import MESSAGE_OVERHEAD, Message, size_of
from pushlane_storage.note import Note
from pushlane_storage.seal import Folding, Seal, Seals, ShardRows, count_flushes, count_stored
from pushlane_storage.segment import DedupMark, SegmentHead
from pushlane_storage.seq import counter_of
from pushlane_storage.settlement import BucketState
from pushlane_storage.tally import Tally

if TYPE_CHECKING:
    from pushlane_dispatcher.core.shard import Shard


class RecoveredBucket(msgspec.Struct):
    """A bucket that an older owner wrote. It is over: closed as far as this owner cares."""

    row: Bucket
    """With the counts that exist: what lies beyond a seal is not counted."""
    state: BucketState


class RecoveredLease(msgspec.Struct):
    """A grant that the lease cache knew and the settlement log did not end."""

    run: LeaseRun
    n: int
    """Its receipt's number, one of the run's."""
    seq: int
    message: Message


class Recovered(msgspec.Struct):
    predecessor: int = 0
    """The epoch of the last owner that could serve. Only its word on leases counts: an older
    one's leases may have been granted again by it."""
    buckets: list[RecoveredBucket] = []
    """Not drained, by lane and first seq."""
    drained: list[Bucket] = []
    """Drained and not dropped yet."""
    marks: list[tuple[int, DedupMark]] = []
    """(lane, mark) of all that was looked at, in any order."""
    floors: dict[str, int] = {}
    """By producer: up to which number nothing was looked at."""
    note: Note | None = None
    """What the predecessors left."""
    purges: list[tuple[int, int]] = []
    """The rows of purges, by (owner, n)."""
    leases: list[RecoveredLease] = []
    snapshot: Snapshot | None = None
    """What the predecessor handed over, if it did."""
    tally: Tally | None = None
    """None: nobody counted what happened before."""

    @property
    def newest_at(self) -> int:
        """When its newest message was published, by whoever stored it; 0: there is none."""
        rows = (*self.drained, *(found.row for found in self.buckets))
        return max((row.last_at for row in rows), default=0)


# What of the rows exists


def recover(rows: ShardRows, epoch: int) -> tuple[Seal, Recovered]:
    """The seal to write, and what the owner with this epoch starts from (leases come later)."""
    seals = Seals(rows.seals)
    older = [bucket for bucket in rows.buckets if bucket.key.epoch < epoch]
    counters, existing = _count_counters(rows, seals, older)
    flushes = count_flushes(rows, seals, {row.key: row for row in existing if not row.drained})
    folding = Folding(rows, flushes)
    recovered = Recovered(max((seal.owner for seal in rows.seals), default=0), note=rows.note)
    control = rows.settlements.get(CONTROL, ())
    recovered.purges = [(row.owner, row.n) for row in control if row.owner < epoch]
    for bucket in existing:
        if bucket.drained:
            recovered.drained.append(bucket)
            continue
        recovered.buckets.append(RecoveredBucket(bucket, folding.state(bucket)))
        remember(recovered, bucket, rows.heads.get(bucket.key, ()))
    recovered.buckets.sort(key=lambda found: (found.row.key.lane, found.row.first))
    seal = Seal(
        epoch,
        [(lane, old, count) for (lane, old), count in sorted(counters.items())],
        sorted(flushes.items()),
    )
    return seal, recovered


def _count_counters(
    rows: ShardRows, seals: Seals, buckets: list[Bucket]
) -> tuple[dict[tuple[int, int], int], list[Bucket]]:
    """Per lane and older epoch how many counters exist, and the buckets with what exists."""
    counters: dict[tuple[int, int], int] = {}
    existing: list[Bucket] = []
    for bucket, count in count_stored(rows, seals, buckets):
        if count:
            counters[bucket.key.lane, bucket.key.epoch] = counter_of(bucket.first) + count
        # One in which nothing exists comes along too: it is drained, and dropped.
        existing.append(_shorten(bucket, count, rows.heads.get(bucket.key, ())))
    return counters, existing


def _shorten(bucket: Bucket, count: int, heads: Iterable[SegmentHead]) -> Bucket:
    """A bucket's row with the counts that exist."""
    if bucket.closed and count == bucket.count:
        return bucket
    if bucket.closed:  # by an owner that was none any more: nobody looked at its segments
        return msgspec.structs.replace(
            bucket, count=count, size=bucket.size * count // bucket.count
        )
    inside = [head for head in heads if head.first < bucket.first + count]
    shorter = msgspec.structs.replace(
        bucket,
        count=count,
        size=sum(head.size for head in inside),
        last_at=max((head.last_at for head in inside), default=0),
    )
    summary = summarize(existing_marks(shorter, inside))
    return msgspec.structs.replace(shorter, marks=summary)


def remember(recovered: Recovered, bucket: Bucket, heads: Iterable[SegmentHead]) -> None:
    """Take in the marks of what exists of a bucket."""
    recovered.marks += [(bucket.key.lane, mark) for mark in existing_marks(bucket, heads)]


def existing_marks(bucket: Bucket, heads: Iterable[SegmentHead]) -> Iterator[DedupMark]:
    end = bucket.first + bucket.count
    for head in heads:
        for mark in head.marks:
            if mark.seq < end:
                yield mark if mark.seq + mark.count <= end else mark.cut(end)


# How a shard takes it in


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
        _restore_lease(shard, lease, now, wall)
    if recovered.snapshot is not None:
        for holder in recovered.snapshot.holders:
            restore_holder(shard, holder, recovered.snapshot.since, now)
    for lane in shard.window.order:
        for bucket in list(lane.buckets):
            shard.close_bucket(lane, bucket, now)


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
    run = lease.run
    lane = shard.window.lane(run.lane)
    bucket = lane.bucket_of(lease.seq)
    if bucket is None or lease.seq in bucket.state.settled or lease.seq in lane.entries:
        return
    void = bucket.state.voids.get(lease.seq)
    if void is not None and void.fence >= run.fence:
        return
    subscription = shard.consumers.subscriptions.get(run.prefix)
    if subscription is None:
        subscription = outlive(shard, run.prefix, run.session, run.lease_ms, now)
        if subscription is None:
            return
    left = max(0, run.deadline - wall)
    if shard.clock_suspect:  # nobody who is gone for good may hold it for as long as that
        left = min(left, run.lease_ms)
    entry = _bare(lane, lease.seq, State.LEASED if run.started else State.RESERVED, now)
    entry.message = lease.message
    entry.size = size_of(lease.message)
    shard.window.bodies.count(1, entry.size)
    entry.attempts = run.attempts + run.started
    entry.deliveries = run.deliveries
    entry.fence, entry.n, entry.deadline = run.fence, lease.n, now + left
    entry.holder = subscription
    entry.key = lease.message.key
    entry.expires_at = lease.message.expires_at
    if entry.key is not None:
        shard.window.keys.claim(entry.key, entry)
    shard.life.born(entry.state)
    subscription.held[lease.n] = entry
    shard.consumers.adopted(subscription, entry)
