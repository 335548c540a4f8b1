"""Opening and closing shards, and the slots behind them."""

import secrets

import pytest
import trio

from pushlane.wire.errors import Throttled, Unavailable
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.dispatcher import Dispatcher
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_dispatcher.shard.stop import Stop
from pushlane_leases.memory import LeaseTable
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Fenced, StoreRefused, StoreUnknown
from pushlane_storage.memory import MemoryStore
from pushlane_storage.queue import QueueConfig
from pushlane_storage.segment import DamagedSegment
from pushlane_storage.slot import slot_of
from tests.dispatcher.rig import (
    START,
    TENANT,
    Consumer,
    Gate,
    ScriptedLeases,
    ScriptedStore,
    blocked,
    dispatching,
    fail,
    fail_after,
    hang,
    memory_store,
    message,
    numbered,
    rig,
)
from tests.running import runners_of, stats_now


async def two_in_one_slot(dispatcher: Dispatcher) -> tuple[OpenQueue, OpenQueue]:
    """Two queues whose only shards share a slot."""
    seen: dict[int, OpenQueue] = {}
    for number in range(1_000):
        queue = await dispatcher.open(TENANT, f"q{number}", create=True)
        slot = slot_of(runners_of(queue)[0].key)
        if slot in seen:
            return seen[slot], queue
        seen[slot] = queue
    raise AssertionError("a thousand queues, and no two in one slot")


async def two_in_one_slot_of(dispatcher: Dispatcher) -> tuple[OpenQueue, OpenQueue]:
    """The same where few shards can be open at once."""
    seen: dict[int, str] = {}
    for number in range(1_000):
        row = await dispatcher.create(TENANT, f"q{number}")
        name = seen.setdefault(slot_of(ShardKey(row.id, 0)), row.name)
        if name != row.name:
            one = await dispatcher.open(TENANT, name)
            return one, await dispatcher.open(TENANT, row.name)
    raise AssertionError("a thousand queues, and no two in one slot")


async def test_shards_of_one_slot_share_its_epoch() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        one, two = await two_in_one_slot(dispatcher)
        assert runners_of(one)[0].epoch == runners_of(two)[0].epoch == 1
        assert not (await one.publish([message()])).failed
        assert not (await two.publish([message()])).failed
        slots = [slot for slot, _ in store.script.called("claim")]
        assert len(slots) == len(set(slots))


async def test_a_shard_that_gave_up_leaves_the_others_of_its_slot_alone() -> None:
    store = ScriptedStore()
    async with dispatching(store, settings=Settings(decide_ms=100)) as dispatcher:
        one, two = await two_in_one_slot(dispatcher)
        consumer = Consumer(runners_of(two)[0])
        store.script.add("append", hang)
        assert (await one.publish([message()])).failed
        one = await dispatcher.open(TENANT, one.row.name)
        assert (runners_of(one)[0].epoch, runners_of(two)[0].epoch) == (2, 1)
        for queue in (one, two):
            assert queue.running
            assert not (await queue.publish([message()])).failed
        assert await consumer.got(1)
        assert not (await consumer.ack()).lost
        await runners_of(one)[0].close()
        assert runners_of(await dispatcher.open(TENANT, one.row.name))[0].epoch == 3
        assert two.running


async def test_a_shard_that_was_fenced_takes_the_others_of_its_slot_with_it() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        one, two = await two_in_one_slot(dispatcher)
        consumer = Consumer(runners_of(two)[0])
        store.script.add("append", fail(Fenced("gone")))
        assert (await one.publish([message()])).failed
        await blocked()
        assert consumer.end == ("unavailable", Stop.FENCED.value)
        two = await dispatcher.open(TENANT, two.row.name)
        one = await dispatcher.open(TENANT, one.row.name)
        assert runners_of(one)[0].epoch == runners_of(two)[0].epoch == 2, "one claim for both"


