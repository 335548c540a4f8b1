"""Recovery: from the rows of a store to what a new owner knows, and the seal that it writes.

For each older epoch that no seal speaks of yet, this finds where the gap-free stored prefix of
each lane ends and which settlement flush was the last whole one. Whatever lies beyond was never
confirmed to anybody, and from the seal on it does not exist.

Segments are looked at only where a bucket was cut off. Which of the others hold dedup marks that
still count is for `wanted_marks` to say: a backlog may have millions of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from pushlane_dispatcher.core.marks import summarize
from pushlane_dispatcher.core.recovered import Recovered, RecoveredBucket
from pushlane_storage.bucket import CONTROL, Bucket, BucketKey
from pushlane_storage.seal import Seal, Seals
from pushlane_storage.segment import DedupMark, SegmentHead
from pushlane_storage.seq import counter_of
from pushlane_storage.settlement import Purge, Settlement, fold


class ShardRows(msgspec.Struct):
    """Everything that recovery needs to have read."""

    seals: list[Seal]
    buckets: list[Bucket]
    heads: dict[BucketKey, list[SegmentHead]]
    """Of the buckets that are not closed."""
    settlements: dict[BucketKey, list[Settlement]]
    """Of the undrained buckets and `CONTROL`."""


def needs_heads(bucket: Bucket) -> bool:
    """Whether a bucket's segments are read: it was cut off."""
    return not bucket.closed


def needs_settlements(bucket: Bucket) -> bool:
    return not bucket.drained


def recover(rows: ShardRows, epoch: int) -> tuple[Seal, Recovered]:
    """The seal to write, and what the owner with this epoch starts from (leases come later)."""
    seals = Seals(rows.seals)
    older = [bucket for bucket in rows.buckets if bucket.key.epoch < epoch]
    counters, existing = _count_counters(rows, seals, older)
    flushes = _count_flushes(rows, seals, {row.key: row for row in existing if not row.drained})
    purges = _purges(rows.settlements.get(CONTROL, ()), flushes)
    recovered = Recovered(max((seal.owner for seal in rows.seals), default=0))
    for bucket in existing:
        if bucket.drained:
            recovered.drained.append(bucket)
            continue
        state = fold(_valid(rows.settlements.get(bucket.key, ()), flushes))
        purge = purges.get(bucket.key.lane)
        if purge is not None:
            state.purge(purge, bucket.first, bucket.first + bucket.count - 1)
        recovered.buckets.append(RecoveredBucket(bucket, state))
        remember(recovered, bucket, rows.heads.get(bucket.key, ()))
    recovered.buckets.sort(key=lambda found: (found.row.key.lane, found.row.first))
    seal = Seal(
        epoch,
        [(lane, old, count) for (lane, old), count in sorted(counters.items())],
        sorted(flushes.items()),
    )
    return seal, recovered


def _valid(rows: Iterable[Settlement], flushes: dict[int, int]) -> list[Settlement]:
    return [row for row in rows if row.n < flushes.get(row.owner, 0)]


def _count_flushes(
    rows: ShardRows, seals: Seals, undrained: dict[BucketKey, Bucket]
) -> dict[int, int]:
    """For each older owner: how many of its settlement flushes count."""
    newest: dict[int, list[Settlement]] = {}
    beyond: dict[int, int] = {}
    for key, partition in rows.settlements.items():
        bucket = undrained.get(key)
        for row in partition:
            found = newest.setdefault(row.owner, [row])
            if row.n > found[0].n:
                newest[row.owner] = [row]
            elif row is not found[0] and row.n == found[0].n:
                found.append(row)
            if bucket is not None and _top(row) >= bucket.first + bucket.count:
                beyond[row.owner] = min(row.n, beyond.get(row.owner, row.n))
    counts = {}
    for owner, last in newest.items():
        sealed = seals.flushes(owner)
        if sealed is not None:
            counts[owner] = sealed
            continue
        # Flushes are written one after the other: only the last can be cut off. A part in a
        # bucket that is drained or dropped by now was there, or it would not be.
        there = {row.bucket for row in last}
        missing = [part for part in last[0].parts if part in undrained and part not in there]
        whole = not missing and (CONTROL not in last[0].parts or CONTROL in there)
        # One that speaks of messages that don't exist landed after their place was read: its
        # writer was no longer the owner.
        counts[owner] = min(last[0].n + whole, beyond.get(owner, last[0].n + 1))
    return counts


def _top(row: Settlement) -> int:
    """The highest seq of which a settlement speaks."""
    ranges = [high for _, high in row.acked] + [gone.high for gone in row.gone]
    singles = [void.seq for void in row.voids] + [leaving.seq for leaving in row.leaving]
    return max(ranges + singles, default=-1)


def _count_counters(
    rows: ShardRows, seals: Seals, buckets: list[Bucket]
) -> tuple[dict[tuple[int, int], int], list[Bucket]]:
    """Per lane and older epoch how many counters exist, and the buckets with what exists."""
    counters: dict[tuple[int, int], int] = {}
    existing: list[Bucket] = []
    for bucket in sorted(buckets, key=lambda bucket: (bucket.key.lane, bucket.first)):
        lane, old = bucket.key.lane, bucket.key.epoch
        # A bucket is begun only when the one before is stored whole, and drained ones between
        # may be dropped: so gaps are only looked for inside a bucket.
        first = counter_of(bucket.first)
        end = first + _stored(bucket, rows.heads.get(bucket.key, ()))
        sealed = seals.counters(lane, old)
        if sealed is not None:
            end = min(end, sealed)
        if end > first:
            counters[lane, old] = end
        # One in which nothing exists comes along too: it is drained, and dropped.
        count = max(0, end - first)
        existing.append(_shorten(bucket, count, rows.heads.get(bucket.key, ())))
    return counters, existing


def _stored(bucket: Bucket, heads: Iterable[SegmentHead]) -> int:
    """How many messages of a bucket are stored without a gap."""
    if bucket.closed:
        return bucket.count
    expected = bucket.first
    for head in heads:
        if head.first != expected:
            break
        expected += head.count
    return expected - bucket.first


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


def _purges(control: Iterable[Settlement], flushes: dict[int, int]) -> dict[int, Purge]:
    """The newest purge of each lane: it covers all before it."""
    purges = {}
    for row in sorted(_valid(control, flushes), key=lambda row: (row.owner, row.n)):
        purges.update({purge.lane: purge for purge in row.purges})
    return purges
