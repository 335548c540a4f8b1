"""Reading segments: whatever comes out of the table is checked before anybody gets it.

Reads begin at the seq that is asked for. So however much was acked before it in the same bucket,
nothing of that is read, and there are no tombstones to walk over: a partition is dropped whole.

The heads of a bucket that was cut off are read with their bodies. A segment of it may stand on a
single replica. To have seen it makes it count, so every later read must see it too, and what a read
doesn't name (its body) Cassandra would not copy to the other replicas when it repairs the row. Of a
closed bucket every segment was confirmed, and is on a quorum: there the heads will do.

What must be there and is not, or is damaged, is read again at ALL before it is given up: with
`durability: "one"` it may stand on a replica that the quorum left out, and of several copies one
may be whole. While a replica is away nobody can know, and the reader waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.cassandra import rows
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.ring import Bound, Level, Range, Ring, Row
from pushlane_storage.cassandra.tables import SEGMENTS
from pushlane_storage.damage import DamageReport
from pushlane_storage.message import Message
from pushlane_storage.segment import DamagedSegment, Segment, SegmentHead
from pushlane_storage.seq import make_seq
from pushlane_storage.work import gather

FIRST_ROWS = 4
"""Rows of the first page, when nothing is known of their sizes yet."""


class Segments:
    def __init__(self, ring: Ring, report: DamageReport, limits: Limits) -> None:
        self._ring = ring
        self._report = report
        self._limits = limits

    async def read(
        self, shard: ShardKey, key: BucketKey, start: int, limit: int, last: int | None
    ) -> list[Segment]:
        """Segments that hold seq >= start, until `limit` messages are there, or `last`."""
        if last is None:
            return await self._read(shard, key, start, limit, Level.QUORUM, self._report)
        found = await self._read(shard, key, start, limit, Level.QUORUM, None)
        if not _is_whole(found, start, limit, last):
            found = await self._read(shard, key, start, limit, Level.ALL, self._report)
        return found

    async def _read(
        self,
        shard: ShardKey,
        key: BucketKey,
        start: int,
        limit: int,
        level: Level,
        report: DamageReport | None,
    ) -> list[Segment]:
        found: list[Segment] = []
        count = 0
        size, page = FIRST_ROWS, await self._page(shard, key, Bound((start,)), FIRST_ROWS, level)
        stored = await self._with_holder(shard, key, start, page, level)
        while True:
            for row in stored:
                segment = _unpack(shard, key, row, report)
                if segment is not None and segment.last >= start:
                    found.append(segment)
                    count += len(segment.messages)
                    if count >= limit:
                        return found
            if len(page) < size:
                return found
            size = self._next_size(page, limit - count)
            after = Bound((page[-1]["first"],), included=False)
            stored = page = await self._page(shard, key, after, size, level)

    async def _with_holder(
        self, shard: ShardKey, key: BucketKey, start: int, page: list[Row], level: Level
    ) -> list[Row]:
        """The page, and before it the segment that may hold `start` in its middle."""
        if start <= make_seq(key.epoch, 0) or (page and page[0]["first"] == start):
            return page
        return [*await self._holder(shard, key, start - 1, level), *page]

    async def _holder(self, shard: ShardKey, key: BucketKey, seq: int, level: Level) -> list[Row]:
        """The last segment that begins no later than a seq."""
        range = Range(SEGMENTS, (*shard, *key), 1, high=Bound((seq,)), reverse=True, level=level)
        return await self._ring.read(range)

    async def _page(
        self, shard: ShardKey, key: BucketKey, low: Bound, size: int, level: Level
    ) -> list[Row]:
        return await self._ring.read(Range(SEGMENTS, (*shard, *key), size, low=low, level=level))

    def _next_size(self, page: list[Row], wanted: int) -> int:
        """How many rows the next page has, judged by the last one."""
        messages = sum(row["count"] or 0 for row in page)
        size = sum(len(row["payload"] or b"") for row in page)
        enough = -(-wanted * len(page) // max(messages, 1))
        fitting = self._limits.page_bytes * len(page) // max(size, 1)
        return max(1, min(enough, fitting, self._limits.page_rows))

    async def messages(
        self, shard: ShardKey, key: BucketKey, seqs: Sequence[int]
    ) -> dict[int, Message]:
        """Single messages; those in one segment are mostly read together."""
        found = await self._messages(shard, key, sorted(set(seqs)), Level.QUORUM, None)
        missing = sorted(set(seqs) - found.keys())
        if missing:
            found |= await self._messages(shard, key, missing, Level.ALL, self._report)
        return found

    async def _messages(
        self,
        shard: ShardKey,
        key: BucketKey,
        todo: list[int],
        level: Level,
        report: DamageReport | None,
    ) -> dict[int, Message]:
        found: dict[int, Message] = {}
        at_once = 1
        while todo:
            wave = todo[:: max(1, len(todo) // at_once)][: self._limits.reads]

            async def read(seq: int) -> list[Row]:
                return await self._holder(shard, key, seq, level)

            done = set(wave)
            for held in (await gather(read, wave, self._limits.reads)).values():
                for row in held:
                    segment = _unpack(shard, key, row, report)
                    if segment is not None:
                        inside = [seq for seq in todo if segment.first <= seq <= segment.last]
                        found |= {seq: segment.messages[seq - segment.first] for seq in inside}
                        done |= set(inside)
            todo = [seq for seq in todo if seq not in done]
            at_once = self._limits.reads
        return found

    async def heads(self, shard: ShardKey, key: BucketKey, *, is_closed: bool) -> list[SegmentHead]:
        """The heads of damaged segments, too, as far as they can be known: their places count."""
        heads: list[SegmentHead] = []
        size = self._limits.page_rows if is_closed else FIRST_ROWS
        range = Range(SEGMENTS, (*shard, *key), size, rows.HEAD if is_closed else ())
        while True:
            page = await self._ring.read(range)
            for row in page:
                try:
                    heads.append(rows.stored_head(row).unpack())
                except DamagedSegment as error:
                    heads.append(await self._mend(shard, key, row["first"], error))
            if len(page) < range.limit:
                return heads
            after = Bound((page[-1]["first"],), included=False)
            size = size if is_closed else self._next_size(page, self._limits.page_rows << 16)
            range = range._replace(low=after, limit=size)

    async def _mend(
        self, shard: ShardKey, key: BucketKey, first: int, error: DamagedSegment
    ) -> SegmentHead:
        [row] = await self._holder(shard, key, first, Level.QUORUM)
        stored = rows.stored_segment(row)
        self._report.take(shard, key, stored, str(error))
        return stored.rebuild_head(key)


def _unpack(
    shard: ShardKey, key: BucketKey, row: Row, report: DamageReport | None
) -> Segment | None:
    stored = rows.stored_segment(row)
    try:
        return stored.unpack_all(key)
    except DamagedSegment as error:
        if report is not None:
            report.take(shard, key, stored, str(error))
        return None


def _is_whole(segments: Sequence[Segment], start: int, limit: int, last: int) -> bool:
    """Whether nothing is missing from `start` on, up to `last` or the limit."""
    end = start
    for segment in segments:
        if segment.first > end:
            return False
        end = segment.last + 1
    return end > last or sum(len(segment.messages) for segment in segments) >= limit
