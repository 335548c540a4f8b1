"""Back-pressure: publishers wait while the store is slow, in order, not too many, not for ever."""

from functools import partial

import pytest
import trio

from pushlane.wire.errors import Throttled, Unavailable
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.places import Claim, Claims
from pushlane_dispatcher.settings import Settings
from tests.dispatcher.rig import Gate, ScriptedStore, blocked, hang, message, numbered, rig

BOUNDS = Bounds(pending_messages=20, flushes=1)
"""Congested from ten pending messages on."""


async def test_publishers_wait_while_it_is_congested(nursery: trio.Nursery) -> None:
    store = ScriptedStore()
    async with rig(store, bounds=BOUNDS) as r:
        gate = Gate()
        store.script.add("append", gate)
        done = []

        async def publish(first: int) -> None:
            await r.runner.publish(numbered(5, first))
            done.append(first)

        async with trio.open_nursery() as publishers:
            for first in range(0, 50, 5):
                publishers.start_soon(publish, first)
                await blocked()
            assert [r.runner.congested, r.queue.congested] == [True, True]
            assert r.runner.stats().pending == 10
            gate.released.set()
        assert len(done) == 10
        assert [r.runner.congested, r.queue.congested] == [False, False]
        consumer = r.consumer(acking=True)
        assert await consumer.got(50) == [b"%d" % number for number in range(50)]


async def test_room_is_there_at_once_when_it_is_not_congested() -> None:
    async with rig() as r:
        await r.runner.room()
        await r.queue.room()
        assert trio.current_time() == 0


async def test_who_waits_too_long_is_throttled() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=BOUNDS, settings=Settings(room_ms=3_000)) as r:
        store.script.add("append", hang)
        r.runner.publish_soon(numbered(10))
        await blocked()
        with pytest.raises(Throttled, match="slower than this queue's publishers") as throttled:
            await r.runner.publish(numbered(1))
        assert throttled.value.retry_ms
        assert trio.current_time() == pytest.approx(3)


async def test_too_many_may_not_wait() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=BOUNDS, settings=Settings(waiting_publishers=2)) as r:
        gate = Gate()
        store.script.add("append", gate)
        r.runner.publish_soon(numbered(10))
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(r.runner.publish, numbered(1))
            await blocked()
            with pytest.raises(Throttled, match="too many publishers"):
                await r.runner.publish(numbered(1))
            gate.released.set()


async def test_of_those_who_wait_one_caller_may_be_a_share_only() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=BOUNDS, settings=Settings(waiting_publishers=4)) as r:
        gate = Gate()
        store.script.add("append", gate)
        r.runner.publish_soon(numbered(10))
        mine: Claims = (Claim("key:mine", 50),)
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(partial(r.queue.publish, numbered(1), claims=mine))
            await blocked()
            with pytest.raises(Throttled) as refused:
                await r.queue.publish(numbered(1), claims=mine)
            assert refused.value.limit == "waiting_publishers_share"
            nursery.start_soon(partial(r.queue.publish, numbered(1), claims=()))
            await blocked()
            gate.released.set()
        await r.queue.publish(numbered(1), claims=mine)


async def test_who_does_not_wait_is_throttled_by_the_core() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=BOUNDS) as r:
        store.script.add("append", hang)
        r.runner.publish_soon(numbered(20))
        ticket = r.runner.publish_soon(numbered(1))
        assert [error.code for error in ticket.failed.values()] == ["throttled"]


async def test_who_waits_for_room_is_told_when_the_shard_stops() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=BOUNDS, settings=Settings(decide_ms=1_000)) as r:
        store.script.always["append"] = hang
        r.runner.publish_soon(numbered(10))
        with pytest.raises(Unavailable):
            await r.runner.publish(numbered(1))
        assert trio.current_time() == pytest.approx(1)


async def test_a_cancelled_publisher_harms_nobody() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=BOUNDS) as r:
        gate = Gate()
        store.script.add("append", gate)
        done = []

        async def publish(body: bytes, scope: trio.CancelScope) -> None:
            with scope:
                await r.runner.publish([message(body)] * 5)
                done.append(body)

        scopes = [trio.CancelScope() for _ in range(6)]
        async with trio.open_nursery() as nursery:
            for number, scope in enumerate(scopes):
                nursery.start_soon(publish, b"%d" % number, scope)
                await blocked()
            scopes[0].cancel()  # waits for its flush
            scopes[3].cancel()  # waits for room
            await blocked()
            gate.released.set()
        assert done == [b"1", b"2", b"4", b"5"]
        consumer = r.consumer(acking=True)
        bodies = await consumer.got(25)
        assert bodies[::5] == [b"0", b"1", b"2", b"4", b"5"]


async def test_who_gives_up_as_its_turn_comes_passes_the_turn_on() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=BOUNDS) as r:
        gate = Gate()
        store.script.add("append", gate)
        r.runner.publish_soon(numbered(10))
        turns = []

        async def take(name: str) -> None:
            await r.runner.room()
            turns.append(name)  # and never publishes

        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(take, name)
                await blocked()
            gate.released.set()
        assert turns == ["a", "b", "c"]
        assert trio.current_time() < 1
