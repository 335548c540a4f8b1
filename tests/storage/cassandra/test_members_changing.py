"""What processes that share a keyspace do to each other: they fence and drain; and what each knows
of its own heart, and of who owns what."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from pushlane_storage.cassandra.ring import Change, Delete, Level, Range, Row, Write, read_row
from pushlane_storage.cassandra.tables import NODES, ROSTER, SLOTS
from pushlane_storage.interface import Fenced, ProcessMissing, SlotOwned, StoreError
from pushlane_storage.member import Member, Owner
from tests.held import let_go
from tests.storage.cassandra.conftest import Join
from tests.storage.cassandra.model_ring import FaultyRing, ModelRing, Tables
from tests.storage.cassandra.test_members import rows, seen
from tests.storage.cassandra.test_owners import stop_heart
from tests.storage.conformance_ownership import in_slot

Clock = trio.testing.MockClock

SHOWN = Member(process="", name="alpha", placed=True)


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
        await first.ownership.confirm(in_slot(7))
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


async def test_who_is_fenced_while_it_looks_sees_itself_as_the_new_one(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    class Interrupted(ModelRing):
        fences = False

        async def read(self, range: Range) -> list[Row]:
            if range.table is ROSTER and self.fences:
                self.fences = False
                await second.ownership.fence(first.ownership.process)
                await first.ownership.lost()
            return await super().read(range)

    ring = Interrupted(tables)
    first, second = await join(ring), await join()
    ring.fences = True
    found = list(await seen(first))
    assert found == sorted([first.ownership.process, second.ownership.process])


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


class SlowFences(FaultyRing):
    """Fences meet these fates, the last one first, once they are let through."""

    def __init__(self, tables: Tables, fates: list[str]) -> None:
        super().__init__(ModelRing(tables), lambda *_: "fine")
        self.fates = fates
        self.through = trio.Event()

    async def change(self, change: Change) -> bool:
        if change.row != {"fenced": True}:
            return await super().change(change)
        await self.through.wait()
        fate = self.fates.pop()
        return await FaultyRing(self.ring, lambda *_: fate).change(change)


@pytest.mark.parametrize("fate", ["lost", "refused"])
async def test_who_fences_one_that_is_being_fenced_waits_for_that(
    join: Join, tables: Tables, nursery: trio.Nursery, fate: str, autojump_clock: Clock
) -> None:
    ring = SlowFences(tables, ["fine", fate])
    first, second = await join(), await join(ring)
    process, errors = first.ownership.process, list[StoreError]()

    async def fence() -> None:
        try:
            await second.ownership.fence(process)
        except StoreError as error:
            errors.append(error)

    for _ in range(2):
        nursery.start_soon(fence)
        await trio.testing.wait_all_tasks_blocked()
    ring.through.set()
    await trio.testing.wait_all_tasks_blocked()
    assert not ring.fates, "the one tried again, or else the other one did"
    assert [str(error) for error in errors] == ([] if fate == "lost" else ["planted"])
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
    await first.ownership.confirm(in_slot(7))
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
    fates: list[str] = []

    def meet(kind: str, operation: Any) -> str:
        return fates.pop() if kind == "change" and operation.table is NODES and fates else "fine"

    first, second = await join(), await join(FaultyRing(ModelRing(tables), meet))
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

        def __init__(self, tables: Tables) -> None:
            super().__init__(tables)
            self.held: list[tuple[Write | Delete, Any]] = []

        def write_soon(self, write: Write | Delete, done: Any) -> None:
            if self.hangs:
                self.held.append((write, done))
            else:
                super().write_soon(write, done)

        def go_on(self) -> None:
            self.hangs = False
            for write, done in self.held:
                self.write_soon(write, done)

    ring = Hanging(tables)
    store = await join(ring)
    ring.hangs = True
    await trio.sleep(6.5)
    assert store.ownership.beat_failing_ms == 5_500
    ring.go_on()
    await trio.testing.wait_all_tasks_blocked()
    assert store.ownership.beat_failing_ms == 4_500, "it may have landed when it was begun"
    await trio.sleep(1.1)
    assert store.ownership.beat_failing_ms == 0


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
