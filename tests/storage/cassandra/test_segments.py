"""Reading segments: pages, damage, and what recovery must have read whole."""

from __future__ import annotations

from typing import Any

import pytest

from pushlane_storage.bucket import Bucket
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.ring import Level, Range, Row
from pushlane_storage.cassandra.rows import HEAD
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.cassandra.tables import BUCKETS, SEALS, SEGMENTS, SETTLEMENTS
from pushlane_storage.damage import Damage
from pushlane_storage.interface import StoreDamaged, StoreUnknown
from pushlane_storage.message import Message
from pushlane_storage.seal import Seal
from tests.held import held, let_go
from tests.storage.cassandra.conftest import Join
from tests.storage.cassandra.model_ring import ModelRing, Tables
from tests.storage.samples import Owner, claimed, claimed_all, message, messages, seqs_of


@pytest.fixture
def ring(tables: Tables) -> ModelRing:
    return ModelRing(tables)


@pytest.fixture
async def owner(join: Join, ring: ModelRing) -> Owner:
    return await claimed(await join(ring))


def cells(ring: ModelRing, owner: Owner, first: int) -> dict[str, Any]:
    partition = ring.tables.partition(SEGMENTS, (*owner.shard, *owner.bucket()))
    return partition.rows[first,]


async def test_pages_follow_the_size_of_what_they_hold(join: Join, ring: ModelRing) -> None:
    store = await join(ring, page_bytes=10_000)
    owner = await claimed(store)
    for number in range(40):
        await owner.append(number, [Message(b"x" * 2_000, 1)])
    ring.ranges.clear()
    found = await store.segments(owner.shard, owner.bucket(), 0, 1_000)
    assert seqs_of(found) == [owner.seq(number) for number in range(40)]
    assert [range.limit for range in ring.ranges] == [4] * 11
    ring.ranges.clear()
    await store.segments(owner.shard, owner.bucket(), owner.seq(30), 2)
    assert len(ring.ranges) == 1


async def test_a_page_has_no_more_rows_than_are_wanted(owner: Owner, ring: ModelRing) -> None:
    for number in range(0, 100, 5):
        await owner.append(number, messages(5))
    ring.ranges.clear()
    found = await owner.store.segments(owner.shard, owner.bucket(), 0, 60)
    assert len(seqs_of(found)) == 60
    assert [range.limit for range in ring.ranges] == [4, 8]


async def test_single_messages_of_one_segment_are_read_together(
    owner: Owner, ring: ModelRing
) -> None:
    for number in range(0, 100, 50):
        await owner.append(number, messages(50))
    ring.ranges.clear()
    seqs = [owner.seq(number) for number in range(0, 100, 2)]
    found = await owner.store.messages(owner.shard, owner.bucket(), seqs)
    assert sorted(found) == seqs
    assert len(ring.ranges) <= 1 + Limits().reads


async def test_the_heads_of_a_bucket_that_was_cut_off_are_read_whole(
    join: Join, owner: Owner, ring: ModelRing
) -> None:
    """A read repairs what it names: all of it must stand on a quorum once it counts."""
    store = owner.store
    for number in range(9):
        await owner.append(number, messages(1))
    key = owner.bucket()
    ring.ranges.clear()
    assert len(await store.heads(owner.shard, key)) == 9
    assert {range.columns for range in ring.ranges} == {()}
    await store.outline(owner.shard)
    ring.ranges.clear()
    assert len(await store.heads(owner.shard, key)) == 9
    assert {range.columns for range in ring.ranges} == {()}
    closed = Bucket(key, owner.seq(0), closed=True, count=9)
    await store.mark_bucket(owner.shard, closed)
    ring.ranges.clear()
    assert len(await store.heads(owner.shard, key)) == 9
    assert [range.columns for range in ring.ranges] == [HEAD]
    await let_go(store)
    other = await join(ring)
    await claimed_all(other, owner.shard)
    ring.ranges.clear()
    assert len(await other.heads(owner.shard, key)) == 9
    assert {range.columns for range in ring.ranges} == {()}, "not known before its row was read"
    await other.outline(owner.shard)
    ring.ranges.clear()
    assert len(await other.heads(owner.shard, key)) == 9
    assert [range.columns for range in ring.ranges] == [HEAD]


DAMAGE = {
    "payload": b"\x90",
    "checksum": 7,
    "format": 99,
    "marks": b"",
    "count": 9,
    "size": 1 << 40,
}


@pytest.mark.parametrize("column", DAMAGE)
async def test_a_damaged_segment_is_left_out_and_reported_once(
    ring: ModelRing, column: str
) -> None:
    told: list[Damage] = []
    store = await held(CassandraStore.over(ring, Limits(), damaged=told.append, wall=lambda: 77))
    owner = await claimed(store)
    for number in (0, 2, 4):
        await owner.append(number, messages(2))
    cells(ring, owner, owner.seq(2))[column] = (1, DAMAGE[column])
    for _ in range(2):
        found = await store.segments(owner.shard, owner.bucket(), 0, 10)
        assert seqs_of(found) == [owner.seq(number) for number in (0, 1, 4, 5)]
        one = await store.messages(owner.shard, owner.bucket(), [owner.seq(3), owner.seq(4)])
        assert one == {owner.seq(4): message(0)}
    assert store.stats().damaged == 1
    [damage] = told
    assert (damage.shard, damage.bucket, damage.first) == (
        owner.shard,
        owner.bucket(),
        owner.seq(2),
    )
    assert damage.found_at == 77
    await let_go(store)


