"""Who owns a slot, who is fenced, and what a paused owner can still do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from pushlane_dispatcher.clock import Clock as WallClock
from pushlane_dispatcher.core.opening import read_rows
from pushlane_dispatcher.core.recovered import recover
from pushlane_dispatcher.shard.opening import carry_out, reading
from pushlane_storage.bucket import Bucket, ShardKey
from pushlane_storage.cassandra.home import Home
from pushlane_storage.cassandra.ring import Change, Delete, Range, Row, Write
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.interface import Fenced, Outcome, StoreRefused, StoreUnknown
from pushlane_storage.seal import Seal, ShardRows
from pushlane_storage.slot import slot_of
from tests.held import let_go
from tests.storage.cassandra.conftest import Join
from tests.storage.cassandra.model_ring import FaultyRing, ModelRing, Tables
from tests.storage.samples import Owner, messages, unique

Clock = trio.testing.MockClock


async def owner_of(store: CassandraStore, shard: ShardKey | None = None) -> Owner:
    shard = shard or ShardKey(unique("queue"), 0)
    return Owner(store, shard, await store.ownership.claim(slot_of(shard), "node"))


def stop_heart(store: CassandraStore) -> None:
    store.ownership.node.beating = False


async def take_over(store: CassandraStore, shard: ShardKey) -> tuple[Owner, ShardRows, Seal]:
    """Claim, read, seal: what the dispatcher does."""
    owner = await owner_of(store, shard)
    rows = await carry_out(read_rows(), reading(store, WallClock(), shard), 1)
    seal, _ = recover(rows, owner.epoch)
    await store.write_seal(shard, seal)
    return owner, rows, seal


async def test_a_slot_of_a_live_process_is_refused(join: Join, autojump_clock: Clock) -> None:
    first, second = await join(), await join()
    await first.ownership.claim(7, "alpha")
    began = trio.current_time()
    with pytest.raises(StoreRefused, match=r"slot 7 is owned by alpha \(.*\), which is alive"):
        await second.ownership.claim(7, "beta")
    assert trio.current_time() - began < 4, "one heartbeat is enough to know"
    assert second.stats().slots == 0
    assert await first.ownership.claim(7, "alpha") == 2


async def test_a_process_whose_heart_stopped_is_fenced(join: Join, autojump_clock: Clock) -> None:
    first, second = await join(), await join()
    old = await owner_of(first)
    stored = await old.append(0, messages(3))
    await old.settle(0, stored.bucket, acked=[(stored.first, stored.first)])
    stop_heart(first)
    began = trio.current_time()
    new, _, seal = await take_over(second, old.shard)
    assert 10 <= trio.current_time() - began < 15
    assert new.epoch == old.epoch + 1
    assert seal.counters == [(4, old.epoch, 3)]
    assert seal.flushes == [(old.epoch, 1)]
    assert second.stats().fencings == 1
    with pytest.raises(Fenced):
        await old.append(3, messages(1))
    with pytest.raises(Fenced):
        await old.settle(1, stored.bucket, acked=[(stored.last, stored.last)])
    with pytest.raises(Fenced):
        await first.write_seal(old.shard, Seal(old.epoch, [], []))
    with pytest.raises(Fenced):
        await first.mark_bucket(old.shard, Bucket(stored.bucket, stored.first, closed=True))
    with pytest.raises(Fenced):
        await first.ownership.confirm(old.shard)


async def test_what_a_zombie_writes_late_lies_beyond_the_seal(
    join: Join, autojump_clock: Clock
) -> None:
    first, second = await join(), await join()
    old = await owner_of(first)
    await old.append(0, messages(3))
    stop_heart(first)
    _, _, sealed = await take_over(second, old.shard)

    async def append() -> None:
        with pytest.raises(Fenced):
            await old.append(3, messages(2))

    async def settle() -> None:
        with pytest.raises(Fenced):
            await old.settle(0, old.bucket(), acked=[(old.seq(0), old.seq(2))])

    async with trio.open_nursery() as nursery:  # both before it notices
        nursery.start_soon(append)
        nursery.start_soon(settle)
    heads = await second.heads(old.shard, old.bucket())
    assert [head.count for head in heads] == [3, 2], "it did land, unseen by its writer"
    assert len(await second.settlements(old.shard, old.bucket())) == 1
    _, _, again = await take_over(second, old.shard)
    assert again.counters == sealed.counters == [(4, old.epoch, 3)]
    assert again.flushes == [(old.epoch, 0)]


async def test_a_zombie_opens_a_bucket_that_does_not_exist(
    join: Join, autojump_clock: Clock
) -> None:
    first, second = await join(), await join()
    old = await owner_of(first)
    stop_heart(first)
    await take_over(second, old.shard)
    with pytest.raises(Fenced):
        await old.append(0, messages(2))
    _, rows, seal = await take_over(second, old.shard)
    assert [row.key for row in rows.buckets] == [old.bucket()]
    assert seal.counters == []


async def test_a_zombie_writes_to_a_bucket_that_was_dropped(
    join: Join, autojump_clock: Clock
) -> None:
    """Whatever the clocks say: it stays dropped."""
    first, second = await join(), await join()
    old = await owner_of(first)
    stored = await old.append(0, messages(3, not_before=5))
    stop_heart(first)
    new, _, _ = await take_over(second, old.shard)
    row = Bucket(stored.bucket, stored.first, closed=True, drained=True, count=3)
    await second.mark_bucket(new.shard, row)
    await second.drop(new.shard, stored.bucket)
    with pytest.raises(Fenced):
        await old.append(0, messages(3, not_before=5))
    with pytest.raises(Fenced):
        await first.mark_bucket(old.shard, msgspec.structs.replace(row, drained=False))
    assert (await second.outline(new.shard)).buckets == []
    assert await second.heads(new.shard, stored.bucket) == []
    assert await second.due(new.shard, 0, 1 << 60, 10) == []


@pytest.mark.parametrize("late", [2, 4], ids=["fewer", "more"])
async def test_of_two_owners_that_close_a_bucket_the_later_one_counts(
    join: Join, autojump_clock: Clock, late: int
) -> None:
    first, second = await join(), await join()
    old = await owner_of(first)
    stored = await old.append(0, messages(3))
    stop_heart(first)
    new, _, _ = await take_over(second, old.shard)
    closed = Bucket(stored.bucket, stored.first, closed=True, count=3, size=300, last_at=9)
    await second.mark_bucket(new.shard, closed)
    zombie = msgspec.structs.replace(closed, count=late, size=10**9, last_at=10**9)
    with pytest.raises(Fenced):
        await first.mark_bucket(old.shard, zombie)
    assert (await second.outline(new.shard)).buckets == [closed]


async def test_a_zombie_drops_nothing(join: Join, autojump_clock: Clock) -> None:
    first, second = await join(), await join()
    old = await owner_of(first)
    stored = await old.append(0, messages(3))
    await old.drain(stored.bucket)
    stop_heart(first)
    await take_over(second, old.shard)
    with pytest.raises(Fenced):
        await first.drop(old.shard, stored.bucket)
    assert len(await second.heads(old.shard, stored.bucket)) == 1


async def test_many_slots_of_a_dead_process_wait_once(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    ring = ModelRing(tables)
    first, second = await join(), await join(ring)
    for slot in range(50):
        await first.ownership.claim(slot, "alpha")
    stop_heart(first)
    began = trio.current_time()
    epochs: list[int] = []

    async def claim(slot: int) -> None:
        epochs.append(await second.ownership.claim(slot, "beta"))

    async with trio.open_nursery() as nursery:
        for slot in range(50):
            nursery.start_soon(claim, slot)
    assert trio.current_time() - began < 15
    assert epochs == [2] * 50
    assert second.stats().fencings == 1


async def test_closing_gives_the_slots_back(join: Join, autojump_clock: Clock) -> None:
    first, second = await join(), await join()
    for slot in range(5):
        await first.ownership.claim(slot, "alpha")
    await let_go(first)
    began = trio.current_time()
    assert [await second.ownership.claim(slot, "beta") for slot in range(5)] == [2] * 5
    assert trio.current_time() - began < 1


async def test_a_process_that_left_need_not_have_released_anything(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    """Its node row is gone: that is enough."""
    ring = FaultyRing(ModelRing(tables), lambda *_: "fine")
    first, second = await join(ring), await join()
    await first.ownership.claim(3, "alpha")

    def no_slots(kind: str, operation: Any) -> str:
        return "lost" if kind == "change" and operation.table.name == "slots" else "fine"

    ring.fate = no_slots
    await let_go(first)
    began = trio.current_time()
    assert await second.ownership.claim(3, "beta") == 2
    assert trio.current_time() - began < 1


async def test_a_process_that_could_not_sign_off_gives_its_slots_back(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    ring = FaultyRing(ModelRing(tables), lambda *_: "fine")
    first, second = await join(ring), await join()
    await first.ownership.claim(3, "alpha")

    def no_nodes(kind: str, operation: Any) -> str:
        return "refused" if kind == "change" and operation.table.name == "nodes" else "fine"

    ring.fate = no_nodes
    await let_go(first)
    began = trio.current_time()
    assert await second.ownership.claim(3, "beta") == 2
    assert trio.current_time() - began < 1


class Gate(ModelRing):
    """Holds segments up on their way back, and changes of slots on their way there."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.stored = trio.Event()
        self.changes = trio.Event()
        self.changes.set()
        self.held: list[Outcome] = []

    def write_soon(self, write: Write | Delete, done: Outcome) -> None:
        if write.table.name != "segments":
            super().write_soon(write, done)
        else:
            self.held.append(done)
            super().write_soon(write, lambda _: self.stored.set())

    async def change(self, change: Change) -> bool:
        if change.table.name == "slots":
            await self.changes.wait()
        return await super().change(change)


