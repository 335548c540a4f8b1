"""Verifying a copy: both sides are walked together, and every row of both is read.

Counts and checksums are summed up in the same way on both sides and compared unit by unit, so that
a difference is named by its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

import msgspec

from pushlane_storage.bucket import CONTROL, Bucket, BucketKey, ShardKey
from pushlane_storage.copy.errors import SidesDiffer, bucket_name, shard_name
from pushlane_storage.copy.record import Counts
from pushlane_storage.copy.rows import Day, LogRow, Rows, body_of
from pushlane_storage.copy.transfer import each_page
from pushlane_storage.copy.walk import Unit, Walk
from pushlane_storage.interface import Due
from pushlane_storage.packing import checksum_of
from pushlane_storage.segment import StoredSegment
from pushlane_storage.sqlite.inspection import is_whole
from pushlane_storage.usage import Usage
from pushlane_storage.work import gather, patiently

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


AT_ONCE = 4
"""Units that are compared at once."""
NAMED = 1_000
"""Damaged rows that are named; beyond it they are counted."""
LISTED = 10_000
"""Shards whose sums are listed; beyond it they are part of the whole checksum only."""


class ShardSum(msgspec.Struct, kw_only=True):
    queue: str
    shard: int
    messages: int = 0
    settlements: int = 0
    checksum: str = ""


class Verified(msgspec.Struct, kw_only=True):
    counts: Counts = Counts()
    damaged: list[str] = []
    shards: list[ShardSum] = []
    checksum: str = ""
    """Over all of it."""


class Verification:
    def __init__(self, source: Rows, target: Rows, tell: Callable[[int], None]) -> None:
        """`tell` is called with the number of messages that were compared so far."""
        self._source = source
        self._target = target
        self._tell = tell
        self._found = Verified()
        self._whole = blake2b(digest_size=16)
        self._shard = blake2b(digest_size=16)
        self._listed = False
        self._told = 0

    async def run(self) -> Verified:
        """`SidesDiffer` when there is any difference."""
        source, target = Walk(self._source), Walk(self._target)
        while group := await patiently(source.group):
            await self._compare(group, await patiently(target.group))
        await self._compare([], await patiently(target.group))
        await self._compare_usage()
        self._found.checksum = self._whole.hexdigest()
        return self._found

    async def _compare(self, here: Sequence[Unit], there: Sequence[Unit]) -> None:
        for one, other in zip_longest(here, there):
            if one is None or other is None or one.place != other.place:
                raise SidesDiffer(_name(one or other))
        both = dict(enumerate(zip(here, there, strict=True)))

        async def compare(number: int) -> Sum:
            one, other = both[number]
            found = await patiently(lambda: sum_up(self._source, one))
            copied = await patiently(lambda: sum_up(self._target, other))
            if (found.digest, found.counts) != (copied.digest, copied.counts):
                raise SidesDiffer(_name(one))
            self._told += found.counts.messages
            self._tell(self._told)
            return found

        sums = await gather(compare, both, AT_ONCE)
        for number, unit in enumerate(here):
            self._take(unit, sums[number])

    def _take(self, unit: Unit, found: Sum) -> None:
        """In the order of the walk."""
        self._found.counts += found.counts
        room = NAMED - len(self._found.damaged)
        self._found.damaged += found.damaged[:room]
        self._whole.update(found.digest)
        if unit.shard is None:
            return
        if unit.bucket is None:
            self._shard = blake2b(digest_size=16)
        self._shard.update(found.digest)
        self._list(unit, found)

    def _list(self, unit: Unit, found: Sum) -> None:
        """A line for each shard, which grows with each of its buckets."""
        assert unit.shard is not None
        shards = self._found.shards
        if unit.bucket is None:
            self._listed = len(shards) < LISTED
            if self._listed:
                shards.append(ShardSum(queue=unit.queue.name, shard=unit.shard.shard))
        if self._listed:
            line = shards[-1]
            line.messages += found.counts.messages
            line.settlements += found.counts.settlements
            line.checksum = self._shard.hexdigest()

    async def _compare_usage(self) -> None:
        days = await patiently(self._source.days)
        if days != await patiently(self._target.days):
            raise SidesDiffer("the usage of all days")
        for day in days:
            await self._compare_day(day)

    async def _compare_day(self, day: Day) -> None:
        found = _plain(await patiently(lambda: self._source.usage(day)))
        if found != _plain(await patiently(lambda: self._target.usage(day))):
            raise SidesDiffer(f"the usage of {day.tenant} on day {day.day}")
        self._whole.update(msgspec.msgpack.encode(found))
        self._found.counts += Counts(usage=len(found))


def _plain(usage: Sequence[Usage]) -> list[tuple[object, ...]]:
    """Without an order of counters, which back ends don't keep."""
    return [(one.key, one.version, sorted(one.counters.items())) for one in usage]


def _name(unit: Unit | None) -> str:
    assert unit is not None
    if unit.shard is None:
        return f"queue {unit.queue.name} of tenant {unit.queue.tenant}"
    if unit.bucket is None:
        return f"{shard_name(unit.shard)} ({unit.queue.name})"
    return f"{bucket_name(unit.shard, unit.bucket.key)} ({unit.queue.name})"
