"""Who shares a keyspace: how processes see each other, leave, are fenced, are drained."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from pushlane_storage.bucket import ShardKey
from pushlane_storage.cassandra.ring import Change, Delete, Level, Range, Row, Write, read_row
from pushlane_storage.cassandra.roster import entry
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.cassandra.tables import EVERYBODY, NODES, ROSTER, SLOTS, keyed
from pushlane_storage.interface import Fenced, ProcessMissing, SlotOwned, StoreUnknown
from pushlane_storage.member import Member, Owner
from pushlane_storage.slot import slot_of
from tests.held import let_go
from tests.storage.cassandra.conftest import Join
from tests.storage.cassandra.model_ring import FaultyRing, ModelRing, Tables
from tests.storage.cassandra.test_owners import stop_heart
from tests.storage.samples import unique

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
        row = keyed(ROSTER, (EVERYBODY, process), began=1, beat=4, member=text)
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
    await ModelRing(tables).write(entry(late, node._began))
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


# Fencing


async def test_a_fenced_process_goes_on_as_a_new_member(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    first, second = await join(), await join()
    first.ownership.introduce(SHOWN)
    await second.ownership.claim(3, "beta")
    await first.ownership.claim(7, "alpha")
    before = first.ownership.process
    await second.ownership.fence(before)
    assert second.stats().fencings == 1
    with pytest.raises(Fenced):
        await first.ownership.confirm(shard_in(7))
    found = await seen(first)
    after = first.ownership.process
    assert after != before
    assert sorted(found) == sorted([after, second.ownership.process])
    assert found[after].name == "alpha", "it need not be introduced again …"
    assert not found[after].placed, "… but that somebody has reached it"
    assert first.stats().fenced == 1
    assert sorted(await seen(second)) == sorted(found)
    assert before not in await rows(tables)
    began = trio.current_time()
    assert await second.ownership.claim(7, "beta") == 2
    assert trio.current_time() == began, "the fence is enough, nobody is judged"


async def test_an_idle_process_notices_its_fence_with_its_next_heartbeat(
    join: Join, autojump_clock: Clock
) -> None:
    first, second = await join(), await join()
    before = first.ownership.process
    await second.ownership.fence(before)
    await trio.sleep(1.1)
    beats = first.ownership.beats
    await trio.sleep(5)
    assert first.ownership.beats == beats, "its heart has stopped"
    assert before not in await seen(second)
    assert before not in await seen(first)
    await trio.sleep(5)
    assert first.ownership.beats >= beats + 5, "as another one it goes on"


async def test_to_fence_twice_is_one_fence(join: Join, autojump_clock: Clock) -> None:
    first, second = await join(), await join()
    for _ in range(2):
        await second.ownership.fence(first.ownership.process)
    await second.ownership.fence("nobody")
    assert second.stats().fencings == 1


async def test_a_fence_of_unknown_outcome_is_decided(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    fates = ["done", "lost"]

    def fate(kind: str, operation: Any) -> str:
        fences = kind == "change" and operation.row == {"fenced": True}
        return fates.pop() if fences and fates else "fine"

    first, second = await join(), await join(FaultyRing(ModelRing(tables), fate))
    process = first.ownership.process
    await second.ownership.fence(process)
    assert not fates
    row = await read_row(ModelRing(tables), NODES, (process,))
    assert row is not None
    assert row["fenced"] is True


async def test_somebody_s_fence_ends_a_wait_at_once(
    join: Join, nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    first, second, third = await join(), await join(), await join()
    await first.ownership.claim(3, "alpha")
    stop_heart(first)
    took: list[float] = []

    async def claim() -> None:
        await second.ownership.claim(3, "beta")
        took.append(trio.current_time())

    nursery.start_soon(claim)
    await trio.sleep(2)
    await third.ownership.fence(first.ownership.process)
    fenced = trio.current_time()
    await trio.sleep(3)
    assert [at - fenced <= 0.2 for at in took] == [True]
    assert second.stats().fencings == 0


# Draining


async def test_draining_is_seen_by_all(join: Join, autojump_clock: Clock) -> None:
    first, second = await join(), await join()
    process = first.ownership.process
    for draining in (True, False):
        await second.ownership.set_draining(process, draining)
        await trio.sleep(1.1)
        assert first.ownership.draining == draining
        for store in (first, second):
            assert (await seen(store))[process].draining == draining
    assert not second.ownership.draining
    assert first.stats().fenced == 0


async def test_a_process_that_writes_learns_it_with_its_fence(
    join: Join, autojump_clock: Clock
) -> None:
    first, second = await join(), await join()
    await first.ownership.claim(7, "alpha")
    await second.ownership.set_draining(first.ownership.process, True)
    await first.ownership.confirm(shard_in(7))
    assert first.ownership.draining
    await trio.testing.wait_all_tasks_blocked()
    assert (await seen(second))[first.ownership.process].draining
    assert trio.current_time() == 0


async def test_nobody_is_drained_who_is_gone(join: Join, autojump_clock: Clock) -> None:
    first, second, third = await join(), await join(), await join()
    await third.ownership.fence(first.ownership.process)
    gone = second.ownership.process
    await let_go(second)
    for process in (first.ownership.process, gone, "nobody"):
        with pytest.raises(ProcessMissing, match="has left, or was fenced"):
            await third.ownership.set_draining(process, True)


async def test_what_an_operator_wants_outlasts_a_fence(join: Join, autojump_clock: Clock) -> None:
    first, second = await join(), await join()
    await second.ownership.set_draining(first.ownership.process, True)
    await trio.sleep(1.1)
    await second.ownership.fence(first.ownership.process)
    await trio.sleep(1.1)
    await first.ownership.lost()
    assert first.ownership.draining
    assert (await seen(second))[first.ownership.process].draining
    await second.ownership.set_draining(first.ownership.process, False)
    await trio.sleep(1.1)
    assert not first.ownership.draining


@pytest.mark.parametrize("fate", ["lost", "done"])
async def test_draining_of_unknown_outcome_is_decided(
    join: Join, tables: Tables, autojump_clock: Clock, fate: str
) -> None:
    fates = [fate]

    def meet(kind: str, operation: Any) -> str:
        return fates.pop() if kind == "change" and operation.table is NODES and fates else "fine"

    first = await join()
    fates.clear()
    second = await join(FaultyRing(ModelRing(tables), meet))
    fates.append(fate)
    await second.ownership.set_draining(first.ownership.process, True)
    await trio.sleep(1.1)
    assert first.ownership.draining


# The own heart


async def test_a_heart_that_beats_is_well(join: Join, autojump_clock: Clock) -> None:
    store = await join()
    for _ in range(30):
        assert store.ownership.beat_failing_ms == 0
        await trio.sleep(0.3)


@pytest.mark.parametrize("table", ["heartbeats", "roster"])
async def test_heartbeats_that_fail_are_noticed(
    join: Join, tables: Tables, autojump_clock: Clock, table: str
) -> None:
    fates = {table: "fine"}

    def fate(kind: str, operation: Any) -> str:
        return fates.get(operation.table.name, "fine") if kind == "write" else "fine"

    store = await join(FaultyRing(ModelRing(tables), fate))
    await trio.sleep(0.5)
    fates[table] = "lost"
    found = []
    for _ in range(6):
        await trio.sleep(1)
        found.append(store.ownership.beat_failing_ms)
    assert found == [0, 1_500, 2_500, 3_500, 4_500, 5_500]
    fates[table] = "fine"
    await trio.sleep(1)
    assert store.ownership.beat_failing_ms == 0


async def test_a_heartbeat_that_hangs_fails_as_well(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    class Hanging(ModelRing):
        hangs = False

        def write_soon(self, write: Write | Delete, done: Any) -> None:
            if not self.hangs:
                super().write_soon(write, done)

    ring = Hanging(tables)
    store = await join(ring)
    ring.hangs = True
    await trio.sleep(6.5)
    assert store.ownership.beat_failing_ms == 5_500


# Owners


async def test_an_owner_is_known_by_process_name_and_epoch(
    join: Join, autojump_clock: Clock
) -> None:
    first, second = await join(), await join()
    for _ in range(2):
        await first.ownership.claim(7, "alpha")
    await second.ownership.claim(200, "beta")
    alpha = Owner(first.ownership.process, "alpha", 2)
    beta = Owner(second.ownership.process, "beta", 1)
    for store in (first, second):
        for serial in (False, True):
            assert await store.ownership.owner_of(7, serial=serial) == alpha
            assert await store.ownership.owner_of(8, serial=serial) is None
        assert await store.ownership.owners() == {7: alpha, 200: beta}
    with pytest.raises(SlotOwned) as refusal:
        await second.ownership.claim(7, "beta")
    assert refusal.value.owner == alpha


async def test_a_serial_read_sees_what_a_plain_one_misses(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    class Behind(ModelRing):
        async def read(self, range: Range) -> list[Row]:
            found = await super().read(range)
            if range.table is SLOTS and range.level is not Level.SERIAL:
                return [{**row, "epoch": row["epoch"] - 1} for row in found]
            return found

    first, second = await join(), await join(Behind(tables))
    await first.ownership.claim(7, "alpha")
    owner = Owner(first.ownership.process, "alpha", 1)
    assert await second.ownership.owner_of(7) == owner._replace(epoch=0)
    assert await second.ownership.owner_of(7, serial=True) == owner


def shard_in(slot: int) -> ShardKey:
    queue = unique("queue")
    return next(key for n in range(100_000) if slot_of(key := ShardKey(queue, n)) == slot)