@pytest.mark.parametrize("is_over", [True, False], ids=["claimed", "being claimed"])
async def test_what_is_under_way_when_a_slot_is_claimed_anew_is_fenced(
    join: Join, tables: Tables, nursery: trio.Nursery, is_over: bool
) -> None:
    """Also by the same process: whoever claims may have read before it was stored."""
    ring = Gate(tables)
    store = await join(ring)
    owner = await owner_of(store)
    answers: list[type[Exception] | None] = []

    async def append() -> None:
        try:
            await owner.append(0, messages(1))
        except Fenced as error:
            answers.append(type(error))
        else:
            answers.append(None)

    nursery.start_soon(append)
    await ring.stored.wait()
    if is_over:
        await store.ownership.claim(slot_of(owner.shard), "again")
    else:
        ring.changes = trio.Event()
        nursery.start_soon(store.ownership.claim, slot_of(owner.shard), "again")
        await trio.testing.wait_all_tasks_blocked()
    ring.held[0](None)
    await trio.testing.wait_all_tasks_blocked()
    assert answers == [Fenced]
    ring.changes.set()


async def test_a_released_slot_is_free_at_once(join: Join, autojump_clock: Clock) -> None:
    first, second = await join(), await join()
    owner = await owner_of(first)
    slot = slot_of(owner.shard)
    await first.ownership.release(slot)
    with pytest.raises(Fenced, match="not ours"):
        await owner.append(0, messages(1))
    began = trio.current_time()
    assert await second.ownership.claim(slot, "beta") == owner.epoch + 1
    assert trio.current_time() - began < 1
    await first.ownership.release(slot)  # not ours any more: nothing happens
    with pytest.raises(StoreRefused, match="alive"):
        await first.ownership.claim(slot, "alpha")


