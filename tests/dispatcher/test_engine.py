"""The shard's own task: timers, clocks, and callers that call back."""

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.core.effects import Append, Done, Run, Settle, SettleTicket
from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_dispatcher.shard.stop import Stop
from pushlane_storage.interface import Backend, StoreUnknown
from tests.dispatcher.rig import (
    START,
    TENANT,
    Consumer,
    blocked,
    memory_store,
    message,
    rig,
)
from tests.running import runners_of


async def test_nothing_is_delivered_inside_a_callers_call() -> None:
    async with rig() as r:
        await r.publish(b"1")
        consumer = r.consumer()
        assert consumer.runs == []
        await consumer.got(1)


async def test_a_sink_may_call_the_shard() -> None:
    async with rig() as r:
        consumer = r.consumer(1, acking=True)
        for number in range(20):
            r.runner.publish_soon([message(b"%d" % number)])
        assert await consumer.got(20) == [b"%d" % number for number in range(20)]


async def test_an_answer_may_publish() -> None:
    async with rig() as r:
        done = trio.Event()
        left = 10

        def answered(*_: object) -> None:
            nonlocal left
            left -= 1
            if left:
                r.runner.publish_soon([message()], answered)
            else:
                done.set()

        r.runner.publish_soon([message()], answered)
        await done.wait()
        assert r.runner.stats().stored == 10


async def test_a_sink_that_raises_is_our_bug() -> None:
    class Broken(Consumer):
        def deliver(self, runs: list[Run], again: bool, held: int, waiting: int) -> None:
            raise ZeroDivisionError

    with pytest.RaisesGroup(pytest.RaisesExc(ZeroDivisionError), flatten_subgroups=True):
        async with rig() as r:
            Broken(r.runner)
            await r.publish(b"1")
            await trio.sleep_forever()


class Steps:
    """A dispatcher on a system whose clock is set, and one consumer."""

    def __init__(self) -> None:
        self.skew = 0.0

    def system(self) -> float:
        return START / 1000 + trio.current_time() + self.skew

    @asynccontextmanager
    async def serve(
        self, store: Backend | None = None, settings: Settings | None = None
    ) -> AsyncIterator[tuple[Dispatcher, ShardRunner]]:
        store, clock = store or memory_store(), Clock(self.system)
        async with open_dispatcher(store, clock=clock, settings=settings) as dispatcher:
            queue = await dispatcher.open(TENANT, "q", create=True)
            yield dispatcher, runners_of(queue)[0]


@pytest.mark.parametrize("step", [-3_600, 7_200, 50, -50])
async def test_delays_and_ttls_take_their_time_whatever_is_done_to_the_clock(step: float) -> None:
    world = Steps()
    async with world.serve() as (dispatcher, runner):
        wall = dispatcher.clock.wall()
        await runner.publish([message(not_before=wall + 30_000)])
        await runner.publish([message(not_before=wall + 20_000, expires_at=wall + 40_000)])
        await trio.sleep(5)
        world.skew = step
        await trio.sleep(14.8)
        assert runner.stats().delayed == 2
        await trio.sleep(0.5)
        assert runner.stats().delayed == 1
        await trio.sleep(19.3)
        assert (runner.stats().ready, runner.stats().expired) == (2, 0)
        await trio.sleep(2)
        assert (runner.stats().ready, runner.stats().leaving) == (1, 0)


@pytest.mark.parametrize("step", [-3_600, 7_200])
@pytest.mark.parametrize("when", ["long before", "before", "after"])
async def test_a_nack_s_delay_takes_its_time_whatever_is_done_to_the_clock(
    step: float, when: str
) -> None:
    world = Steps()
    async with world.serve(settings=Settings(clock_ms=100)) as (_, runner):
        consumer = Consumer(runner)
        await runner.publish([message()])
        await consumer.got(1)
        if when != "after":
            world.skew = step
        if when == "long before":
            await trio.sleep(1)  # meanwhile everybody looks at the clock
        since = trio.current_time()
        await consumer.nack(delay_ms=1_000)
        world.skew = step
        with trio.fail_after(60):
            await consumer.got(2)
        assert trio.current_time() - since == pytest.approx(1, abs=0.02)


