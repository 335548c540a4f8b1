"""Bucket rows: opened, marked, dropped, and read.

What a mark says is a fact whoever says it: a bucket is closed when all its segments are confirmed,
drained when all settlements are, and dropped when drained. So a late mark of an owner that was
fenced meanwhile is true as well, or lies beyond the next owner's seal. docs/cassandra.md has the
whole argument.
"""

from __future__ import annotations

from typing import Protocol

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.cassandra import rows, stamps
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.live import Live, LiveLane, Mark, pieces
from pushlane_storage.cassandra.places import Places
from pushlane_storage.cassandra.ring import (
    Bound,
    Delete,
    Range,
    Ring,
    Row,
    Write,
    read_all,
    read_row,
)
from pushlane_storage.cassandra.slots import Claim
from pushlane_storage.cassandra.tables import BUCKETS, SEGMENTS, SETTLEMENTS, SKIPS
from pushlane_storage.work import gather


class Claims(Protocol):
    """What this process owns, if anything."""

    def find(self, shard: ShardKey) -> Claim | None: ...


class Buckets:
    def __init__(self, ring: Ring, places: Places, slots: Claims, limits: Limits) -> None:
        self._ring = ring
        self._places = places
        self._slots = slots
        self._limits = limits
        self._live: dict[ShardKey, tuple[Claim, Live]] = {}
        """What the owner knows, for as long as its claim holds."""

    # Writing

    def opened(self, shard: ShardKey, bucket: Bucket) -> Write:
        """The row of a new bucket."""
        live = self._known(shard)
        if live is not None:
            live.add(bucket.key)
        return Write(BUCKETS, [rows.opened_row(shard, bucket)], stamps.written(bucket.key))

    async def mark(self, shard: ShardKey, bucket: Bucket) -> None:
        claim = self._slots.find(shard)
        writer = bucket.key.epoch if claim is None else max(claim.epoch, bucket.key.epoch)
        row = rows.marked_row(shard, bucket, writer)
        if row is not None:
            await self._ring.write(Write(BUCKETS, [row], stamps.written(bucket.key)))
            live = self._known(shard)
            if live is not None and bucket.closed and bucket.key in live:
                live.closed.add(bucket.key)

    async def drop(self, shard: ShardKey, key: BucketKey) -> None:
        """What it holds goes first: one that was dropped by half is still there, and drained."""
        stored = await read_row(self._ring, BUCKETS, (*shard, *key))
        found = None if stored is None else rows.bucket_of(stored)
        assert found is None or found.drained, f"{key} is not drained"
        live = await self.live(shard)
        for table in (SEGMENTS, SETTLEMENTS):
            await self._ring.write(Delete(table, (*shard, *key), stamps.dropped(key)))
        await self._ring.write(Delete(BUCKETS, (*shard, *key), stamps.dropped(key)))
        if found is not None:
            for write in live.drop(shard, key):
                await self._ring.write(write)

    # Reading

    async def read(self, shard: ShardKey) -> list[Bucket]:
        """All that were not dropped, by key."""
        found, live = await self._read(shard)
        known = self._remember(shard, live)
        for bucket in found:  # a predecessor's may have landed since they were read last
            known.note(bucket.key, is_closed=bucket.closed)
        return found

    async def live(self, shard: ShardKey) -> Live:
        known = self._known(shard)
        if known is not None:
            return known
        _, live = await self._read(shard)
        return self._remember(shard, live)

    def is_closed(self, shard: ShardKey, key: BucketKey) -> bool:
        """Whether that is known without a read."""
        live = self._known(shard)
        return live is not None and key in live.closed

    def _known(self, shard: ShardKey) -> Live | None:
        claim, live = self._live.get(shard, (None, None))
        if claim is not None and self._slots.find(shard) is claim:
            return live
        self._live.pop(shard, None)
        return None

    def _remember(self, shard: ShardKey, live: Live) -> Live:
        known = self._known(shard)
        if known is not None:  # it was kept up to date meanwhile
            return known
        claim = self._slots.find(shard)
        if claim is not None:
            if len(self._live) >= self._limits.shards:
                del self._live[next(iter(self._live))]
            self._live[shard] = claim, live
        return live

    async def _read(self, shard: ShardKey) -> tuple[list[Bucket], Live]:
        live = Live()
        skips = await self._skips(shard)
        found: list[Bucket] = []

        async def read_lane(lane: int) -> list[Bucket]:
            there: list[Bucket] = []
            for low, high in pieces(skips.get(lane, {})):
                there += await self._read_piece(shard, lane, low, high)
            return there

        lanes = await self._places.lanes(shard)
        by_lane = await gather(read_lane, lanes, self._limits.reads)
        for lane in sorted(lanes):
            marks = [(bucket.key.epoch, bucket.key.start) for bucket in by_lane[lane]]
            live.lanes[lane] = LiveLane(marks, skips.get(lane, {}))
            live.closed |= {bucket.key for bucket in by_lane[lane] if bucket.closed}
            found += by_lane[lane]
        return found, live

    async def _read_piece(
        self, shard: ShardKey, lane: int, low: Mark, high: Mark | None
    ) -> list[Bucket]:
        range = Range(
            BUCKETS,
            (*shard, lane),
            self._limits.page_rows,
            low=Bound(low),
            high=None if high is None else Bound(high),
        )
        stored = [rows.bucket_of(row) for row in await read_all(self._ring, range)]
        return [bucket for bucket in stored if bucket is not None]

    async def _skips(self, shard: ShardKey) -> dict[int, dict[Mark, Mark]]:
        skips: dict[int, dict[Mark, Mark]] = {}
        for row in await read_all(self._ring, Range(SKIPS, shard, self._limits.page_rows)):
            after: tuple[int, int] = tuple(row["next"])
            skips.setdefault(row["lane"], {})[row["epoch"], row["start"]] = after
        return skips

    # Removing

    async def keys(self, shard: ShardKey, lane: int) -> list[BucketKey]:
        """Every bucket of which the lane still has a row, whatever the row says."""
        range = Range(BUCKETS, (*shard, lane), self._limits.page_rows, ("epoch", "start"))
        found: list[Row] = await read_all(self._ring, range)
        return [BucketKey(lane, row["epoch"], row["start"]) for row in found]
