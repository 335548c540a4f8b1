"""Publish, deliver, settle, over a store and a lease cache in memory."""

import pytest
import trio

from pushlane.wire.errors import BadRequest, NotFound, Unavailable
from pushlane_dispatcher.core.act import ACK, START, Act
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import SettleTicket
from pushlane_dispatcher.waiter import Waiter
from pushlane_leases.memory import MemoryLeases
from tests.dispatcher.rig import TENANT, Gate, ScriptedStore, blocked, message, numbered, rig
from tests.running import runners_of

CACHED = pytest.mark.parametrize("cached", [False, True])


@CACHED
async def test_publish_deliver_ack(cached: bool) -> None:
    async with rig(leases=MemoryLeases() if cached else None) as r:
        consumer = r.consumer()
        ticket = await r.runner.publish(numbered(3))
        assert len(ticket.seqs) == 3
        assert not ticket.failed
        assert await consumer.got(3) == [b"0", b"1", b"2"]
        settled = await consumer.ack()
        assert (settled.lost, settled.duplicate) == ([], [])
        stats = r.runner.stats()
        assert (stats.stored, stats.acked) == (0, 3)


@CACHED
async def test_thousands_go_through_in_order_each_once(cached: bool) -> None:
    async with rig(leases=MemoryLeases() if cached else None) as r:
        consumers = [r.consumer(50, acking=True) for _ in range(3)]
        async with trio.open_nursery() as nursery:
            for first in range(0, 3_000, 100):
                nursery.start_soon(r.runner.publish, numbered(100, first))
        await consumers[0].until(lambda: sum(len(c.bodies) for c in consumers) == 3_000)
        assert {body for c in consumers for body in c.bodies} == {b"%d" % n for n in range(3_000)}
        for consumer in consumers:
            seqs = [run.seq for run in consumer.runs]
            assert seqs == sorted(seqs)
        with trio.fail_after(60):
            while r.runner.stats().acked < 3_000:  # noqa: ASYNC110 nobody waits for these acks
                await trio.sleep(0.001)


async def test_a_publish_is_answered_only_when_it_is_stored(nursery: trio.Nursery) -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        gate = Gate()
        store.script.add("append", gate)
        consumer = r.consumer()
        waiter: Waiter[object] = Waiter()
        r.runner.publish_soon([message()], waiter)
        await gate.entered.wait()
        await blocked()
        assert not waiter.answered
        assert consumer.runs == []
        gate.released.set()
        await waiter.wait()
        assert await consumer.got(1) == [b"1"]


async def test_what_is_published_meanwhile_shares_the_next_flush() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=Bounds(flushes=1)) as r:
        gate = Gate()
        store.script.add("append", gate)
        waiters: list[Waiter[object]] = [Waiter() for _ in range(11)]
        r.runner.publish_soon([message()], waiters[0])
        await gate.entered.wait()
        for waiter in waiters[1:]:
            r.runner.publish_soon([message()], waiter)
        await blocked()
        gate.released.set()
        for waiter in waiters:
            await waiter.wait()
        sizes = [len(segment.messages) for _, segment, _ in store.script.called("append")]
        assert sizes == [1, 10]


async def test_overlapping_flushes_count_in_order_whichever_is_stored_first() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        gates = [Gate() for _ in range(3)]
        store.script.add("append", *gates)
        consumer = r.consumer()
        waiters: list[Waiter[object]] = [Waiter() for _ in gates]
        for number, (gate, waiter) in enumerate(zip(gates, waiters, strict=True)):
            r.runner.publish_soon([message(b"%d" % number)], waiter)
            await gate.entered.wait()
        for gate in (gates[2], gates[1]):
            gate.released.set()
            await blocked()
            assert consumer.runs == []
            assert not any(waiter.answered for waiter in waiters)
        gates[0].released.set()
        assert await consumer.got(3) == [b"0", b"1", b"2"]
        for waiter in waiters:
            await waiter.wait()


async def test_an_ack_is_answered_only_when_it_is_stored() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        gate = Gate()
        store.script.add("settle", gate)
        waiter: Waiter[SettleTicket] = Waiter()
        consumer.settle(ACK, [consumer.receipt(consumer.runs[0])], waiter)
        await gate.entered.wait()
        await blocked()
        assert not waiter.answered
        gate.released.set()
        assert (await waiter.wait()).lost == []


