"""Sums over what a unit holds: counts and a checksum, made the same way on both sides."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from pushlane_storage.bucket import CONTROL, Bucket, BucketKey, ShardKey
from pushlane_storage.copy.errors import bucket_name, shard_name
from pushlane_storage.copy.record import Counts
from pushlane_storage.copy.rows import LogRow, Rows, body_of
from pushlane_storage.copy.transfer import each_page
from pushlane_storage.copy.walk import Unit
from pushlane_storage.interface import Due
from pushlane_storage.packing import checksum_of
from pushlane_storage.sqlite.inspection import is_whole
from pushlane_storage.stored_segment import StoredSegment

_encode = msgspec.msgpack.Encoder().encode


class Sum:
    """Of one unit, on one side."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.damaged: list[str] = []
        """Rows with a wrong checksum: what, and where."""
        self._hash = blake2b(digest_size=16)

    @property
    def digest(self) -> bytes:
        return self._hash.digest()

    def add(self, *values: Any) -> None:
        self._hash.update(_encode(values))

    def add_bytes(self, value: bytes) -> None:
        self._hash.update(value)

    def count(self, **more: int) -> None:
        self.counts += Counts(**more)

    def note_damage(self, what: str) -> None:
        self.damaged.append(what)
        self.count(damaged=1)


async def sum_up(rows: Rows, unit: Unit) -> Sum:
    """Read a unit, all of it."""
    found = Sum()
    found.add(*unit.place, unit.queue.id)
    if unit.shard is None:
        found.add(unit.queue, unit.shards)
        found.count(queues=1)
    elif unit.bucket is None:
        await _sum_shard(rows, unit, unit.shard, found)
    else:
        await _sum_bucket(rows, unit.shard, unit.bucket, found)
    return found


async def _sum_shard(rows: Rows, unit: Unit, shard: ShardKey, found: Sum) -> None:
    found.count(shards=1)
    for seal in await rows.seals(shard):
        found.add(*seal)
        found.count(seals=1)
        if seal.checksum != checksum_of(seal.body or b"", seal.owner):
            found.note_damage(f"seal {seal.owner} of {shard_name(shard)}")
    note = await rows.note(shard)
    if note is not None:
        found.add(*note)
        if note.checksum != checksum_of(note.body or b"", note.owner, note.n):
            found.note_damage(f"the note of {shard_name(shard)}")
    await _sum_log(rows, shard, CONTROL, found)
    live = {bucket.key for bucket in unit.buckets}

    async def take(page: list[Due]) -> None:
        for due in page:
            found.add(*due)
        found.count(scheduled=len(page))

    await each_page(lambda after: rows.due(shard, live, after), take)


async def _sum_bucket(rows: Rows, shard: ShardKey, bucket: Bucket, found: Sum) -> None:
    found.add(bucket)
    found.count(buckets=1)
    await _sum_log(rows, shard, bucket.key, found)

    async def take(page: list[StoredSegment]) -> None:
        for row in page:
            found.add(row.first, row.count, row.size, row.last_at, row.format, row.checksum)
            body = body_of(row)
            found.add(row.head, row.marks, None if body is None else len(body))
            found.add_bytes(body or b"")
            if not is_whole(row):
                found.note_damage(f"segment {row.first} of {bucket_name(shard, bucket.key)}")
        found.count(segments=len(page), messages=sum(row.count for row in page))

    await each_page(lambda after: rows.segments(shard, bucket.key, after), take)


async def _sum_log(rows: Rows, shard: ShardKey, key: BucketKey, found: Sum) -> None:
    async def take(page: list[LogRow]) -> None:
        for row in page:
            found.add(*row)
            if row.checksum != checksum_of(row.body or b"", row.owner, row.n):
                found.note_damage(f"settlement {row.owner}.{row.n} of {bucket_name(shard, key)}")
        found.count(settlements=len(page))

    await each_page(lambda after: rows.log(shard, key, after), take)