async def test_everybody_waits_for_the_same_opening_and_who_gives_up_stops_nothing() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        await dispatcher.create(TENANT, "q")
        gate = Gate()
        store.script.add("outline", gate)
        opened = []

        async def open_queue(scope: trio.CancelScope) -> None:
            with scope:
                opened.append(await dispatcher.open(TENANT, "q"))

        scopes = [trio.CancelScope() for _ in range(4)]
        async with trio.open_nursery() as nursery:
            for scope in scopes:
                nursery.start_soon(open_queue, scope)
                await blocked()
            scopes[0].cancel()
            await blocked()
            gate.released.set()
        assert len(opened) == 3
        assert len({id(queue) for queue in opened}) == 1
        assert len(store.script.called("claim")) == 1


@pytest.mark.parametrize("error", [StoreUnknown("?"), StoreRefused("no"), DamagedSegment("bits")])
@pytest.mark.parametrize("name", ["claim", "outline", "settlements"])
async def test_an_opening_that_fails_says_so_and_the_next_one_succeeds(
    error: Exception, name: str
) -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        await dispatcher.create(TENANT, "q")
        store.script.add(name, fail(error))
        with pytest.raises(Unavailable, match="could not be opened") as refused:
            await dispatcher.open(TENANT, "q")
        assert refused.value.retry_ms
        assert dispatcher.open_shards == 0
        assert not (await dispatcher.publish(TENANT, "q", [message()])).failed


async def test_what_is_changed_until_the_slot_is_ours_counts_from_the_first_delivery_on() -> None:
    store, gate = ScriptedStore(), Gate()
    async with dispatching(store) as dispatcher, trio.open_nursery() as nursery:
        row = await dispatcher.create(TENANT, "q", QueueConfig(lease_ms=5_000))
        store.script.add("claim", gate)
        opened: list[ShardRunner] = []

        async def open_shard() -> None:
            opened.append(await dispatcher._shards.open(row, 0, None))

        nursery.start_soon(open_shard)
        await gate.entered.wait()
        config = QueueConfig(lease_ms=7_000, max_messages=1, paused=True)
        store.tables.update_queue(row, config)
        gate.released.set()
        await blocked()
        assert opened[0]._shard.config == config
        assert [each.version for each in dispatcher._shards.rows()] == [2]
        consumer = Consumer(opened[0])
        await opened[0].publish([message()])
        assert consumer.runs == [], "it is paused"


@pytest.mark.parametrize("made_again", [False, True])
async def test_what_is_deleted_until_the_slot_is_ours_is_not_opened(made_again: bool) -> None:
    store, gate = ScriptedStore(), Gate()
    async with dispatching(store) as dispatcher:
        row = await dispatcher.create(TENANT, "q")
        store.script.add("claim", gate)
        async with trio.open_nursery() as nursery:

            async def open_shard() -> None:
                with pytest.raises(Unavailable, match="deleted just now"):
                    await dispatcher._shards.open(row, 0, None)

            nursery.start_soon(open_shard)
            await gate.entered.wait()
            marked = store.tables.mark_deleting(row)
            if made_again:
                store.tables.remove_queue(marked)
                store.tables.create_queue(TENANT, "q", QueueConfig())
            gate.released.set()
        assert dispatcher.open_shards == 0
        assert store.script.called("write_seal") == []


async def test_a_failed_read_costs_no_epoch() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        await dispatcher.create(TENANT, "q")
        store.script.add("outline", fail(StoreUnknown("?")))
        with pytest.raises(Unavailable):
            await dispatcher.open(TENANT, "q")
        assert runners_of(await dispatcher.open(TENANT, "q"))[0].epoch == 1


async def test_an_unknown_seal_is_written_again() -> None:
    store = ScriptedStore()
    store.script.add("write_seal", fail_after(StoreUnknown("?")), fail(StoreRefused("no")))
    async with rig(store) as r:
        assert r.runner.epoch == 1
        written = store.script.called("write_seal")
        assert len(written) == 3
        assert all(args == written[0] for args in written)


async def test_an_undecided_seal_uses_its_epoch_up() -> None:
    store = ScriptedStore()
    async with dispatching(store, settings=Settings(decide_ms=100)) as dispatcher:
        await dispatcher.create(TENANT, "q")
        store.script.add("write_seal", hang)
        with pytest.raises(Unavailable):
            await dispatcher.open(TENANT, "q")
        assert runners_of(await dispatcher.open(TENANT, "q"))[0].epoch == 2


