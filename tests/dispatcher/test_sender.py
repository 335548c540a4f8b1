"""The lease cache on the way of a delivery: told before it leaves, never in its way for long."""

from collections import Counter

import pytest
import trio

from pushlane_dispatcher.core.act import ACK, Act
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.lease_guard import cache_name
from pushlane_dispatcher.shard.stop import Stop
from pushlane_leases.interface import Forgotten, LeaseCacheError, LeaseRun
from pushlane_leases.memory import InstantLeases, LeaseTable, MemoryLeases
from pushlane_storage.interface import Fenced
from pushlane_storage.memory import MemoryStore
from tests.dispatcher.rig import (
    START,
    TENANT,
    Call,
    Consumer,
    Gate,
    Rig,
    ScriptedLeases,
    ScriptedStore,
    blocked,
    fail,
    fail_after,
    hang,
    memory_store,
    message,
    rig,
    settle_as_anybody,
)
from tests.dispatcher.shared_store import SharedScriptedStore
from tests.running import runners_of

GONE = LeaseCacheError("gone")


def known(leases: MemoryLeases, r: Rig) -> list[LeaseRun]:
    """What the cache has of the rig's shard."""
    return leases.table.claim(cache_name(r.runner.key), r.runner.epoch, START)


async def test_the_cache_knows_before_the_delivery_leaves() -> None:
    leases = ScriptedLeases()
    async with rig(leases=leases) as r:
        gate = Gate()
        leases.script.add("grant", gate)
        consumer = r.consumer(lease_ms=20_000)
        await r.publish(b"1", b"2")
        await gate.entered.wait()
        await blocked()
        assert consumer.runs == []
        gate.released.set()
        await consumer.got(2)
        (run,) = known(leases, r)
        assert (run.prefix, run.n, run.count, run.session) == (consumer.sub.prefix, 1, 2, "s")
        assert (run.started, run.attempts, run.lease_ms) == (True, 0, 20_000)
        assert run.seq == consumer.runs[0].seq
        assert START + 20_000 <= run.deadline <= START + 20_100


async def test_settled_receipts_are_forgotten_and_started_ones_told() -> None:
    leases = ScriptedLeases()
    async with rig(leases=leases) as r:
        consumer = r.consumer(explicit=True)
        await r.publish(b"1", b"2")
        await consumer.got(2)
        assert [run.started for run in known(leases, r)] == [False]
        prefix = consumer.sub.prefix
        consumer.settle(Act("start"), [(prefix, 1, 1)])
        await blocked()
        assert [(run.n, run.started) for run in known(leases, r)] == [(1, True), (2, False)]
        consumer.settle(ACK, [(prefix, 1, 2)])
        await blocked()
        assert known(leases, r) == []


async def test_deliveries_gather_while_the_cache_is_asked() -> None:
    leases = ScriptedLeases()
    async with rig(leases=leases) as r:
        gate = Gate()
        leases.script.add("grant", gate)
        consumer = r.consumer()
        await r.publish(b"1")
        await gate.entered.wait()
        for body in (b"2", b"3", b"4"):
            await r.publish(body)
        gate.released.set()
        assert await consumer.got(4) == [b"1", b"2", b"3", b"4"]
        assert len(leases.script.called("grant")) == 2


async def test_what_its_client_has_not_heard_of_is_not_what_it_has() -> None:
    """Neither what is granted nor what is lost, where a shard ends before the cache knows of it."""
    leases = ScriptedLeases()
    async with rig(leases=leases, reserve_ms=1_000) as r:
        consumer = r.consumer(explicit=True)
        await r.publish(b"1", b"2")
        await consumer.got(2)
        await trio.sleep(0.9)
        gate = Gate()
        leases.script.add("grant", gate)
        await r.publish(b"3")
        await gate.entered.wait()
        await trio.sleep(0.15)  # meanwhile the first two run out
        assert (consumer.bodies, consumer.lost_receipts) == ([b"1", b"2"], [])
        held = consumer.sub.held
        assert min(held) == 3
        r.runner.credit(consumer.sub.prefix, consumer, 100)
        assert consumer.held == len(held) + 2, "what it was not told to have lost is its own"
        r.runner.stop(Stop.CLOSED)
        await r.runner._engine.stopped.wait()
        assert consumer.had == [(consumer.sub.prefix, 1, 2)]


