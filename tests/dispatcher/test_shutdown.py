"""Closing: what was accepted is stored and answered, what was confirmed is there afterwards."""

import pytest
import trio

from pushlane.wire.errors import Unavailable
from pushlane_dispatcher.core.act import ACK
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import PublishTicket, SettleTicket
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.stop import Stop
from pushlane_dispatcher.waiter import Waiter
from pushlane_leases.memory import MemoryLeases
from pushlane_storage.memory import MemoryStore
from tests.dispatcher.rig import (
    TENANT,
    Consumer,
    Gate,
    ScriptedStore,
    blocked,
    dispatching,
    hang,
    memory_store,
    message,
    numbered,
    rig,
)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("after", [0.0, 0.003, 0.02])
async def test_a_shutdown_under_load_loses_nothing(cached: bool, after: float) -> None:
    store = ScriptedStore()
    confirmed: set[bytes] = set()
    acked: set[bytes] = set()

    async def slowly(call: object) -> object:
        await trio.sleep(0.001)
        return await call()  # type: ignore[operator]

    async with rig(store, MemoryLeases() if cached else None) as r:
        store.script.always |= {"append": slowly, "settle": slowly}

        async def produce(producer: int) -> None:
            for number in range(10_000):
                body = b"%d/%d" % (producer, number)
                try:
                    await r.runner.publish([message(body)])
                except Unavailable:
                    return
                confirmed.add(body)

        async def consume(consumer: Consumer) -> None:
            while consumer.end is None:
                await consumer.until(lambda: bool(consumer.runs or consumer.end))
                while consumer.runs:
                    run = consumer.runs.pop(0)
                    try:
                        await consumer.ack(run)
                    except Unavailable:
                        return
                    acked.update(m.body for m in run.messages)

        async with trio.open_nursery() as nursery:
            for producer in range(8):
                nursery.start_soon(produce, producer)
            nursery.start_soon(consume, r.consumer(5))
            await trio.sleep(after)
            await r.dispatcher.aclose()
        assert r.dispatcher.open_shards == 0
        with pytest.raises(Unavailable):
            await r.dispatcher.open(TENANT, "q")
    if after:
        assert confirmed
    async with rig(MemoryStore(store.tables)) as r:
        consumer = r.consumer(1_000)
        await blocked()
        left = set(consumer.bodies)
        assert confirmed - acked <= left
        assert not acked & left


async def test_accepted_publishes_and_acks_are_answered() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        append, settle = Gate(), Gate()
        store.script.add("append", append)
        store.script.add("settle", settle)
        published: Waiter[PublishTicket] = Waiter()
        settled: Waiter[SettleTicket] = Waiter()
        r.runner.publish_soon([message(b"2")], published)
        consumer.settle(ACK, [consumer.receipt(consumer.runs[0])], settled)
        await blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(r.dispatcher.aclose)
            await blocked()
            with pytest.raises(Unavailable):
                r.runner.publish_soon([message(b"3")])
            append.released.set()
            settle.released.set()
        assert not (await published.wait()).failed
        assert not (await settled.wait()).lost
        assert consumer.bodies == [b"1"]  # nothing new was granted
        assert consumer.end is not None


async def test_settles_are_taken_until_the_end() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        gate = Gate()
        store.script.add("append", gate)
        r.runner.publish_soon([message(b"2")])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(r.runner.close)
            await blocked()
            assert not (await consumer.ack()).lost
            gate.released.set()
    async with rig(MemoryStore(store.tables)) as r:
        second = r.consumer()
        assert await second.got(1) == [b"2"]


async def test_what_nobody_waits_for_is_finished_too() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=Bounds(bucket_messages=1)) as r:
        consumer = r.consumer(1)
        await r.publish(b"1")
        await consumer.got(1)
        await r.publish(b"2")
        settle, mark = Gate(), Gate()
        store.script.add("settle", settle)
        store.script.add("mark_bucket", mark)
        consumer.settle(ACK, [consumer.receipt(consumer.runs[0])])
        await settle.entered.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(r.runner.close)
            await blocked()
            seen = [r.runner.stopped_by]
            settle.released.set()
            await mark.entered.wait()
            await blocked()
            seen.append(r.runner.stopped_by)
            mark.released.set()
        assert [*seen, r.runner.stopped_by] == [None, None, Stop.CLOSED]
        assert [row.drained for row in store.tables.outline(r.runner.key).buckets] == [True, False]


async def test_closing_does_not_wait_for_ever() -> None:
    store = ScriptedStore()
    async with rig(store, settings=Settings(close_ms=2_000)) as r:
        store.script.always["append"] = hang
        waiter: Waiter[PublishTicket] = Waiter()
        r.runner.publish_soon([message()], waiter)
        await r.dispatcher.aclose()
        assert trio.current_time() == pytest.approx(2)
        with pytest.raises(Unavailable):
            await waiter.wait()


async def test_closing_twice_and_at_the_same_time_is_fine() -> None:
    async with rig() as r:
        await r.publish(b"1")
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(r.dispatcher.aclose)
        await r.dispatcher.aclose()
        await r.runner.close()


async def test_closing_ends_openings() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        await dispatcher.create(TENANT, "q")
        store.script.add("outline", hang)
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(Unavailable, match="could not be opened"):
                    await dispatcher.open(TENANT, "q")

            nursery.start_soon(wait)
            await blocked()
            await dispatcher.aclose()
        assert trio.current_time() < 1


async def test_everything_is_there_after_many_restarts() -> None:
    store = memory_store()
    for number in range(5):
        async with rig(MemoryStore(store.tables)) as r:
            await r.runner.publish(numbered(10, number * 10))
            consumer = r.consumer(3)
            await consumer.got(3)
            await consumer.ack()
            assert r.runner.epoch == number + 1
    async with rig(MemoryStore(store.tables)) as r:
        consumer = r.consumer(1_000)
        assert len(await consumer.got(35)) == 35
        assert r.runner.stats().stored == 35
