"""The shard's own task: timers, clocks, and callers that call back."""

import pytest
import trio

from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.core.effects import Run, SettleTicket
from pushlane_dispatcher.dispatcher import open_dispatcher
from pushlane_dispatcher.stop import Stop
from tests.dispatcher.rig import (
    START,
    TENANT,
    Consumer,
    blocked,
    memory_store,
    message,
    rig,
)


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
        def deliver(self, runs: list[Run], again: bool) -> None:
            raise ZeroDivisionError

    with pytest.RaisesGroup(pytest.RaisesExc(ZeroDivisionError), flatten_subgroups=True):
        async with rig() as r:
            Broken(r.runner)
            await r.publish(b"1")
            await trio.sleep_forever()


async def test_a_wall_clock_that_steps_is_noticed() -> None:
    """A delayed message keeps to the wall clock, also when that is set."""
    step = 0.0

    def wall() -> float:
        return START / 1000 + trio.current_time() + step

    async with open_dispatcher(memory_store(), clock=Clock(wall)) as dispatcher:
        queue = await dispatcher.open(TENANT, "q", create=True)
        consumer = Consumer(queue.runners[0])
        await queue.publish([message(not_before=START + 50_000)])
        await trio.sleep(5)
        step = 44.0
        await consumer.got(1)
        assert 6 <= trio.current_time() <= 16


async def test_a_clock_that_was_set_is_noticed_by_the_next_event() -> None:
    step = 0.0

    def wall() -> float:
        return START / 1000 + trio.current_time() + step

    async with open_dispatcher(memory_store(), clock=Clock(wall)) as dispatcher:
        queue = await dispatcher.open(TENANT, "q", create=True)
        await trio.sleep(60)
        step = 500.0
        await queue.publish([message()])
        assert queue.runners[0]._shard.offset == START + 500_000


async def test_an_alarm_that_stays_due_does_not_spin() -> None:
    async with rig() as r:
        ticks = 0
        shard = r.runner._shard
        real = shard.tick

        def tick(now: int, offset: int) -> None:
            nonlocal ticks
            ticks += 1
            real(now, offset)

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
        send = r.runner._engine._transfers._send
        runner = type(r.runner)(r.runner._shard, r.runner._tools, send, r.runner.ledger)
        runner._engine.stop(Stop.CLOSED)
        assert await runner.run() is Stop.CLOSED


async def test_a_shard_that_has_stopped_does_nothing_more() -> None:
    async with rig() as r:
        await r.publish(b"1")
        consumer = r.consumer()
        r.runner._engine.stop(Stop.FENCED)
        r.runner._engine.pump()
        assert consumer.runs == []


async def test_a_stopped_runner_is_not_configured() -> None:
    async with rig() as r:
        await r.runner.close()
        before = r.runner._shard.config
        r.runner.configure(r.queue.row.config, None)
        assert r.runner._shard.config is before
