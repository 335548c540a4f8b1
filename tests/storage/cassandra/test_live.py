"""Live buckets among many dropped ones: reads don't walk over what is gone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.cassandra.live import FRONT, Live, LiveLane, Mark, pieces
from pushlane_storage.cassandra.ring import Write
from pushlane_storage.interface import Backend
from pushlane_storage.outcome import append
from pushlane_storage.seq import make_seq
from tests.held import let_go
from tests.storage.cassandra.conftest import Join
from tests.storage.cassandra.model_ring import ModelRing, Tables
from tests.storage.samples import LANE, Owner, claimed, claimed_all, messages

SHARD = ShardKey("q", 0)


def test_pieces() -> None:
    assert list(pieces({})) == [(FRONT, None)]
    assert list(pieces({FRONT: (1, 5)})) == [((1, 5), None)]
    assert list(pieces({FRONT: (1, 5), (1, 5): (2, 3)})) == [((1, 5), (1, 5)), ((2, 3), None)]
    assert list(pieces({(1, 2): (1, 9), (1, 9): (1, 9)})) == [(FRONT, (1, 2)), ((1, 9), None)]
    # One that an older one covers says nothing new.
    assert list(pieces({FRONT: (3, 0), (1, 2): (2, 0)})) == [((3, 0), None)]


def test_around() -> None:
    lane = LiveLane([(1, 1), (1, 5), (2, 2)])
    assert lane.around((1, 1)) == (FRONT, (1, 5))
    assert lane.around((1, 5)) == ((1, 1), (2, 2))
    assert lane.around((2, 2)) == ((1, 5), (2, 3))
    assert lane.around((1, 3)) == ((1, 1), (1, 5))


marks = st.tuples(st.integers(1, 3), st.integers(1, 12))


@given(st.sets(marks, min_size=1), st.lists(st.integers(0, 100)), st.booleans())
def test_no_live_bucket_is_ever_skipped(keys: set[Mark], order: list[int], is_read: bool) -> None:
    """Whatever is dropped in whatever order, by one owner or by several."""
    live = Live()
    for mark in keys:
        live.add(BucketKey(LANE, *mark))
    skips: dict[Mark, Mark] = {}
    left = sorted(keys)
    for pick in order:
        if not left:
            break
        mark = left.pop(pick % len(left))
        for write in live.drop(SHARD, BucketKey(LANE, *mark)):
            if isinstance(write, Write):
                [row] = write.rows
                place = (row["epoch"], row["start"])
                skips[place] = max(row["next"], skips.get(place, FRONT))
            elif is_read:  # else it comes late: what it said stays true
                skips.pop(write.key[-2:], None)
    found = [
        mark
        for low, high in pieces(skips)
        for mark in left
        if low <= mark and (high is None or mark <= high)
    ]
    assert found == left


async def fill(owner: Owner, count: int, first: int = 0) -> list[BucketKey]:
    """Buckets with a message each."""
    keys = []
    for number in range(first, first + count):
        key = owner.bucket(LANE, 1_000 + number)
        segment = owner.segment(number, messages(1), LANE, key.start)
        await append(owner.store, owner.shard, segment, Bucket(key, owner.seq(number)))
        keys.append(key)
    return keys


async def drop(store: Backend, owner: Owner, keys: list[BucketKey]) -> None:
    for key in keys:
        number = key.start - 1_000
        row = Bucket(key, make_seq(key.epoch, number), closed=True, drained=True, count=1)
        await store.mark_bucket(owner.shard, row)
        await store.drop(owner.shard, key)


async def test_opening_after_many_drops_touches_only_what_lives(join: Join, tables: Tables) -> None:
    """A message that nobody acks keeps one bucket in their midst; that costs one more range."""
    store = await join()
    owner = await claimed(store)
    keys = await fill(owner, 300)
    await drop(store, owner, keys[:100] + keys[101:299])
    await let_go(store)
    ring = ModelRing(tables)
    store = await join(ring)
    [owner] = await claimed_all(store, owner.shard)
    ring.ranges.clear()
    tables.tombstones_read = 0
    found = (await store.outline(owner.shard)).buckets
    assert [row.key for row in found] == [keys[100], keys[299]]
    assert tables.tombstones_read == 0
    assert sum(range.table.name == "buckets" for range in ring.ranges) == 2
    await drop(store, owner, [keys[100]])
    tables.tombstones_read = 0
    assert [row.key for row in (await store.outline(owner.shard)).buckets] == [keys[299]]
    assert tables.tombstones_read <= 1, "the skip of what was stuck"


async def test_the_head_is_read_in_one_range(join: Join, tables: Tables) -> None:
    """However much was acked before it, in its own bucket and in those that are gone."""
    ring = ModelRing(tables)
    store = await join(ring)
    owner = await claimed(store)
    keys = await fill(owner, 50)
    await drop(store, owner, keys[:49])
    for number in range(50, 80):
        segment = owner.segment(number, messages(1), LANE, keys[49].start)
        await append(store, owner.shard, segment, None)
    ring.ranges.clear()
    tables.tombstones_read = 0
    found = await store.segments(owner.shard, keys[49], owner.seq(70), 3)
    assert [segment.first for segment in found] == [owner.seq(number) for number in (70, 71, 72)]
    assert len(ring.ranges) == 1
    assert tables.tombstones_read == 0


async def test_what_is_remembered_is_bounded(join: Join, tables: Tables) -> None:
    """Who is forgotten is read again, and nothing is skipped that lives."""
    store = await join(shards=1)
    shards = [ShardKey("queue", number) for number in range(3)]
    owners = await claimed_all(store, *shards)
    keys = [await fill(owner, 4) for owner in owners]
    for _ in range(2):
        for owner, own in zip(owners, keys, strict=True):
            await drop(store, owner, [own.pop(1)])
            assert [row.key for row in (await store.outline(owner.shard)).buckets] == own


async def test_an_owner_without_a_claim_reads_afresh(join: Join) -> None:
    """What others do meanwhile is seen: only an owner remembers."""
    first, second = await join(), await join()
    owner = await claimed(first)
    assert (await second.outline(owner.shard)).buckets == []
    keys = await fill(owner, 2)
    assert [row.key for row in (await second.outline(owner.shard)).buckets] == keys
    await drop(first, owner, keys[:1])
    assert [row.key for row in (await second.outline(owner.shard)).buckets] == keys[1:]


async def test_a_bucket_that_landed_between_two_reads_is_known(join: Join, tables: Tables) -> None:
    """An opening that failed half-way is repeated under the same claim: what a predecessor wrote
    late is there then, and what must wait in it is found."""
    store = await join()
    owner = await claimed(store)
    assert (await store.outline(owner.shard)).buckets == []
    late = Owner(await join(), owner.shard, owner.epoch)
    segment = late.segment(0, messages(2, not_before=5))
    ring = ModelRing(tables)
    opened = Bucket(segment.bucket, segment.first)
    _, stages = late.store._journal._append(owner.shard, segment, opened)  # type: ignore[attr-defined]
    for write in (write for stage in stages for write in stage):
        await ring.write(write)
    assert (await store.outline(owner.shard)).buckets == [opened]
    assert len(await store.due(owner.shard, 0, 10, 10)) == 2