async def test_a_slow_cache_delays_a_delivery_and_no_more() -> None:
    leases = ScriptedLeases()
    async with rig(leases=leases) as r:
        leases.script.add("grant", hang)
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        assert trio.current_time() == pytest.approx(0.2, abs=0.01)
        assert r.dispatcher.leases is not None
        assert r.dispatcher.leases.failures == 1


async def test_a_cache_that_fails_is_left_alone_and_told_everything_when_it_is_back() -> None:
    leases = ScriptedLeases()
    async with rig(leases=leases, settings=Settings(cache_failures=2, cache_rest_ms=1_000)) as r:
        guard = r.dispatcher.leases
        assert guard is not None
        leases.script.always["grant"] = fail(GONE)
        consumer = r.consumer()
        for number in range(4):
            await r.publish(b"%d" % number)
        await consumer.got(4)
        assert trio.current_time() < 0.1
        assert (guard.broken, guard.trips, guard.skipped > 0) == (True, 1, True)
        assert known(leases, r) == []
        leases.script.always.clear()
        await trio.sleep(1)
        await r.publish(b"4")
        await consumer.got(5)
        assert (guard.broken, guard.generation) == (False, 2)
        await r.publish(b"5")
        await consumer.got(6)
        assert sum(run.count for run in known(leases, r)) == 6


async def test_one_missed_grant_is_made_up_for_with_the_next() -> None:
    leases = ScriptedLeases()
    async with rig(leases=leases) as r:
        leases.script.add("grant", fail(GONE))
        consumer = r.consumer()
        reserving = r.consumer(explicit=True)
        await r.publish(b"1", b"2")
        await consumer.until(lambda: bool(consumer.runs and reserving.runs))
        assert known(leases, r) == []
        await r.publish(b"3", b"4")
        await consumer.until(lambda: len(consumer.bodies + reserving.bodies) == 4)
        runs = known(leases, r)
        assert sum(run.count for run in runs) == 4
        assert {run.started for run in runs} == {True, False}


async def test_a_cache_that_is_back_is_told_though_nothing_happens() -> None:
    leases = ScriptedLeases()
    settings = Settings(cache_failures=1, cache_rest_ms=1_000)
    async with rig(leases=leases, settings=settings, lease_ms=3_600_000) as r:
        guard = r.dispatcher.leases
        assert guard is not None
        leases.script.always["grant"] = fail(GONE)
        consumer = r.consumer()
        await r.publish(b"1", b"2")
        await consumer.got(2)
        await trio.sleep(5)
        assert r.dispatcher.lease_numbers()["broken"] == 1
        assert 2 <= guard.failures <= 6, "it is tried once in a while"
        leases.script.always.clear()
        await trio.sleep(3)
        assert r.dispatcher.lease_numbers()["broken"] == 0
        assert [(run.n, run.count) for run in known(leases, r)] == [(1, 2)]
        calls = len(leases.script.calls)
        await trio.sleep(60)
        assert len(leases.script.calls) == calls, "then it is left alone"