async def test_a_clock_that_was_set_is_told_and_pauses_what_only_it_can_judge() -> None:
    world = Steps()
    store = memory_store()
    async with world.serve(store) as (dispatcher, runner):
        wall = dispatcher.clock.wall()
        await runner.publish([message(expires_at=wall + 60_000)])
    async with world.serve(store) as (dispatcher, runner):
        await trio.sleep(30)
        assert dispatcher.clock_numbers() == {
            "doubted": 0, "store_ahead_ms": 0, "suspect_shards": 0, "system_ahead_ms": 0,
        }  # fmt: skip
        world.skew = 7_200
        await trio.sleep(120)
        assert dispatcher.clock_numbers() == {
            "doubted": 1, "store_ahead_ms": 0, "suspect_shards": 1, "system_ahead_ms": 7_200_000,
        }  # fmt: skip
        assert runner.stats().ready == 1
        world.skew = 0
        await trio.sleep(21)
        assert dispatcher.clock_numbers()["suspect_shards"] == 0
        assert runner.stats().ready == 0


async def test_an_alarm_that_stays_due_does_not_spin() -> None:
    async with rig() as r:
        ticks = 0
        shard = r.runner._shard
        real = shard.tick

        def tick(now: int, offset: int, doubted: bool = False) -> None:
            nonlocal ticks
            ticks += 1
            real(now, offset, doubted)

        shard.tick = tick  # type: ignore[method-assign]
        shard.wake_at = lambda: 0  # type: ignore[method-assign]
        await r.publish(b"1")
        await trio.sleep(1)
        assert 100 <= ticks <= 201


async def test_a_purge_and_a_settle_need_nobody_who_waits() -> None:
    async with rig() as r:
        await r.publish(b"1")
        assert isinstance(r.runner.purge(), SettleTicket)
        await blocked()
        assert r.runner.stats().stored == 0


async def test_a_runner_that_was_stopped_before_it_ran() -> None:
    async with rig() as r:
        old, send = r.runner, r.runner._engine._send
        flush = old._orders._flush
        runner = type(old)(old._shard, old._context, send, old.counters, flush)
        runner._engine.stop(Stop.CLOSED)
        assert await runner.run() is Stop.CLOSED


async def test_a_shard_that_has_stopped_does_nothing_more() -> None:
    async with rig() as r:
        await r.publish(b"1")
        consumer = r.consumer()
        r.runner._engine.stop(Stop.FENCED)
        r.runner._engine.pump()
        assert consumer.runs == []


async def test_what_the_store_answers_after_a_cancellation_begins_nothing() -> None:
    async with rig() as r:
        engine, read, begun = r.runner._engine, trio.Event(), []

        async def finish_a_read() -> None:
            with trio.CancelScope(shield=True):
                await read.wait()

        async def again(*_: object) -> None:
            begun.append("again")

        engine._nursery.start_soon(finish_a_read)
        answers = [
            engine._outcome(lambda: begun.append("stored"), again, Done(SettleTicket()))
            for _ in range(2)
        ]
        engine._scope.cancel()
        await blocked()
        answers[0](StoreUnknown())
        answers[1](None)
        await blocked()
        read.set()
        await engine.stopped.wait()
        assert (begun, engine.stopped_by) == ([], Stop.CANCELLED)


async def test_a_stopped_runner_is_not_configured() -> None:
    async with rig() as r:
        await r.runner.close()
        before = r.runner._shard.config
        r.runner.configure(r.queue.row.config, None)
        assert r.runner._shard.config is before


def writes() -> int:
    """In memory, garbage included."""
    return sum(isinstance(each, Append | Settle) for each in gc.get_objects())


async def test_what_was_written_is_free_at_once() -> None:
    async with rig() as r:
        consumer = r.consumer()
        gc.collect()
        gc.disable()
        try:
            before = writes()
            for _ in range(5):
                await r.publish(b"1")
                await consumer.got(1)
                assert not (await consumer.ack()).lost
            await blocked()
            assert writes() == before
        finally:
            gc.enable()
