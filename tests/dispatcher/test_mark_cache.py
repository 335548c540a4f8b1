"""Dedup marks in the lease cache save reads, and count only as far as the store agrees."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.lease_guard import cache_name
from pushlane_dispatcher.shard.mark_cache import agrees, is_whole, name_of
from pushlane_dispatcher.shard.stop import Stop
from pushlane_leases.interface import LeaseCacheError
from pushlane_leases.memory import InstantLeases, LeaseTable, MemoryLeases
from pushlane_storage.bucket import Bucket, BucketKey, MarkSummary, ShardKey
from pushlane_storage.interface import Fenced
from pushlane_storage.memory import MemoryTables
from pushlane_storage.segment import DedupMark, SegmentHead
from tests.dispatcher.rig import (
    START,
    TENANT,
    Rig,
    ScriptedLeases,
    ScriptedStore,
    blocked,
    fail,
    memory_tables,
    rig,
)

BOUNDS = Bounds(bucket_messages=4)


class World:
    """Tables and a cache that outlive their owners."""

    def __init__(self) -> None:
        self.tables: MemoryTables = memory_tables()
        self.leases = LeaseTable()
        self.store = ScriptedStore(self.tables)
        self.cache = ScriptedLeases(self.leases)

    @asynccontextmanager
    async def owner(
        self, leases: MemoryLeases | None = None, settings: Settings | None = None
    ) -> AsyncIterator[Rig]:
        self.store = ScriptedStore(self.tables)
        self.cache = ScriptedLeases(self.leases)
        async with rig(self.store, leases or self.cache, bounds=BOUNDS, settings=settings) as r:
            yield r

    async def filled(self, **options: Any) -> None:
        """Three buckets, of which two are closed."""
        async with self.owner(**options) as r:
            for number in range(10):
                assert not (await publish(r, number)).duplicates
            await blocked()

    def closed(self) -> list[Bucket]:
        return [bucket for bucket in self.tables.outline(self.shard).buckets if bucket.closed]

    @property
    def shard(self) -> ShardKey:
        row = self.tables.read_queue(TENANT, "q")
        assert row is not None
        return ShardKey(row.id, 0)

    def heads_read(self) -> set[BucketKey]:
        return {args[1] for args in self.store.script.called("heads")}


@pytest.fixture
def world() -> World:
    return World()


async def publish(r: Rig, number: int) -> Any:
    return await r.publish(b"%d" % number, dedup=f"id-{number}")


async def all_are_known(r: Rig) -> None:
    for number in range(10):
        assert (await publish(r, number)).duplicates, number
    assert not (await publish(r, 10)).duplicates


async def test_a_new_owner_takes_marks_from_the_cache(world: World) -> None:
    await world.filled()
    closed = {bucket.key for bucket in world.closed()}
    assert len(closed) == 2
    async with world.owner() as r:
        assert not world.heads_read() & closed
        await all_are_known(r)


async def test_without_the_cache_it_reads_them(world: World) -> None:
    await world.filled()
    closed = {bucket.key for bucket in world.closed()}
    world.leases = LeaseTable()
    async with world.owner() as r:
        assert world.heads_read() >= closed
        await all_are_known(r)


async def test_a_cache_that_dies_with_the_process_is_not_asked(world: World) -> None:
    cache = InstantLeases(world.leases)
    await world.filled(leases=cache)
    names = [name_of(bucket.key) for bucket in world.closed()]
    assert world.leases.recall(cache_name(world.shard), names, 0) == {}


async def test_a_bucket_with_too_many_marks_is_left_to_the_store(world: World) -> None:
    await world.filled(settings=Settings(cached_marks=3))
    assert not world.cache.script.called("remember")
    async with world.owner() as r:
        await all_are_known(r)


def entry(**changes: Any) -> SegmentHead:
    return msgspec.structs.replace(HEAD, **changes)


MARK = DedupMark(100, 0, None, "other")
HEAD = SegmentHead(100, 4, 0, 0, [MARK])


@pytest.mark.parametrize("lot", [b"", b"\xff", b"[]", msgspec.msgpack.encode([HEAD])])
async def test_what_the_store_does_not_agree_with_counts_for_nothing(
    world: World, lot: bytes
) -> None:
    await world.filled()
    lots = [(name_of(bucket.key), lot) for bucket in world.closed()]
    world.leases.remember(cache_name(world.shard), 1, lots, 1_000_000, START)
    async with world.owner() as r:
        await all_are_known(r)
        assert not (await r.publish(b"new", dedup="other")).duplicates


async def test_an_entry_that_lost_its_marks_is_not_believed(world: World) -> None:
    await world.filled()
    for bucket in world.closed():
        lot = msgspec.msgpack.encode([SegmentHead(bucket.first, bucket.count, 0, 0, [])])
        lots = [(name_of(bucket.key), lot)]
        world.leases.remember(cache_name(world.shard), 1, lots, 1_000_000, START)
    async with world.owner() as r:
        await all_are_known(r)


async def test_a_cache_that_fails_stops_nothing(world: World) -> None:
    world.cache = ScriptedLeases(world.leases)
    for name in ("remember", "recall"):
        world.cache.script.always[name] = fail(LeaseCacheError("down"))
    async with rig(world.store, world.cache, bounds=BOUNDS) as r:
        for number in range(10):
            await publish(r, number)
        await blocked()
        assert len(world.cache.script.called("remember")) == 2
    async with rig(ScriptedStore(world.tables), world.cache, bounds=BOUNDS) as r:
        await all_are_known(r)


async def test_an_owner_that_finds_a_newer_one_steps_down(world: World) -> None:
    async with world.owner() as r:
        world.cache.script.add("remember", fail(Fenced("by a test")))
        for number in range(4):
            await publish(r, number)
        await r.runner._engine.stopped.wait()
        assert r.runner.stopped_by is Stop.FENCED


BUCKET = Bucket(BucketKey(0, 1, 0), 100, True, False, 4, 0, 0, MarkSummary(1, 0, {}))


@pytest.mark.parametrize(
    ("spans", "whole"),
    [
        ([(100, 4)], True),
        ([(100, 1), (101, 3)], True),
        ([], False),
        ([(100, 3)], False),
        ([(100, 5)], False),
        ([(101, 3)], False),
        ([(100, 1), (102, 2)], False),
        ([(100, 2), (101, 3)], False),
    ],
)
def test_all_segments_and_no_more(spans: list[tuple[int, int]], whole: bool) -> None:
    heads = [entry(first=first, count=count) for first, count in spans]
    assert is_whole(BUCKET, heads) is whole


@pytest.mark.parametrize(
    ("row", "marks", "same"),
    [
        (MarkSummary(1, 0, {}), [MARK], True),
        (MarkSummary(2, 0, {}), [MARK], False),
        (MarkSummary(1, 1, {}), [MARK], False),
        (MarkSummary(0, 0, {"p": (2, 8)}), [DedupMark(100, 0, None, None, "p", 7, 2)], True),
        (MarkSummary(0, 0, {"p": (2, 8)}), [DedupMark(100, 0, None, None, "p", 8, 2)], False),
        (MarkSummary(0, 0, {"p": (2, 8)}), [DedupMark(100, 0, None, None, "x", 7, 2)], False),
        (MarkSummary(1, 0, None), [MARK, DedupMark(101, 0, None, None, "p", 7)], True),
        (MarkSummary(2, 0, None), [MARK, DedupMark(101, 0, None, None, "p", 7)], False),
    ],
)
def test_the_same_marks_as_the_row_says(
    row: MarkSummary, marks: list[DedupMark], same: bool
) -> None:
    bucket = msgspec.structs.replace(BUCKET, marks=row)
    assert agrees(bucket, [entry(marks=marks)]) is same