async def test_an_opening_that_is_fenced_claims_again_but_not_for_ever() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        await dispatcher.create(TENANT, "q")
        store.script.add("write_seal", fail(Fenced("gone")), fail(Fenced("gone")))
        assert runners_of(await dispatcher.open(TENANT, "q"))[0].epoch == 3
        await runners_of(await dispatcher.open(TENANT, "q"))[0].close()
        store.script.always["write_seal"] = fail(Fenced("gone"))
        with pytest.raises(Unavailable):
            await dispatcher.open(TENANT, "q")


async def test_a_cache_that_is_ahead_of_the_store_keeps_nobody_out() -> None:
    store, table = memory_store(), LeaseTable()
    async with rig(store, ScriptedLeases(table)) as r:
        table.claim(f"{r.runner.key.queue_id}/0", 1_000, START)
    async with rig(MemoryStore(store.tables), ScriptedLeases(table)) as r:
        assert r.runner.epoch == 2
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        assert len(table.claim(f"{r.runner.key.queue_id}/0", 2, START)) == 1


async def test_who_waits_for_a_slot_keeps_nobody_from_opening_another(
    nursery: trio.Nursery,
) -> None:
    """Claims that wait for another process to be judged take no turn among those that recover."""
    store = ScriptedStore()
    async with dispatching(store, settings=Settings(openings=2)) as dispatcher:
        slots: dict[int, str] = {}
        while len(slots) < 6:
            row = await dispatcher.create(TENANT, f"q{len(slots)}-{secrets.token_hex(4)}")
            slots[slot_of(ShardKey(row.id, 0))] = row.name
        *others, free = slots.values()
        store.script.add("claim", *[hang] * 5)
        for name in others:
            nursery.start_soon(dispatcher.open, TENANT, name)
        await blocked()
        assert len(store.script.called("claim")) == 5
        began = trio.current_time()
        assert runners_of(await dispatcher.open(TENANT, free))[0].running
        assert trio.current_time() == began
        nursery.cancel_scope.cancel()


async def test_an_opening_that_takes_too_long_is_given_up() -> None:
    store = ScriptedStore()
    async with dispatching(store, settings=Settings(open_ms=2_000)) as dispatcher:
        await dispatcher.create(TENANT, "q")
        store.script.add("outline", hang)
        with pytest.raises(Unavailable):
            await dispatcher.open(TENANT, "q")
        assert trio.current_time() == pytest.approx(2)


@pytest.mark.parametrize("name", ["outline", "write_seal"])
async def test_a_slot_that_is_lost_during_an_opening_is_claimed_again(name: str) -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        one, two = await two_in_one_slot(dispatcher)
        await runners_of(two)[0].close()
        gate = Gate()
        store.script.add(name, gate)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dispatcher.open, TENANT, two.row.name)
            await gate.entered.wait()
            runners_of(one)[0]._engine.stop(Stop.FENCED)
            await blocked()
            gate.released.set()
        one = await dispatcher.open(TENANT, one.row.name)
        two = await dispatcher.open(TENANT, two.row.name)
        assert runners_of(one)[0].epoch == runners_of(two)[0].epoch == 3


async def test_what_nobody_uses_is_closed_and_opens_again() -> None:
    store = memory_store()
    async with rig(store, settings=Settings(idle_ms=60_000)) as r:
        await r.publish(b"1")
        await trio.sleep(120)
        assert r.dispatcher.open_shards == 0
        assert r.runner.stopped_by is Stop.CLOSED
        await r.reopen()
        consumer = r.consumer(acking=True)
        assert await consumer.got(1) == [b"1"]
        await trio.sleep(300)
        assert r.dispatcher.open_shards == 1  # somebody is subscribed


