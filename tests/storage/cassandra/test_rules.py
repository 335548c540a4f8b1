"""The rules of Cassandra on which the store relies: on real nodes, and on the models of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest

from pushlane_storage.cassandra import stamps
from pushlane_storage.cassandra.ring import (
    Bound,
    Change,
    Delete,
    Level,
    Range,
    Ring,
    Write,
    read_all,
    read_row,
)
from pushlane_storage.cassandra.roster import entry, removal
from pushlane_storage.cassandra.tables import (
    BUCKETS,
    EVERYBODY,
    HEARTBEATS,
    QUEUES,
    ROSTER,
    SEGMENTS,
    SETTLEMENTS,
    SKIPS,
    SLOTS,
    keyed,
)
from pushlane_storage.member import Member
from tests.held import let_go
from tests.simulation.replicated.calm_ring import CalmRing
from tests.simulation.replicated.replicas import Replicas
from tests.storage.cassandra.model_ring import ModelRing
from tests.storage.cassandra.tools import NODE, RING, open_ring, open_store
from tests.storage.samples import START, unique


@pytest.fixture(params=["model", "replicas", NODE, RING])
async def ring(request: pytest.FixtureRequest) -> AsyncIterator[Ring]:
    if request.param == "model":
        yield ModelRing()
        return
    if request.param == "replicas":  # those of the simulator
        yield CalmRing(Replicas(), Random(1))
        return
    store = await open_store(request.param)
    await let_go(store)
    opened = await open_ring(request.param)
    yield opened
    await opened.close()


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
async def test_at_the_same_stamp_the_greater_value_wins(ring: Ring, order: tuple[int, int]) -> None:
    key = (unique("q"), 0, 4, 0, 0)
    for number in order:
        row = keyed(SKIPS, key, next=(number << 40, 256 - number))
        await ring.write(Write(SKIPS, [row], stamps.ONCE))
    found = await read_row(ring, SKIPS, key)
    assert found is not None
    assert tuple(found["next"]) == (2 << 40, 254)


async def test_of_two_that_close_a_bucket_the_later_writer_wins(ring: Ring) -> None:
    key = (unique("q"), 0, 4, 1, START)
    for writer, count in ((300, 1), (2, 1 << 30)):
        closed = (writer, count, count, count, b"\xff" * 9, 7)
        row = keyed(BUCKETS, key, closed=closed)
        await ring.write(Write(BUCKETS, [row], START))
    found = await read_row(ring, BUCKETS, key)
    assert found is not None
    assert tuple(found["closed"])[:2] == (300, 1)


async def test_a_greater_stamp_wins_whenever_it_comes(ring: Ring) -> None:
    key = (unique("p"),)
    for beat in (5, 7, 6):
        row = keyed(HEARTBEATS, key, beat=beat)
        await ring.write(Write(HEARTBEATS, [row], stamp=beat, ttl=1_000))
    found = await read_row(ring, HEARTBEATS, key)
    assert found is not None
    assert found["beat"] == 7


async def test_who_was_taken_off_the_roster_stays_off(ring: Ring) -> None:
    """Whatever it still sends, and in whatever order it comes."""
    name = unique("p")
    where = EVERYBODY, name

    async def show(*beats: int) -> None:
        for beat in beats:
            await ring.write(entry(Member(process=name, name="n", beat=beat)))

    await show(5, 7, 6)
    found = await read_row(ring, ROSTER, where)
    assert found is not None
    assert found["beat"] == 7
    await ring.write(removal(name))
    await show(8, 9, 1_000)
    assert await read_row(ring, ROSTER, where) is None


async def test_what_was_dropped_stays_dropped(ring: Ring) -> None:
    """A row, and a partition; with and without a time to live."""
    queue = unique("q")
    row_key, rows = (queue, 0, 4, 1, START), (queue, 0, 4, 1, START)
    stamp = START * 1000 + 1

    async def write() -> None:
        bucket = keyed(BUCKETS, row_key, first=1, drained=True)
        await ring.write(Write(BUCKETS, [bucket], stamp))
        for n in range(3):
            row = keyed(SETTLEMENTS, (*rows, 1, n), checksum=1, body=b"x")
            await ring.write(Write(SETTLEMENTS, [row], stamp, ttl=1_000))

    await write()
    assert len(await ring.read(Range(SETTLEMENTS, rows, 10))) == 3
    await ring.write(Delete(BUCKETS, row_key, stamp + 1))
    await ring.write(Delete(SETTLEMENTS, rows, stamp + 1))
    await write()
    assert await read_row(ring, BUCKETS, row_key) is None
    assert await ring.read(Range(SETTLEMENTS, rows, 10)) == []


async def test_a_later_mark_does_not_hide_the_first_columns(ring: Ring) -> None:
    key = (unique("q"), 0, 4, 1, START)
    await ring.write(Write(BUCKETS, [keyed(BUCKETS, key, first=9)], START))
    await ring.write(Write(BUCKETS, [keyed(BUCKETS, key, drained=True)], START))
    found = await read_row(ring, BUCKETS, key)
    assert found is not None
    assert (found["first"], found["closed"], found["drained"]) == (9, None, True)


async def test_ranges(ring: Ring) -> None:
    partition = (unique("q"), 0, 4)
    marks = [(epoch, start) for epoch in (1, 2, 3) for start in (5, 1 << 50)]
    rows = [keyed(BUCKETS, (*partition, *mark), first=1) for mark in marks]
    await ring.write(Write(BUCKETS, rows, START))

    async def read(low: Bound | None = None, high: Bound | None = None) -> list[tuple[int, int]]:
        found = await read_all(ring, Range(BUCKETS, partition, 2, ("epoch", "start"), low, high))
        return [(row["epoch"], row["start"]) for row in found]

    assert await read() == marks
    assert await read(low=Bound((1, 6))) == marks[1:]
    assert await read(low=Bound((2, 5))) == marks[2:]
    assert await read(low=Bound((2, 5), included=False)) == marks[3:]
    assert await read(high=Bound((2, 5))) == marks[:3]
    assert await read(high=Bound((2, 5), included=False)) == marks[:2]
    assert await read(low=Bound((2,)), high=Bound((2,))) == marks[2:4]
    assert await read(low=Bound((1, 5)), high=Bound((1, 5))) == marks[:1]


async def test_the_last_row_before_a_place(ring: Ring) -> None:
    partition = (unique("q"), 0, 4, 1, START)
    for first in (10, 20, 30):
        row = keyed(SEGMENTS, (*partition, first), payload=b"%d" % first)
        await ring.write(Write(SEGMENTS, [row], START, 1_000, Level.ALL))
    range = Range(SEGMENTS, partition, 1, high=Bound((29,)), reverse=True)
    [row] = await ring.read(range)
    assert (row["first"], row["payload"], row["marks"]) == (20, b"20", None)


async def test_changes_by_lightweight_transactions(ring: Ring) -> None:
    tenant = unique("t")
    key = (tenant, "q")
    row = {"id": "1", "version": 1, "deleting": False, "config": "{}", "nonce": "a"}
    assert await ring.change(Change(QUEUES, key, None, row))
    assert not await ring.change(Change(QUEUES, key, None, {**row, "id": "2"}))
    new = {"version": 2, "nonce": "b"}
    assert not await ring.change(Change(QUEUES, key, {"id": "1", "version": 7}, new))
    assert not await ring.change(Change(QUEUES, (tenant, "r"), {"id": "1"}, new))
    assert await ring.change(Change(QUEUES, key, {"id": "1", "version": 1}, new))
    stored = await read_row(ring, QUEUES, key, Level.SERIAL)
    assert stored == {"tenant": tenant, "name": "q", **row, **new}
    assert await read_row(ring, QUEUES, key) == stored
    assert not await ring.change(Change(QUEUES, key, {"id": "2"}, None))
    assert await ring.change(Change(QUEUES, key, {"id": "1"}, None))
    assert await read_row(ring, QUEUES, key, Level.SERIAL) is None
    assert await ring.read(Range(QUEUES, (tenant,), 10, low=Bound(("",), included=False))) == []


async def test_the_two_kinds_of_writes_are_never_mixed(ring: Ring) -> None:
    with pytest.raises(AssertionError, match="lightweight transactions only"):
        await ring.write(Write(SLOTS, [keyed(SLOTS, (1,), epoch=1)]))
    with pytest.raises(AssertionError, match="written plainly"):
        await ring.change(Change(HEARTBEATS, ("p",), None, {"beat": 1}))