async def test_a_fenced_process_goes_on_as_another_one(join: Join, autojump_clock: Clock) -> None:
    first, second = await join(), await join()
    old = await owner_of(first)
    other = await first.ownership.claim((slot_of(old.shard) + 1) % 256, "alpha")
    assert other == 1
    stop_heart(first)
    await second.ownership.claim(slot_of(old.shard), "beta")
    with pytest.raises(Fenced):
        await old.append(0, messages(1))
    await let_go(second)
    again = await owner_of(first, old.shard)
    assert again.epoch == old.epoch + 2
    await again.append(0, messages(1))
    assert first.stats().fenced == 1
    assert await first.ownership.claim((slot_of(old.shard) + 1) % 256, "alpha") == 2
    await trio.sleep(10)
    assert first.ownership.node.beats > 3


async def test_a_data_centre_keeps_its_slots(join: Join, autojump_clock: Clock) -> None:
    """What was written to a quorum of one can't be read by a quorum of another."""
    first, second = await join(home=Home("east")), await join(home=Home("west"))
    await first.ownership.claim(1, "alpha")
    await let_go(first)
    with pytest.raises(StoreRefused, match="slot 1 belongs to data centre east"):
        await second.ownership.claim(1, "beta")


@pytest.mark.parametrize(("before", "after"), [("", "east"), ("east", "")])
async def test_naming_the_one_data_centre_that_has_all_replicas_changes_nothing(
    join: Join, autojump_clock: Clock, before: str, after: str
) -> None:
    """Its quorums are those of the whole keyspace."""
    first, second = await join(home=Home(before, "east")), await join(home=Home(after, "east"))
    await first.ownership.claim(1, "alpha")
    with pytest.raises(StoreRefused, match="alive"):
        await second.ownership.claim(1, "beta")
    stop_heart(first)
    await trio.sleep(1)
    assert await second.ownership.claim(1, "beta") == 2, "it may be fenced, too"
    third = await join(home=Home("west", "east"))
    with pytest.raises(StoreRefused, match="data centre"):
        await third.ownership.claim(1, "gamma")