async def test_an_idle_shard_is_closed_beside_a_busy_one_of_its_slot() -> None:
    async with dispatching(settings=Settings(idle_ms=60_000)) as dispatcher:
        one, two = await two_in_one_slot(dispatcher)
        consumer = Consumer(runners_of(one)[0])
        await trio.sleep(120)
        assert dispatcher.open_shards == 1
        assert (one.running, two.running) == (True, False)
        two = await dispatcher.open(TENANT, two.row.name)
        assert (runners_of(one)[0].epoch, runners_of(two)[0].epoch) == (1, 2)
        assert not (await one.publish([message()])).failed
        assert not (await two.publish([message()])).failed
        assert await consumer.got(1)


async def test_a_shard_with_messages_that_wait_to_leave_is_not_idle() -> None:
    async with rig(settings=Settings(idle_ms=60_000)) as r:
        await r.dispatcher.create(TENANT, "q.dead", QueueConfig(max_message_bytes=1))
        consumer = r.consumer()
        await r.publish(b"too large for there")
        await consumer.got(1)
        await consumer.nack(dead=True)
        consumer.leave()
        await trio.sleep(300)
        assert r.runner.running
        await r.dispatcher.update(TENANT, "q.dead", QueueConfig())
        await trio.sleep(300)
        assert not r.runner.running


async def test_idle_shards_make_room_whoever_shares_their_slots() -> None:
    async with dispatching(settings=Settings(open_shards=4)) as dispatcher:
        one, two = await two_in_one_slot_of(dispatcher)
        Consumer(runners_of(one)[0])
        await trio.sleep(1)
        for name in ("a", "b", "c"):
            await dispatcher.open(TENANT, name, create=True)
            await trio.sleep(1)
        assert one.running
        assert not two.running, "the longest unused, though its slot has a busy one"


async def test_too_many_shards_push_out_an_idle_one_or_are_refused() -> None:
    async with dispatching(settings=Settings(open_shards=2)) as dispatcher:
        a = await dispatcher.open(TENANT, "a", create=True)
        await trio.sleep(1)
        b = await dispatcher.open(TENANT, "b", create=True)
        await trio.sleep(1)
        c = await dispatcher.open(TENANT, "c", create=True)
        assert [queue.running for queue in (a, b, c)] == [False, True, True]
        Consumer(runners_of(b)[0])
        Consumer(runners_of(c)[0])
        with pytest.raises(Throttled, match="too many open queues"):
            await dispatcher.open(TENANT, "a")


async def test_two_that_make_room_for_the_same_shard_open_it_once() -> None:
    store = ScriptedStore()
    async with dispatching(store, settings=Settings(open_shards=1)) as dispatcher:
        row = await dispatcher.create(TENANT, "q")
        await dispatcher.open(TENANT, "other", create=True)
        store.script.calls.clear()
        runners = []

        async def open_shard() -> None:
            runners.append(await dispatcher._shards.open(row, 0, None))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(open_shard)
        assert len({id(runner) for runner in runners}) == 1
        assert len(store.script.called("write_seal")) == 1


async def test_who_asks_while_it_closes_gets_the_next_one() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        gate = Gate()
        store.script.add("append", gate)
        r.runner.publish_soon([message()])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(r.runner.close)
            await blocked()
            nursery.start_soon(r.reopen)
            await blocked()
            gate.released.set()
        assert r.runner.running
        assert r.runner.epoch == 2
        assert stats_now(r.queue).stored == 1


async def test_recovery_reads_many_buckets_a_few_at_a_time() -> None:
    store = memory_store()
    bounds = Bounds(bucket_messages=2, segment_messages=2)
    async with rig(store, bounds=bounds) as r:
        for number in range(30):
            await r.runner.publish(numbered(2, 2 * number))
    slow = ScriptedStore(store.tables)
    under_way = most = 0

    async def slowly(call: object) -> object:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await trio.sleep(0.01)
        under_way -= 1
        return await call()  # type: ignore[operator]

    slow.script.always |= {"heads": slowly, "settlements": slowly}
    async with rig(slow, settings=Settings(recovery_reads=4)) as r:
        assert most == 4
        consumer = r.consumer(acking=True)
        assert await consumer.got(60) == [b"%d" % n for n in range(60)]