async def test_a_cache_that_is_back_is_not_overrun() -> None:
    leases = ScriptedLeases()
    settings = Settings(cache_failures=1, cache_rest_ms=1_000, catch_ups=2)
    async with rig(leases=leases, settings=settings, shards=7, lease_ms=3_600_000) as r:
        leases.script.always["grant"] = fail(GONE)
        for runner in runners_of(r.queue):
            consumer = Consumer(runner)
            await runner.publish([message(b"1")])
            await consumer.got(1)
        calls = len(leases.script.calls)
        await trio.sleep(3)
        assert len(leases.script.calls) - calls <= 3, "one tries for all"
        leases.script.always.clear()
        told: list[float] = []

        async def note(call: Call) -> None:
            told.append(trio.current_time())
            await call()

        leases.script.always["grant"] = note
        await trio.sleep(10)
        names = [cache_name(runner.key) for runner in runners_of(r.queue)]
        found = [leases.table.claim(name, 1 << 20, START) for name in names]
        assert [len(runs) for runs in found] == [1] * 7
        assert max(Counter(told).values()) == 2


async def test_a_cache_that_forgot_is_told_everything_soon() -> None:
    leases = ScriptedLeases()
    async with rig(leases=leases, lease_ms=3_600_000) as r:
        consumer = r.consumer()
        await r.publish(b"1", b"2")
        await consumer.got(2)
        leases.table = LeaseTable()
        leases.script.add("grant", fail_after(Forgotten("flushed")))
        await r.publish(b"3")
        await consumer.got(3)
        await trio.sleep(5.1)
        assert sum(run.count for run in known(leases, r)) == 3


async def test_a_release_that_finds_an_empty_cache_has_it_filled() -> None:
    leases = ScriptedLeases()
    async with rig(leases=leases, lease_ms=3_600_000) as r:
        consumer = r.consumer()
        await r.publish(b"1", b"2")
        await consumer.got(2)
        leases.table = LeaseTable()
        leases.script.add("release", fail_after(Forgotten("flushed")))
        consumer.settle(ACK, [(consumer.sub.prefix, 1, 1)])
        await trio.sleep(5.1)
        assert [(run.n, run.count) for run in known(leases, r)] == [(2, 1)]


async def test_a_newer_owner_that_the_store_knows_too_ends_the_shard() -> None:
    leases, store = ScriptedLeases(), SharedScriptedStore()
    async with rig(store, leases) as r:
        leases.table.claim(cache_name(r.runner.key), r.runner.epoch + 5, START)
        store.rivals.add("confirm", fail(Fenced("another's")))
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.until(lambda: consumer.end is not None)
        assert consumer.runs == []
        assert r.runner.stopped_by is Stop.FENCED


async def test_a_newer_owner_of_whom_only_the_cache_knows_is_overwritten() -> None:
    leases = ScriptedLeases()
    async with rig(SharedScriptedStore(), leases) as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        leases.table.claim(cache_name(r.runner.key), r.runner.epoch + 5, START)
        for number in (2, 3):
            await r.publish(b"%d" % number)
            await consumer.got(number)
        assert sum(run.count for run in known(leases, r)) == 3, "it was told everything again"
        assert r.dispatcher.lease_numbers()["overruled"] == 1


async def test_a_cache_without_waits_that_is_ahead_is_overwritten_at_the_next_opening() -> None:
    table = LeaseTable()
    async with rig(memory_store(), InstantLeases(table)) as r:
        table.claim(cache_name(r.runner.key), r.runner.epoch + 5, START)
        consumer = r.consumer()
        r.runner.publish_soon([message(b"1")])
        await consumer.until(lambda: consumer.end is not None)
        assert r.runner.stopped_by is Stop.STALE
        queue = await r.dispatcher.open(TENANT, "q")
        again = Consumer(runners_of(queue)[0])
        await again.got(1)


async def test_what_was_on_its_way_to_a_lost_connection_comes_by_the_resume() -> None:
    leases = ScriptedLeases()
    async with rig(leases=leases) as r:
        gate = Gate()
        leases.script.add("grant", gate)
        consumer = r.consumer()
        await r.publish(b"1")
        await gate.entered.wait()
        consumer.detach(30_000)
        consumer.resume([])
        gate.released.set()
        await consumer.until(lambda: bool(consumer.again))
        await blocked()
        assert consumer.runs == []
        assert len(consumer.again) == 1


