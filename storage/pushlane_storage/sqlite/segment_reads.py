"""Reading segments: whatever comes out of the tables is checked before anybody gets it.

A damaged segment is left out, and reported. Of a message that is known to be stored, a gap means
that it is damaged: nothing else makes one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.message import Message
from pushlane_storage.segment import DamagedSegment, Segment, SegmentHead, StoredSegment
from pushlane_storage.sqlite import reads
from pushlane_storage.sqlite.reader import Reading


class Found(msgspec.Struct, frozen=True):
    """A damaged segment as it was found."""

    shard: ShardKey
    bucket: BucketKey
    stored: StoredSegment
    reason: str


class SegmentReads:
    """One read, in a reader's thread."""

    def __init__(self) -> None:
        self.damaged: list[Found] = []

    def segments(
        self, reading: Reading, shard: ShardKey, key: BucketKey, start: int, limit: int
    ) -> list[Segment]:
        found: list[Segment] = []
        count, after = 0, None
        while True:
            stored = reading.fetch(reads.segments, shard, key, start, limit - count, after)
            whole = list(self._unpack(shard, key, stored))
            for segment in whole:
                if segment.last >= start:
                    found.append(segment)
                    count += len(segment.messages)
            if len(whole) == len(stored) or (found and count >= limit):
                return found
            after = stored[-1].first  # some are damaged: go on behind them

    def messages(
        self, reading: Reading, shard: ShardKey, key: BucketKey, seqs: Sequence[int]
    ) -> dict[int, Message]:
        stored = reading.fetch(reads.segments_of, shard, key, seqs)
        wanted = set(seqs)
        return {
            seq: message
            for segment in self._unpack(shard, key, stored)
            for seq, message in enumerate(segment.messages, segment.first)
            if seq in wanted
        }

    def heads(self, reading: Reading, shard: ShardKey, key: BucketKey) -> list[SegmentHead]:
        """The heads of damaged segments, too, as far as they can be known: their places count."""
        heads: list[SegmentHead] = []
        for stored in reading.fetch(reads.heads, shard, key):
            try:
                heads.append(stored.unpack())
            except DamagedSegment as error:
                whole = reading.fetch(reads.segments_of, shard, key, [stored.first])[0]
                self.damaged.append(Found(shard, key, whole, str(error)))
                heads.append(whole.rebuild_head(key))
        return heads

    def _unpack(
        self, shard: ShardKey, key: BucketKey, stored: Iterable[StoredSegment]
    ) -> Iterator[Segment]:
        for one in stored:
            try:
                yield one.unpack_all(key)
            except DamagedSegment as error:
                self.damaged.append(Found(shard, key, one, str(error)))
