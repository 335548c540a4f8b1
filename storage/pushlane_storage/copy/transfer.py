"""Moving one unit: read from the source page by page, put into the target."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from pushlane_storage.bucket import CONTROL, Bucket, BucketKey, ShardKey
from pushlane_storage.copy.errors import CopyFailed, bucket_name
from pushlane_storage.copy.record import Counts
from pushlane_storage.copy.rows import LogRow, Page, Rows
from pushlane_storage.copy.sides import Target
from pushlane_storage.copy.walk import Unit
from pushlane_storage.interface import Due
from pushlane_storage.segment import StoredSegment

T = TypeVar("T")


async def each_page(
    read: Callable[[Any], Awaitable[Page[T]]], take: Callable[[list[T]], Awaitable[None]]
) -> None:
    after: Any = None
    while True:
        rows, after = await read(after)
        if rows:
            await take(rows)
        if after is None:
            return


class Transfer:
    def __init__(self, source: Rows, target: Target) -> None:
        self._source = source
        self._target = target

    async def move(self, unit: Unit) -> Counts:
        """Copy a unit; what it held. Safe to repeat."""
        if unit.shard is None:
            await self._target.put_queue(unit.queue)
            return Counts(queues=1)
        if unit.bucket is None:
            return await self._move_shard(unit, unit.shard)
        return await self._move_bucket(unit, unit.shard, unit.bucket)

    async def _move_shard(self, unit: Unit, shard: ShardKey) -> Counts:
        seals = await self._source.seals(shard)
        await self._target.put_shard(unit.queue, shard, seals, await self._source.note(shard))
        settlements = await self._move_log(unit, shard, CONTROL)
        live = {bucket.key for bucket in unit.buckets}
        scheduled = 0

        async def put(rows: list[Due]) -> None:
            nonlocal scheduled
            scheduled += len(rows)
            await self._target.put_due(unit.queue, shard, rows)

        await each_page(lambda after: self._source.due(shard, live, after), put)
        return Counts(shards=1, seals=len(seals), settlements=settlements, scheduled=scheduled)

    async def _move_bucket(self, unit: Unit, shard: ShardKey, bucket: Bucket) -> Counts:
        await self._target.put_bucket(shard, bucket)
        settlements = await self._move_log(unit, shard, bucket.key)
        segments = messages = 0

        async def put(rows: list[StoredSegment]) -> None:
            nonlocal segments, messages
            _check_columns(shard, bucket.key, rows)
            await self._target.put_segments(unit.queue, shard, bucket.key, rows)
            segments += len(rows)
            messages += sum(row.count for row in rows)

        await each_page(lambda after: self._source.segments(shard, bucket.key, after), put)
        return Counts(buckets=1, settlements=settlements, segments=segments, messages=messages)

    async def _move_log(self, unit: Unit, shard: ShardKey, key: BucketKey) -> int:
        count = 0

        async def put(rows: list[LogRow]) -> None:
            nonlocal count
            count += len(rows)
            await self._target.put_log(unit.queue, shard, key, rows)

        await each_page(lambda after: self._source.log(shard, key, after), put)
        return count


def _check_columns(shard: ShardKey, key: BucketKey, rows: Sequence[StoredSegment]) -> None:
    """Damage may have left anything in a column; what isn't of its type has no place elsewhere."""
    for row in rows:
        numbers = {"count": 31, "format": 31, "size": 63, "last_at": 63, "checksum": 63, "head": 63}
        for name, bits in numbers.items():
            value = getattr(row, name)
            if not isinstance(value, int) or not -(1 << bits) <= value < 1 << bits:
                raise CopyFailed(
                    f"segment {row.first} of {bucket_name(shard, key)} is damaged, and its {name}"
                    f" ({value!r}) can't be carried over: restore a backup, or have the rest of"
                    " this queue consumed and delete it"
                )
