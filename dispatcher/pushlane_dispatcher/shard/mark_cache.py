"""The dedup marks of closed buckets, in the lease cache: a new owner need not read them all.

The store has them as well, each beside its messages. They are gathered while a bucket is written,
and handed to the cache when it is closed. What comes back counts only if it agrees with the
bucket's row in the store, which says what is stored; else the store is read. So an entry that is
lost, old or false costs a read, and proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import msgspec

from pushlane_dispatcher.core.marks import summarize
from pushlane_dispatcher.shard.lease_guard import LeaseGuard
from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.segment import Segment, SegmentHead, marks_of

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[SegmentHead]).decode


class MarkCache:
    def __init__(self, guard: LeaseGuard, key: ShardKey, epoch: int, most: int) -> None:
        """`most`: marks that are gathered of a bucket; one with more is left to the store."""
        self._guard = guard
        self._key = key
        self._epoch = epoch
        self._most = most
        self._heads: dict[BucketKey, list[SegmentHead]] = {}
        self._counts: dict[BucketKey, int] = {}

    def stored(self, segment: Segment) -> None:
        """A segment is in the store. Segments of a bucket may come in any order."""
        key = segment.bucket
        marks = list(marks_of(segment.first, segment.messages))
        count = self._counts[key] = self._counts.get(key, 0) + len(marks)
        if count > self._most:
            self._heads.pop(key, None)
            return
        head = SegmentHead(segment.first, len(segment.messages), 0, 0, marks)
        self._heads.setdefault(key, []).append(head)

    async def closed(self, bucket: Bucket, ttl_ms: int) -> None:
        """Nothing more comes into a bucket. `Fenced` comes through."""
        heads = self._heads.pop(bucket.key, [])
        heads.sort(key=lambda head: head.first)
        if self._counts.pop(bucket.key, 0) and is_whole(bucket, heads):
            lot = name_of(bucket.key), _encode(heads)
            await self._guard.remember(self._key, self._epoch, [lot], ttl_ms)


async def recall(guard: LeaseGuard, key: ShardKey, bucket: Bucket) -> list[SegmentHead] | None:
    """The heads of a closed bucket, without sizes and times; None: the store must be asked."""
    name = name_of(bucket.key)
    lot = (await guard.recall(key, [name])).get(name)
    if lot is None:
        return None
    try:
        heads = _decode(lot)
    except msgspec.MsgspecError:
        return None
    return heads if is_whole(bucket, heads) and agrees(bucket, heads) else None


def name_of(key: BucketKey) -> str:
    return f"{key.lane}/{key.epoch}/{key.start}"


def is_whole(bucket: Bucket, heads: Iterable[SegmentHead]) -> bool:
    """Whether these are all segments that the bucket's row speaks of, and no more."""
    spans = [(head.first, head.first + head.count) for head in heads]
    ends = [(bucket.first, bucket.first), *spans, (bucket.first + bucket.count,) * 2]
    return all(before[1] == after[0] for before, after in pairwise(ends))


def agrees(bucket: Bucket, heads: Iterable[SegmentHead]) -> bool:
    """Whether the marks are as many as the bucket's row says, and of the same producers."""
    found, row = summarize(mark for head in heads for mark in head.marks), bucket.marks
    if row.producers is None:  # they were too many to be listed
        return (found.ids, found.transfers) == (row.ids, row.transfers)
    return found == row