async def test_where_replicas_are_in_several_data_centres_adopting_is_a_decision(
    join: Join, autojump_clock: Clock
) -> None:
    first = await join()
    for slot in (1, 2):
        await first.ownership.claim(slot, "alpha")
    second = await join(home=Home("east"))
    with pytest.raises(StoreRefused, match=r"belongs to data centre \(none\).*docs/cassandra.md"):
        await second.ownership.claim(1, "beta")
    third = await join(home=Home("east", adopts=True))
    with pytest.raises(StoreRefused, match="slot 1 was not given back"):
        await third.ownership.claim(1, "gamma")
    await first.ownership.release(1)
    assert await third.ownership.claim(1, "gamma") == 2
    fourth = await join(home=Home("west", adopts=True))
    with pytest.raises(StoreRefused, match="belongs to data centre east"):
        await fourth.ownership.claim(1, "delta")


async def test_a_judge_that_can_not_read_judges_nobody(
    join: Join, tables: Tables, autojump_clock: Clock
) -> None:
    ring = FaultyRing(ModelRing(tables), lambda *_: "fine")
    first, second = await join(), await join(ring)
    await first.ownership.claim(1, "alpha")
    stop_heart(first)

    def blind(kind: str, operation: Any) -> str:
        return "lost" if kind == "read" and operation.table.name == "heartbeats" else "fine"

    ring.fate = blind
    with pytest.raises(StoreUnknown):
        await second.ownership.claim(1, "beta")
    assert await first.ownership.claim(1, "alpha") == 2


async def test_two_claimants_of_a_dead_process_get_one_slot(
    join: Join, autojump_clock: Clock
) -> None:
    first, *others = [await join() for _ in range(4)]
    await first.ownership.claim(1, "alpha")
    stop_heart(first)
    won: list[int] = []

    async def claim(store: CassandraStore) -> None:
        try:
            won.append(await store.ownership.claim(1, "other"))
        except StoreRefused:
            return

    async with trio.open_nursery() as nursery:
        for store in others:
            nursery.start_soon(claim, store)
    assert won == [2]


