"""The schedule index: slices, batches, and what must not be in it."""

from __future__ import annotations

from pushlane_storage.cassandra.limits import DAY_SECONDS, Limits
from pushlane_storage.cassandra.ring import Write
from pushlane_storage.cassandra.schedule import SLICE_MS
from pushlane_storage.cassandra.store import CassandraStore
from tests.held import held, let_go
from tests.storage.cassandra.conftest import Join
from tests.storage.cassandra.model_ring import ModelRing, Tables
from tests.storage.samples import START, claimed, message, messages

EVER = 1 << 62


async def test_entries_go_by_slices_in_batches(tables: Tables) -> None:
    ring = ModelRing(tables)
    store = await held(CassandraStore.over(ring, Limits(batch_rows=4), wall=lambda: START))
    owner = await claimed(store)
    far = START + 30 * SLICE_MS
    times = [START + number for number in range(6)] + [far + number for number in range(3)]
    ring.writes.clear()
    await owner.append(0, [message(not_before=time) for time in times])
    written = [
        write
        for write in ring.writes
        if isinstance(write, Write) and write.table.name == "scheduled"
    ]
    assert [len(write.rows) for write in written] == [4, 2, 3]
    near, _, late = [write.ttl or 0 for write in written]
    assert 28 * DAY_SECONDS <= near <= 29 * DAY_SECONDS
    assert late - near == 30 * SLICE_MS // 1000
    found = await store.due(owner.shard, 0, EVER, 100)
    assert [entry.due for entry in found] == times
    ring.ranges.clear()
    assert len(await store.due(owner.shard, far, far + 2, 100)) == 2
    assert [range.table.name for range in ring.ranges] == ["schedule_slices", "scheduled"]
    await let_go(store)


async def test_the_farthest_time_can_be_stored(join: Join) -> None:
    store = await join()
    owner = await claimed(store)
    await owner.append(0, [message(not_before=EVER)])
    assert [entry.due for entry in await store.due(owner.shard, 0, EVER + 1, 9)] == [EVER]


async def test_entries_of_dropped_buckets_are_gone_over(join: Join) -> None:
    """Also when they fill whole pages."""
    store = await join(page_rows=3)
    owner = await claimed(store)
    for number in range(4):
        content = messages(5, not_before=START)
        await owner.append(0, content, lane=number)
    for lane in (0, 1, 2):
        await owner.drain(owner.bucket(lane))
        await store.drop(owner.shard, owner.bucket(lane))
    found = await store.due(owner.shard, 0, EVER, 4)
    assert [(entry.lane, entry.seq) for entry in found] == [
        (3, owner.seq(number)) for number in range(4)
    ]
