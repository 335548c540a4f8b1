"""Seals, and what exists of a shard by them: the gap-free stored prefix of each bucket, and the
whole settlement flushes.

A new owner writes a seal before it serves, so that its predecessors are over for good. For each
older epoch a seal says where the gap-free stored prefix of each lane ends, and which
settlement flush was the last whole one. What lies beyond does not exist, also when a paused
predecessor writes it after all, also for every later owner. The newest seal decides: its writer
had read all seals before it and carried on what they say, while a seal that lands late comes
from an owner that never served.

A new owner asks what exists of its predecessors' rows before it seals them, and so does whoever
reads a store from outside: the same code, so they can't disagree on which messages there are, and
on what became of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec

from pushlane_storage.bucket import CONTROL, Bucket, BucketKey
from pushlane_storage.note import Note
from pushlane_storage.segment import SegmentHead
from pushlane_storage.seq import counter_of
from pushlane_storage.settlement import BucketState, Purge, Settlement, fold

_ALL = 1 << 62


class Seal(msgspec.Struct, frozen=True):
    """Written once by the owner with this epoch."""

    owner: int
    counters: list[tuple[int, int, int]]
    """(lane, older epoch, counters stored: 0 says none)."""
    flushes: list[tuple[int, int]]
    """(older epoch, settlement flushes that count: 0 says none)."""


class Seals:
    """All seals of a shard, read together."""

    def __init__(self, seals: Iterable[Seal] = ()) -> None:
        newest = max(seals, key=lambda seal: seal.owner, default=Seal(0, [], []))
        self._sealed = newest.owner
        self._counters = {(lane, epoch): count for lane, epoch, count in newest.counters}
        self._flushes = dict(newest.flushes)

    def counters(self, lane: int, epoch: int) -> int | None:
        """How many counters of a lane's epoch exist; None when no seal speaks of it yet."""
        if epoch < self._sealed:
            return self._counters.get((lane, epoch), 0)
        return None

    def flushes(self, epoch: int) -> int | None:
        """How many settlement flushes of an epoch count; None when no seal speaks of it yet."""
        if epoch < self._sealed:
            return self._flushes.get(epoch, 0)
        return None


# What exists


class Outline(NamedTuple):
    """What a shard's other rows are found by."""

    seals: list[Seal]
    buckets: list[Bucket]
    """All that were not dropped, by key."""
    note: Note | None


class ShardRows(msgspec.Struct):
    """Everything that recovery needs to have read."""

    seals: list[Seal]
    buckets: list[Bucket]
    heads: dict[BucketKey, list[SegmentHead]]
    """Of the buckets that are not closed."""
    settlements: dict[BucketKey, list[Settlement]]
    """Of the undrained buckets and `CONTROL`."""
    note: Note | None = None


class Folding:
    """What the valid settlements of a shard say of its buckets."""

    def __init__(self, rows: ShardRows, flushes: dict[int, int]) -> None:
        self._settlements = rows.settlements
        self._flushes = flushes
        self._seals = {seal.owner: dict(seal.flushes) for seal in rows.seals}
        self._purges = _purges(rows.settlements.get(CONTROL, ()), flushes)

    def state(self, bucket: Bucket) -> BucketState:
        """`bucket` has the counts that exist."""
        rows = self._settlements.get(bucket.key, ())
        state = fold(row for row in rows if _counts(row, self._flushes))
        if bucket.drained:
            # Whoever sealed its owners off had not read its rows, so the seal doesn't count them.
            # They were confirmed all the same, or the bucket would not be drained.
            seen = self._seen_in(rows)
            others = (row for row in rows if not _counts(row, self._flushes) and _counts(row, seen))
            rest = fold(others).checkpoint()
            state.apply(Settlement(bucket.key, 0, 0, [], acked=rest.acked, gone=rest.gone))
        purge = self._purges.get(bucket.key.lane)
        if purge is not None:
            state.purge(purge, bucket.first, bucket.first + bucket.count - 1)
        return state

    def _seen_in(self, rows: Iterable[Settlement]) -> dict[int, int]:
        """How many flushes can count in a bucket that is drained.

        Who settled something in it had read it before, and its seal says what it saw of the one
        who did so before: what that one wrote later was a zombie's.
        """
        owners = sorted({row.owner for row in rows})
        found = dict.fromkeys(owners, _ALL)
        for owner, successor in pairwise(owners):
            if successor in self._seals:
                found[owner] = self._seals[successor].get(owner, 0)
        return found


def fold_shard(rows: ShardRows) -> Iterator[tuple[Bucket, BucketState]]:
    """Each bucket with the count that exists, and what became of its messages."""
    seals = Seals(rows.seals)
    existing = [
        msgspec.structs.replace(bucket, count=count)
        for bucket, count in count_stored(rows, seals, rows.buckets)
    ]
    undrained = {bucket.key: bucket for bucket in existing if not bucket.drained}
    folding = Folding(rows, count_flushes(rows, seals, undrained))
    for bucket in existing:
        yield bucket, folding.state(bucket)


def count_stored(
    rows: ShardRows, seals: Seals, buckets: Iterable[Bucket]
) -> Iterator[tuple[Bucket, int]]:
    """Each bucket, by lane and first seq, with how many messages of it exist."""
    for bucket in sorted(buckets, key=lambda bucket: (bucket.key.lane, bucket.first)):
        # A bucket is begun only when the one before is stored whole, and drained ones between
        # may be dropped: so gaps are only looked for inside a bucket.
        first = counter_of(bucket.first)
        end = first + _stored(bucket, rows.heads.get(bucket.key, ()))
        sealed = seals.counters(bucket.key.lane, bucket.key.epoch)
        if sealed is not None:
            end = min(end, sealed)
        yield bucket, max(0, end - first)


def _counts(row: Settlement, flushes: dict[int, int]) -> bool:
    return row.n < flushes.get(row.owner, 0)


def count_flushes(
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


def _purges(control: Iterable[Settlement], flushes: dict[int, int]) -> dict[int, Purge]:
    """The newest purge of each lane: it covers all before it."""
    purges = {}
    for row in sorted(control, key=lambda row: (row.owner, row.n)):
        if _counts(row, flushes):
            purges.update({purge.lane: purge for purge in row.purges})
    return purges