async def test_a_repeated_ack_is_a_duplicate_and_a_strange_receipt_is_lost() -> None:
    async with rig() as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        await consumer.ack()
        again = await consumer.ack()
        assert again.duplicate == [(consumer.sub.prefix, 1, 1)]
        strange = consumer.settle(ACK, [("nobody", 1, 1)])
        assert strange.lost == [("nobody", 1, 1)]


async def test_lease_start_extend_and_expiry() -> None:
    async with rig(lease_ms=10_000, reserve_ms=60_000, backoff_base_ms=1_000) as r:
        consumer = r.consumer(explicit=True)
        await r.publish(b"1")
        await consumer.got(1)
        receipt = consumer.receipt(consumer.runs[0])
        await trio.sleep(50)  # only reserved: no lease runs
        waiter: Waiter[SettleTicket] = Waiter()
        consumer.settle(START, [receipt], waiter)
        assert (await waiter.wait()).lost == []
        await trio.sleep(9)
        consumer.settle(Act("extend", lease_ms=10_000), [receipt])
        await trio.sleep(9)
        assert consumer.lost_receipts == []
        began = trio.current_time()
        await consumer.until(lambda: bool(consumer.lost_receipts))
        assert trio.current_time() - began == pytest.approx(1, abs=0.01)
        await consumer.got(2)  # again, after its backoff and the consumer's own
        assert [run.attempt for run in consumer.runs] == [1, 2]
        assert consumer.runs[1].fence > consumer.runs[0].fence


async def test_a_delayed_message_comes_when_it_is_due() -> None:
    async with rig() as r:
        consumer = r.consumer()
        began = trio.current_time()
        ticket = await r.publish(b"later", not_before=message().published_at + 5_000)
        await r.publish(b"now")
        assert await consumer.got(2) == [b"now", b"later"]
        assert trio.current_time() - began == pytest.approx(5, abs=0.01)
        assert not ticket.failed


async def test_messages_of_the_far_future_come_from_the_schedule() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        consumer = r.consumer()
        late = 2 * Bounds().horizon_ms
        await r.publish(b"late", not_before=message().published_at + late)
        assert r.runner.stats().delayed == 1
        await consumer.got(1)
        assert trio.current_time() == pytest.approx(late / 1000, abs=1)
        assert store.script.called("due")


async def test_a_nack_waits_for_its_backoff_and_a_given_delay_for_that() -> None:
    async with rig(backoff_base_ms=4_000, consumer_backoff_base_ms=0) as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        began = trio.current_time()
        await consumer.nack(consumer.runs[0], error="not today")
        await consumer.got(2)
        assert trio.current_time() - began == pytest.approx(2, abs=0.01)  # half of its ceiling
        began = trio.current_time()
        await consumer.nack(consumer.runs[1], delay_ms=7_000)
        await consumer.got(3)
        assert trio.current_time() - began == pytest.approx(7, abs=0.01)
        assert [run.attempt for run in consumer.runs] == [1, 2, 3]


async def test_at_most_once_is_settled_before_it_leaves() -> None:
    store = ScriptedStore()
    async with rig(store, MemoryLeases()) as r:
        gate = Gate()
        store.script.add("settle", gate)
        consumer = r.consumer(ack_none=True)
        await r.publish(b"1", b"2")
        await gate.entered.wait()
        await blocked()
        assert consumer.runs == []
        gate.released.set()
        assert await consumer.got(2) == [b"1", b"2"]
        assert r.runner.stats().acked == 2


async def test_priorities_expiry_and_credit() -> None:
    async with rig(dead_letter="") as r:
        await r.runner.publish([message(b"low"), message(b"high")], [2, 8])
        await r.publish(b"stale", expires_at=message().published_at + 1_000)
        await trio.sleep(2)
        consumer = r.consumer(1)
        assert await consumer.got(1) == [b"high"]
        consumer.set_credit(10)
        assert await consumer.got(2) == [b"high", b"low"]
        with pytest.raises(BadRequest, match="credit"):
            consumer.set_credit(-1)
        with pytest.raises(BadRequest, match="credit"):
            r.consumer(1_000_000)
        assert r.runner.stats().expired == 1


