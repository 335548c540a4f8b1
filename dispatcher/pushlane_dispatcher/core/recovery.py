"""Recovery: from the rows of a store to what a new owner knows, and the seal that it writes.

For each older epoch that no seal speaks of yet, this finds where the gap-free stored prefix of
each lane ends and which settlement flush was the last whole one (`pushlane_storage.existing`).
Whatever lies beyond was never confirmed to anybody, and from the seal on it does not exist.

Segments are looked at only where a bucket was cut off. Which of the others hold dedup marks that
still count is for `wanted_marks` to say: a backlog may have millions of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from pushlane_dispatcher.core.marks import summarize
from pushlane_dispatcher.core.recovered import Recovered, RecoveredBucket
from pushlane_storage.bucket import CONTROL, Bucket
from pushlane_storage.existing import Folding, ShardRows, count_flushes, count_stored
from pushlane_storage.seal import Seal, Seals
from pushlane_storage.segment import DedupMark, SegmentHead
from pushlane_storage.seq import counter_of


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