async def test_a_process_that_leaves_while_it_is_judged_is_missed_no_longer(
    join: Join, nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    first, second = await join(), await join()
    await first.ownership.claim(3, "alpha")
    stop_heart(first)
    took: list[float] = []

    async def claim() -> None:
        assert await second.ownership.claim(3, "beta") == 2
        took.append(trio.current_time())

    nursery.start_soon(claim)
    await trio.sleep(2)
    await let_go(first)
    left = trio.current_time()
    await trio.sleep(5)
    assert [at - left < 0.25 for at in took] == [True]
    assert second.stats().fencings == 0


async def test_a_slot_that_is_given_back_while_its_owner_is_judged_is_free_at_once(
    join: Join, nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    first, second = await join(), await join()
    for slot in (3, 4):
        await first.ownership.claim(slot, "alpha")
    stop_heart(first)
    took: dict[int, float] = {}

    async def claim(slot: int) -> None:
        assert await second.ownership.claim(slot, "beta") == 2
        took[slot] = trio.current_time()

    nursery.start_soon(claim, 3)
    nursery.start_soon(claim, 4)
    await trio.sleep(2)
    await first.ownership.release(3)
    released = trio.current_time()
    await trio.sleep(5)
    assert took.keys() == {3}
    assert took[3] - released < 0.25
    await trio.sleep(10)
    assert took.keys() == {3, 4}, "the other slot's owner was judged all the same"


async def test_a_process_that_others_have_fenced_meanwhile_is_outlived(
    join: Join, nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    first, second, third = await join(), await join(), await join(judge_ms=4_000)
    for slot in (3, 4):
        await first.ownership.claim(slot, "alpha")
    stop_heart(first)
    began = trio.current_time()
    nursery.start_soon(third.ownership.claim, 4, "gamma")
    assert await second.ownership.claim(3, "beta") == 2
    assert 4 <= trio.current_time() - began < 5
    assert (second.stats().fencings, third.stats().fencings) == (0, 1)


async def test_who_was_seen_alive_is_not_judged_again_for_a_while(
    join: Join, autojump_clock: Clock
) -> None:
    first, second = await join(), await join()
    for slot in range(5):
        await first.ownership.claim(slot, "alpha")
    with pytest.raises(StoreRefused, match="alive"):
        await second.ownership.claim(0, "beta")
    began = trio.current_time()
    for slot in range(5):
        with pytest.raises(StoreRefused, match="alive"):
            await second.ownership.claim(slot, "beta")
    assert trio.current_time() == began
    await let_go(first)
    assert await second.ownership.claim(0, "beta") == 2
    assert trio.current_time() == began, "that it left is seen all the same"


async def test_time_in_which_the_judge_can_not_look_is_not_the_other_s_silence(
    join: Join, tables: Tables, nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    """Cassandra answers nobody for longer than `judge_ms`: no heartbeat lands either."""

    class Standing(ModelRing):
        goes = trio.Event()
        goes.set()

        async def read(self, range: Range) -> list[Row]:
            await self.goes.wait()
            return await super().read(range)

    ring = Standing(tables)
    first, second = await join(), await join(ring)
    await first.ownership.claim(1, "alpha")
    stop_heart(first)
    refused: list[StoreRefused] = []

    async def claim() -> None:
        try:
            await second.ownership.claim(1, "beta")
        except StoreRefused as error:
            refused.append(error)

    nursery.start_soon(claim)
    await trio.sleep(2)
    ring.goes = trio.Event()
    await trio.sleep(20)
    ring.goes.set()
    await trio.sleep(2)
    first.ownership.node.beating = True
    await trio.sleep(3)
    assert refused
    assert second.stats().fencings == 0