async def test_the_place_of_a_damaged_segment_counts(owner: Owner, ring: ModelRing) -> None:
    marked = [message(1, dedup="d")]
    await owner.append(0, marked)
    await owner.append(1, marked)
    cells(ring, owner, owner.seq(0))["head"] = (1, 5)
    [first, second] = await owner.store.heads(owner.shard, owner.bucket())
    assert (first.first, first.count) == (owner.seq(0), 1)
    assert [mark.dedup for mark in first.marks] == ["d"], "mended from its body"
    assert second.first == owner.seq(1)


async def test_reports_are_bounded(join: Join, ring: ModelRing) -> None:
    store = await join(ring, damaged=2)
    owner = await claimed(store)
    for number in range(4):
        await owner.append(number, messages(1))
        cells(ring, owner, owner.seq(number))["payload"] = (1, b"?")
    assert await store.segments(owner.shard, owner.bucket(), 0, 10) == []
    assert store.stats().damaged == 2


async def test_there_is_no_going_on_without_the_log(owner: Owner, ring: ModelRing) -> None:
    store, shard = owner.store, owner.shard
    await owner.append(0, messages(1))
    await owner.settle(0, owner.bucket(), acked=[(owner.seq(0), owner.seq(0))])
    await store.write_seal(shard, Seal(owner.epoch, [], []))
    await store.mark_bucket(shard, Bucket(owner.bucket(), owner.seq(0), closed=True, count=1))
    for table, key in ((SETTLEMENTS, (*shard, *owner.bucket())), (SEALS, shard)):
        [row] = ring.tables.partition(table, key).rows.values()
        row["body"] = (1 << 60, b"\x90")
    [row] = ring.tables.partition(BUCKETS, (*shard, owner.bucket().lane)).rows.values()
    row["closed"] = (1 << 60, (1, 2, 3, 4, b"", 5))
    with pytest.raises(StoreDamaged):
        await store.settlements(shard, owner.bucket())
    with pytest.raises(StoreDamaged):
        await store.outline(shard)
    ring.tables.partition(SEALS, shard).rows.clear()
    with pytest.raises(StoreDamaged):
        await store.outline(shard)


class Lagging(ModelRing):
    """Quorums leave out the one replica that has some of the segments."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.lone: set[int] = set()
        self.is_whole = True

    async def read(self, range: Range) -> list[Row]:
        if range.level is Level.ALL and not self.is_whole:
            raise StoreUnknown("a replica is away")
        rows = await super().read(range)
        if range.table is not SEGMENTS or range.level is Level.ALL:
            return rows
        return [row for row in rows if row["first"] not in self.lone]


@pytest.mark.parametrize("lone", [[0], [2], [4], [0, 2, 4]])
async def test_what_one_replica_has_is_found_before_it_is_given_up(
    join: Join, tables: Tables, lone: list[int]
) -> None:
    ring = Lagging(tables)
    cassandra = await join(ring)
    owner = await claimed(cassandra)
    for number in (0, 2, 4):
        await owner.append(number, messages(2))
    ring.lone = {owner.seq(number) for number in lone}
    store, place, first, last = owner.store, owner.bucket(), owner.seq(0), owner.seq(5)
    everything = list(range(first, last + 1))
    found = await store.segments(owner.shard, place, first, 100, last)
    assert seqs_of(found) == everything
    assert sorted(await store.messages(owner.shard, place, everything)) == everything
    if 0 not in lone:
        found = await store.segments(owner.shard, place, first, 2, last)
        assert seqs_of(found) == everything[:2]
    looked = await store.segments(owner.shard, place, first, 100)
    assert len(seqs_of(looked)) < 6, "who only looks around doesn't ask all replicas"

    ring.is_whole = False
    with pytest.raises(StoreUnknown):
        await store.segments(owner.shard, place, first, 100, last)
    with pytest.raises(StoreUnknown):
        await store.messages(owner.shard, place, everything)
    assert cassandra.stats().damaged == 0


async def test_what_no_replica_has_is_missing(join: Join, tables: Tables) -> None:
    ring = ModelRing(tables)
    owner = await claimed(await join(ring))
    await owner.append(0, messages(2))
    await owner.append(4, messages(2))
    last = owner.seq(5)
    ring.ranges.clear()
    found = await owner.store.segments(owner.shard, owner.bucket(), owner.seq(0), 100, last)
    assert [segment.first for segment in found] == [owner.seq(0), owner.seq(4)]
    assert [range.level for range in ring.ranges] == [Level.QUORUM, Level.ALL]
    ring.ranges.clear()
    await owner.store.segments(owner.shard, owner.bucket(), owner.seq(4), 100, last)
    assert Level.ALL not in {range.level for range in ring.ranges}
