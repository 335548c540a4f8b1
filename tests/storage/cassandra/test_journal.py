"""What append, settle and seal write, in which order, and what they answer when parts fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from pushlane_storage.bucket import CONTROL, Bucket
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.ring import Level, Write
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.interface import StoreError, StoreRefused, StoreUnknown
from pushlane_storage.message import Message
from pushlane_storage.outcome import append
from pushlane_storage.queue import QueueConfig
from pushlane_storage.seal import Seal
from pushlane_storage.usage import Usage, UsageKey
from tests.storage.cassandra.conftest import Join
from tests.storage.cassandra.model_ring import FaultyRing, ModelRing, Tables
from tests.storage.samples import Owner, claimed, message, messages

Fate = Callable[[str, Any], str]


def plain(ring: ModelRing, table: str) -> list[Write]:
    """What was written to a table."""
    return [
        write for write in ring.writes if isinstance(write, Write) and write.table.name == table
    ]


def at(table: str, fate: str) -> Fate:
    def find(_: str, operation: Any) -> str:
        return fate if getattr(operation, "table", operation).name == table else "fine"

    return find


@pytest.fixture
def ring(tables: Tables) -> ModelRing:
    return ModelRing(tables)


@pytest.fixture
def faulty(ring: ModelRing) -> FaultyRing:
    return FaultyRing(ring, lambda *_: "fine")


@pytest.fixture
async def owner(join: Join, faulty: FaultyRing) -> Owner:
    return await claimed(await join(faulty))


async def test_a_bucket_s_row_is_written_before_its_first_segment(
    owner: Owner, ring: ModelRing
) -> None:
    ring.writes.clear()
    await owner.append(0, messages(2, not_before=5))
    names = [write.table.name for write in ring.writes]
    assert sorted(names[:2]) == ["lanes", "schedule_slices"]
    assert sorted(names[2:4]) == ["buckets", "scheduled"]
    assert names[4:] == ["segments"], "once it is seen, what must wait is found, too"
    ring.writes.clear()
    await append(owner.store, owner.shard, owner.segment(2, messages(2, not_before=5)), None)
    assert [write.table.name for write in ring.writes] == ["scheduled", "segments"]


async def test_a_segment_without_its_schedule_is_never_stored(
    owner: Owner, faulty: FaultyRing
) -> None:
    """A new owner would count its messages, and never find them due."""
    faulty.fate = at("scheduled", "lost")
    with pytest.raises(StoreUnknown):
        await owner.append(0, messages(2, not_before=5))
    faulty.fate = lambda *_: "fine"
    assert await owner.store.heads(owner.shard, owner.bucket()) == []


@pytest.mark.parametrize("table", ["lanes", "schedule_slices", "buckets", "segments", "scheduled"])
@pytest.mark.parametrize("fate", ["lost", "done", "refused"])
async def test_an_append_of_which_a_part_failed(
    owner: Owner, faulty: FaultyRing, table: str, fate: str
) -> None:
    """Never stored; refused only when the segment certainly is not. Repeating it helps."""
    faulty.fate = at(table, fate)
    with pytest.raises(StoreError) as caught:
        await owner.append(0, messages(2, not_before=5))
    faulty.fate = lambda *_: "fine"
    if caught.type is StoreRefused:
        assert fate == "refused"
        assert await owner.store.segments(owner.shard, owner.bucket(), 0, 10) == []
    else:
        assert caught.type is StoreUnknown
    segment = await owner.append(0, messages(2, not_before=5))
    assert await owner.store.segments(owner.shard, owner.bucket(), 0, 10) == [segment]
    assert len(await owner.store.due(owner.shard, 0, 10, 10)) == 2


@pytest.mark.parametrize("fate", ["lost", "refused"])
async def test_what_is_stored_but_not_confirmed_is_unknown(
    owner: Owner, faulty: FaultyRing, fate: str
) -> None:
    faulty.fate = at("nodes", fate)
    with pytest.raises(StoreUnknown, match="not confirmed"):
        await owner.append(0, messages(2))
    with pytest.raises(StoreUnknown, match="not confirmed"):
        await owner.settle(0, owner.bucket(), acked=[(1, 1)])
    with pytest.raises(StoreUnknown, match="not confirmed"):
        await owner.store.write_seal(owner.shard, Seal(owner.epoch, [], []))
    faulty.fate = lambda *_: "fine"
    await owner.append(0, messages(2))


async def test_a_flush_that_was_written_in_part_is_unknown(
    owner: Owner, faulty: FaultyRing
) -> None:
    def second(_: str, operation: Any) -> str:
        rows = getattr(operation, "rows", [{}])
        return "refused" if rows[0].get("lane") == 2 else "fine"

    faulty.fate = second
    with pytest.raises(StoreUnknown, match="in part"):
        await owner.settle(0, owner.bucket(1), owner.bucket(2))
    faulty.fate = at("settlements", "refused")
    with pytest.raises(StoreRefused):
        await owner.settle(0, owner.bucket(1), owner.bucket(2))


async def test_one_fence_read_for_many_writes(owner: Owner) -> None:
    store = owner.store
    assert isinstance(store, CassandraStore)
    await owner.append(0, messages(1))
    before = store.stats()
    async with trio.open_nursery() as nursery:
        for number in range(1, 101):
            segment = owner.segment(number, messages(1))
            nursery.start_soon(append, store, owner.shard, segment, None)
    after = store.stats()
    assert after.confirmed - before.confirmed == 100
    assert after.fence_reads - before.fence_reads <= 3


async def test_calling_back(owner: Owner, faulty: FaultyRing) -> None:
    store = owner.store
    answers: list[Exception | None] = []
    told = trio.Event()

    def outcome(error: Exception | None) -> None:
        answers.append(error)
        told.set()

    segment = owner.segment(0, messages(1))
    store.append_soon(owner.shard, segment, Bucket(segment.bucket, segment.first), outcome)
    assert answers == []
    await told.wait()
    assert answers == [None]
    other = Owner(store, owner.shard, owner.epoch + 1)
    told = trio.Event()
    store.append_soon(owner.shard, other.segment(0, messages(1)), None, outcome)
    assert len(answers) == 1, "not from inside the call"
    await told.wait()
    assert "epoch" in str(answers[1])


async def test_a_segment_over_the_limit_is_refused(join: Join) -> None:
    store = await join(row_bytes=1_000)
    owner = await claimed(store)
    with pytest.raises(StoreRefused, match="at most 1000"):
        await owner.append(0, [Message(b"x" * 1_000, 1)])
    await owner.append(0, [Message(b"x" * 900, 1)])


@pytest.mark.parametrize(
    ("durability", "level"), [("quorum", Level.QUORUM), ("all", Level.ALL), ("one", Level.ONE)]
)
async def test_durability_is_the_level_of_segments_and_settlements(
    join: Join, ring: ModelRing, durability: Any, level: Level
) -> None:
    store = await join(ring)
    row = await store.catalog.create("t", "q", QueueConfig(durability=durability))
    other = await join(ring)
    assert await other.catalog.read("t", "q") == row
    owner = await claimed(other, row.id)
    ring.writes.clear()
    await owner.append(0, [message(not_before=4)])
    await owner.settle(0, owner.bucket(), CONTROL)
    await other.write_seal(owner.shard, Seal(owner.epoch, [], []))
    levels = {write.table.name: write.level for write in ring.writes if isinstance(write, Write)}
    assert levels.pop("segments") is levels.pop("settlements") is level
    assert set(levels.values()) == {Level.QUORUM}
    assert {range.level for range in ring.ranges} <= {Level.QUORUM, Level.SERIAL}


async def test_usage_is_kept_for_so_many_days_and_tallies_for_good(
    join: Join, ring: ModelRing
) -> None:
    store = await join(ring, usage_kept_days=3)
    ring.writes.clear()
    for minute in (0, 1_000):
        await store.usage.put([Usage(UsageKey("t", "q", minute, "n"), {})])
    kept = [write.ttl for write in ring.writes if isinstance(write, Write)]
    assert kept == [None, 3 * 86_400]


async def test_rows_are_kept_for_twice_the_retention(join: Join, ring: ModelRing) -> None:
    store = await join(ring)
    day = 86_400
    for retention, ttl in ((1, day), (30 * day * 1000, 60 * day), (10**15, Limits().most_ttl)):
        name = f"q{retention}"
        row = await store.catalog.create("t", name, QueueConfig(retention_ms=retention))
        owner = await claimed(store, row.id)
        ring.writes.clear()
        await owner.append(0, messages(1))
        await owner.settle(0, owner.bucket())
        kept = {write.table.name: write.ttl for write in ring.writes if isinstance(write, Write)}
        assert kept["segments"] == ttl
        assert kept["settlements"] == Limits().most_ttl, "never less than what they speak of"
        assert kept["buckets"] is None
    await store.catalog.update(row, QueueConfig())
    ring.writes.clear()
    await owner.append(1, messages(1))
    assert [write.ttl for write in plain(ring, "segments")] == [28 * day]


async def test_the_traits_of_many_queues_are_bounded(join: Join, ring: ModelRing) -> None:
    store = await join(ring, traits=2)
    rows = [
        await store.catalog.create("t", f"q{number}", QueueConfig(durability="all"))
        for number in range(3)
    ]
    levels = []
    for row in rows:
        owner = await claimed(store, row.id)
        ring.writes.clear()
        await owner.append(0, messages(1))
        levels += [write.level for write in plain(ring, "segments")]
    assert levels == [Level.QUORUM, Level.ALL, Level.ALL]
    await store.catalog.read("t", "q0")
    await store.catalog.remove(await store.catalog.mark_deleting(rows[2]))