async def test_forgetting_waits_for_deliveries_but_not_for_ever() -> None:
    leases = ScriptedLeases()
    async with rig(leases=leases, settings=Settings(forgets=3)) as r:
        consumer = r.consumer(acking=True)
        for number in range(20):
            await r.publish(b"%d" % number)
        await consumer.got(20)
        await blocked()
        assert known(leases, r) == []


@pytest.mark.parametrize("lost", [False, True])
async def test_receipts_outlive_a_restart_if_the_cache_does(lost: bool) -> None:
    store, leases = memory_store(), MemoryLeases()
    async with rig(store, leases) as r:
        consumer = r.consumer(lease_ms=60_000)
        await r.publish(b"1", b"2", b"3")
        await consumer.got(3)
        prefix = consumer.sub.prefix
        consumer.settle(ACK, [(prefix, 1, 1)])
        await blocked()
    leases = MemoryLeases() if lost else MemoryLeases(leases.table)
    async with rig(MemoryStore(store.tables), leases) as r:
        second = r.consumer()
        if lost:
            assert await second.got(2) == [b"2", b"3"]
            return
        await blocked()
        assert second.runs == []
        assert (await settle_as_anybody(r, prefix, 2)).lost == []
        assert await second.got(1) == [b"3"]  # its lease ran out, its attempt counted
        assert second.runs[0].attempt == 2
        assert (await settle_as_anybody(r, "nobody", 2)).lost == [("nobody", 2, 2)]


async def test_a_restart_without_its_cache_goes_on_without() -> None:
    store, leases = memory_store(), MemoryLeases()
    async with rig(store, leases) as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
    broken = ScriptedLeases(leases.table)
    broken.script.add("claim", hang)
    async with rig(ScriptedStore(store.tables), broken) as r:
        second = r.consumer()
        assert await second.got(1) == [b"1"]
        assert r.dispatcher.leases is not None
        assert r.dispatcher.leases.failures == 1


async def test_leases_that_outlive_a_restart_run_out_one_by_one() -> None:
    store, leases = memory_store(), MemoryLeases()
    async with rig(store, leases, lease_ms=30_000, backoff_base_ms=0) as r:
        consumer = r.consumer()
        await r.publish(b"1", b"2")
        await r.runner.publish([message(b"3")], [7])
        await consumer.got(3)
        prefix = consumer.sub.prefix
        consumer.settle(Act("extend", lease_ms=60_000), [(prefix, 2, 3)])
        await blocked()
    async with rig(MemoryStore(store.tables), MemoryLeases(leases.table)) as r:
        second = r.consumer(acking=True)
        assert await second.got(1) == [b"1"]
        assert trio.current_time() == pytest.approx(30, abs=1)
        assert sorted(await second.got(3)) == [b"1", b"2", b"3"]
        assert trio.current_time() == pytest.approx(60, abs=1)


async def test_only_the_last_owners_word_on_leases_counts() -> None:
    store, leases = memory_store(), MemoryLeases()
    async with rig(store, leases) as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
    async with rig(MemoryStore(store.tables)) as r:  # an owner without the cache
        assert r.runner.epoch == 2
    scripted = ScriptedStore(store.tables)
    async with rig(scripted, MemoryLeases(leases.table)) as r:
        second = r.consumer()
        assert await second.got(1) == [b"1"]
        assert trio.current_time() < 1
        assert not scripted.script.called("messages")


async def test_a_cached_lease_of_what_the_log_has_ended_is_nothing() -> None:
    store, leases = memory_store(), ScriptedLeases()
    async with rig(store, leases) as r:
        consumer = r.consumer()
        await r.publish(b"1", b"2")
        await consumer.got(2)
        leases.script.always["release"] = fail(GONE)
        await consumer.ack(consumer.runs[0])
    async with rig(MemoryStore(store.tables), MemoryLeases(leases.table)) as r:
        assert r.runner.stats().stored == 0
        assert r.runner.stats().subscriptions == 0
