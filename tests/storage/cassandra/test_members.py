"""Who shares a keyspace: how processes see each other, leave, are fenced, are drained."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from pushlane_storage.cassandra.ring import Change, Delete, Level, Range, Row, Write
from pushlane_storage.cassandra.roster import entry
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.cassandra.tables import EVERYBODY, NODES, ROSTER, keyed
from pushlane_storage.interface import StoreUnknown
from pushlane_storage.member import Member
from tests.held import let_go
from tests.storage.cassandra.conftest import Join
from tests.storage.cassandra.model_ring import FaultyRing, ModelRing, Tables
from tests.storage.cassandra.test_owners import stop_heart

Clock = trio.testing.MockClock

SHOWN = Member(process="", name="alpha", address="10.0.0.1:1", url="ws://a", placed=True)


async def seen(store: CassandraStore) -> dict[str, Member]:
    """Whom a process sees."""
    return {member.process: member for member in await store.ownership.members()}


async def names(store: CassandraStore) -> list[str]:
    return sorted(member.name for member in await store.ownership.members())


def introduce(store: CassandraStore, name: str) -> str:
    store.ownership.introduce(Member(process="", name=name))
    return store.ownership.process


async def rows(tables: Tables) -> list[str]:
    """The processes on the roster."""
    found = await ModelRing(tables).read(Range(ROSTER, (EVERYBODY,), 100))
    return [row["process"] for row in found]


# Seeing each other


async def test_two_processes_see_each_other(join: Join, autojump_clock: Clock) -> None:
    first, second = await join(), await join()
    processes = sorted([first.ownership.process, second.ownership.process])
    for store in (first, second):
        assert list(await seen(store)) == processes, "without having introduced themselves"
    first.ownership.introduce(SHOWN)
    await trio.testing.wait_all_tasks_blocked()
    found = (await seen(second))[first.ownership.process]
    process = first.ownership.process
    assert found == msgspec.structs.replace(SHOWN, process=process, beat=2)
    assert trio.current_time() == 0, "it did not wait for its next heartbeat"


async def test_an_introduction_is_one_heartbeat_at_most(join: Join, autojump_clock: Clock) -> None:
    store = await join()
    for weight in range(5):
        store.ownership.introduce(msgspec.structs.replace(SHOWN, weight=weight))
    await trio.testing.wait_all_tasks_blocked()
    assert store.ownership.beats == 2
    await trio.sleep(10.5)
    assert store.ownership.beats == 12


async def test_what_is_introduced_while_a_heartbeat_is_under_way_comes_with_the_next(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    class Slow(ModelRing):
        def write_soon(self, write: Write | Delete, done: Any) -> None:
            if write.table is ROSTER:
                trio.lowlevel.spawn_system_task(self._later, write, done)
            else:
                super().write_soon(write, done)

        async def _later(self, write: Write | Delete, done: Any) -> None:
            await trio.sleep(0.5)
            super().write_soon(write, done)

    first, second = await join(Slow(tables)), await join()
    first.ownership.introduce(SHOWN)
    await trio.sleep(0.2)
    first.ownership.introduce(msgspec.structs.replace(SHOWN, weight=7))
    process = first.ownership.process
    assert (await seen(first))[process].weight == 7, "it knows itself"
    await trio.sleep(0.4)
    assert (await seen(second))[process].weight == 100
    await trio.sleep(0.5)
    assert (await seen(second))[process].weight == 7


async def test_the_number_of_the_heartbeat_moves(join: Join, autojump_clock: Clock) -> None:
    first, second = await join(), await join()
    process = first.ownership.process
    before = (await seen(second))[process].beat
    await trio.sleep(5)
    assert (await seen(second))[process].beat == before + 5
    assert (await seen(first))[process].beat == before + 5
    stop_heart(first)
    await trio.sleep(5)
    assert (await seen(second))[process].beat == before + 5, "and he is there"


async def test_who_moves_is_not_looked_up(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    ring = ModelRing(tables)
    first, second = await join(), await join(ring)

    def looks() -> int:
        key = (first.ownership.process,)
        return sum(range.table is NODES and range.partition == key for range in ring.ranges)

    await seen(second)
    assert looks() == 1, "nobody knows him yet"
    for _ in range(5):
        await trio.sleep(1.5)
        await seen(second)
    assert looks() == 1
    await seen(second)
    assert looks() == 2, "he has not moved since"


async def test_the_roster_is_read_in_pages(join: Join, autojump_clock: Clock) -> None:
    stores = [await join(page_rows=2) for _ in range(5)]
    assert len(await seen(stores[0])) == 5


async def test_a_member_of_another_version(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    """One that shows more than we know, and one that shows itself in another way."""
    store = await join()
    ring = ModelRing(tables)
    for process, text in (("p1", '{"process":"p1","name":"n","mood":"good"}'), ("p2", "?")):
        await ring.change(Change(NODES, (process,), None, {"fenced": False}))
        row = keyed(ROSTER, (EVERYBODY, process), beat=4, member=text)
        await ring.write(Write(ROSTER, [row]))
    found = await seen(store)
    assert found["p1"] == Member(process="p1", name="n")
    assert found["p2"] == Member(process="p2", name="p2", beat=4)


# Leaving, dying


async def test_a_leaver_is_gone_at_once(join: Join, tables: Tables, autojump_clock: Clock) -> None:
    first, second = await join(), await join()
    introduce(second, "stays")
    assert len(await seen(second)) == 2
    await let_go(first)
    assert await rows(tables) == [second.ownership.process]
    assert await names(second) == ["stays"]


async def test_a_late_heartbeat_of_a_leaver_brings_nothing_back(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    first, second = await join(), await join()
    node = first.ownership.node
    await let_go(first)
    late = msgspec.structs.replace(node.member, beat=node.beats + 100)
    await ModelRing(tables).write(entry(late))
    assert await rows(tables) == [second.ownership.process]


async def test_the_row_of_a_dead_process_stays_until_somebody_fences_it(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    first, second = await join(), await join()
    dead = introduce(first, "dies")
    introduce(second, "lives")
    await trio.testing.wait_all_tasks_blocked()
    first.ownership.abandon()
    await trio.sleep(20)
    assert await names(second) == ["dies", "lives"], "nobody knows that it is dead"
    await second.ownership.fence(dead)
    assert await names(second) == ["lives"]
    assert await rows(tables) == [second.ownership.process]


async def test_who_comes_new_sees_no_dead(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    first, second = await join(), await join()
    first.ownership.abandon()
    await second.ownership.fence(first.ownership.process)
    assert len(await rows(tables)) == 2
    third = await join()
    assert len(await seen(third)) == 2
    assert len(await rows(tables)) == 2


async def test_a_row_that_can_not_be_removed_is_not_shown(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    fates = {"write": "fine"}

    def fate(kind: str, operation: Any) -> str:
        removes = isinstance(operation, Delete) and operation.table is ROSTER
        return fates["write"] if removes else "fine"

    first, second = await join(), await join(FaultyRing(ModelRing(tables), fate))
    first.ownership.abandon()
    await second.ownership.fence(first.ownership.process)
    fates["write"] = "lost"
    assert len(await seen(second)) == 1
    assert len(await rows(tables)) == 2
    fates["write"] = "fine"
    assert len(await seen(second)) == 1
    assert len(await rows(tables)) == 1


async def test_who_can_not_look_says_so(join: Join, tables: Tables, autojump_clock: Clock) -> None:
    blind: list[str] = []

    def fate(kind: str, operation: Any) -> str:
        return "lost" if kind in ("read", "serial") and operation.table.name in blind else "fine"

    first, second = await join(), await join(FaultyRing(ModelRing(tables), fate))
    for table in ("roster", "nodes"):
        blind[:] = [table]
        with pytest.raises(StoreUnknown):
            await second.ownership.members()
    blind.clear()
    assert first.ownership.process in await seen(second), "nobody was taken for dead"


async def test_a_node_row_that_is_read_too_early_takes_nobody_off(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    """A plain read may not see a row yet that was just decided; one at SERIAL does."""

    class Behind(ModelRing):
        is_behind = False

        async def read(self, range: Range) -> list[Row]:
            found = await super().read(range)
            is_behind = self.is_behind and range.level is not Level.SERIAL
            return [] if is_behind and range.table is NODES else found

    ring = Behind(tables)
    first, second = await join(), await join(ring)
    ring.is_behind = True
    try:
        assert first.ownership.process in await seen(second)
    finally:
        ring.is_behind = False
