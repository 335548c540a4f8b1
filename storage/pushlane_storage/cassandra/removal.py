"""Removing what the shards of a queue stored: whole partitions, found by the lanes written down."""

from __future__ import annotations

from pushlane_storage.bucket import CONTROL, BucketKey, ShardKey
from pushlane_storage.cassandra import stamps
from pushlane_storage.cassandra.buckets import Buckets
from pushlane_storage.cassandra.crowd import gather
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.places import Places
from pushlane_storage.cassandra.ring import Delete, Ring, Table
from pushlane_storage.cassandra.tables import (
    BUCKETS,
    LANES,
    NOTES,
    SCHEDULED,
    SEALS,
    SEGMENTS,
    SETTLEMENTS,
    SKIPS,
    SLICES,
)
from pushlane_storage.slot import slot_of

_EVERY_SLICE = (-(1 << 62), 1 << 62)


class Removal:
    def __init__(self, ring: Ring, places: Places, buckets: Buckets, limits: Limits) -> None:
        self._ring = ring
        self._places = places
        self._buckets = buckets
        self._limits = limits

    async def run(self, queue_id: str) -> None:
        """Safe to repeat: the list of lanes goes last."""
        for number, lanes in (await self._places.all(queue_id)).items():
            shard = ShardKey(queue_id, number)
            for lane in lanes:
                await self._remove_lane(shard, lane)
            for slice in await self._places.slices(shard, *_EVERY_SLICE):
                await self._delete(SCHEDULED, *shard, slice)
            for table in (SLICES, SKIPS, SEALS):
                await self._delete(table, *shard)
            await self._ring.write(Delete(SETTLEMENTS, (*shard, *CONTROL)))
            await self._delete(NOTES, slot_of(shard), *shard)
        await self._delete(LANES, queue_id)

    async def _remove_lane(self, shard: ShardKey, lane: int) -> None:
        async def remove(key: BucketKey) -> None:
            for table in (SEGMENTS, SETTLEMENTS):
                await self._ring.write(Delete(table, (*shard, *key), stamps.dropped(key)))

        await gather(remove, await self._buckets.keys(shard, lane), self._limits.reads)
        await self._delete(BUCKETS, *shard, lane)

    async def _delete(self, table: Table, *partition: object) -> None:
        await self._ring.write(Delete(table, partition, stamps.FOREVER))