async def test_a_resumed_session_gets_what_it_did_not_list() -> None:
    async with rig(leases=MemoryLeases()) as r:
        consumer = r.consumer()
        await r.publish(b"1", b"2")
        await consumer.got(2)
        consumer.detach(30_000)
        await trio.sleep(10)
        prefix = consumer.sub.prefix
        first = consumer.sub.generation - 1
        assert consumer.resume([(prefix, 1, 1), (prefix, 9, 9)]) == [(prefix, 9, 9)]
        await consumer.until(lambda: bool(consumer.again))
        assert [run.messages[0].body for run in consumer.again] == [b"2"]
        assert consumer.again[0].n == 2
        old = consumer.settle(ACK, [(prefix, 1, 2)], generation=first)
        assert old.lost == [(prefix, 1, 2)]  # of the connection before
        assert not (await consumer.ack()).lost


async def test_a_session_that_stays_away_loses_what_it_has() -> None:
    async with rig() as r:
        consumer, other = r.consumer(1, explicit=True), None
        await r.publish(b"1")
        await consumer.got(1)
        consumer.detach(5_000)
        other = r.consumer()
        assert await other.got(1) == [b"1"]
        assert other.runs[0].deliveries == 1
        with pytest.raises(NotFound):
            consumer.resume([])


async def test_a_session_that_ends_gives_back_at_once_and_unsubscribing_keeps_leases() -> None:
    async with rig(leases=MemoryLeases()) as r:
        first = r.consumer()
        await r.publish(b"1")
        await first.got(1)
        first.leave()
        second = r.consumer()
        await second.got(1)
        assert trio.current_time() < 0.1
        second.unsubscribe()
        await r.publish(b"2")
        assert not (await second.ack()).lost
        assert second.bodies == [b"1"]


async def test_purge_takes_what_is_not_in_flight() -> None:
    async with rig() as r:
        consumer = r.consumer(1)
        await r.publish(b"1", b"2", b"3")
        await consumer.got(1)
        await r.queue.purge()
        assert r.runner.stats().purged == 2
        await consumer.ack()
        assert r.runner.stats().stored == 0


async def test_a_backlog_beyond_the_window_is_paged_in() -> None:
    store = ScriptedStore()
    bounds = Bounds(window_messages=10, page_messages=5, segment_messages=5)
    async with rig(store, bounds=bounds) as r:
        await r.runner.publish(numbered(100))
        consumer = r.consumer(3, acking=True)
        assert await consumer.got(100) == [b"%d" % n for n in range(100)]
        assert store.script.called("segments")


async def test_bodies_that_memory_let_go_of_are_read_again() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=Bounds(window_messages=10)) as r:
        await r.runner.publish(numbered(10))
        consumer = r.consumer(10)  # the window is full: what leaves it leaves its body behind
        await consumer.got(10)
        await consumer.nack(delay_ms=0)
        assert sorted(await consumer.got(20)) == sorted(2 * [b"%d" % n for n in range(10)])
        assert store.script.called("messages")


async def test_buckets_are_closed_drained_and_dropped() -> None:
    store = ScriptedStore()
    bounds = Bounds(bucket_messages=10)
    async with rig(store, bounds=bounds, dedup_window_ms=60_000) as r:
        consumer = r.consumer(acking=True)
        for first in range(0, 50, 10):
            await r.runner.publish(numbered(10, first))
        await consumer.got(50)
        await trio.sleep(120)
        key = r.runner.key
        assert len(store.script.called("drop")) >= 4
        assert len(store.tables.outline(key).buckets) <= 1


async def test_calls_on_a_stopped_shard_are_unavailable() -> None:
    async with rig() as r:
        consumer = r.consumer()
        await r.runner.close()
        assert consumer.end == ("unavailable", "the shard was closed")
        assert not r.queue.running
        with pytest.raises(Unavailable):
            await r.runner.publish([message()])
        for call in (
            lambda: consumer.settle(ACK, []),
            lambda: consumer.resume([]),
            lambda: r.runner.stats(),
            lambda: r.runner.purge(),
            lambda: r.consumer(),
        ):
            with pytest.raises(Unavailable):
                call()
        await blocked()
        assert r.dispatcher.open_shards == 0
        assert runners_of(await r.dispatcher.open(TENANT, "q"))[0].epoch > r.runner.epoch
