"""A dispatcher on a real Redis that is killed, flushed and started again under it.

These run on the real clock: Redis has no other.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
import trio

from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.lease_guard import cache_name
from pushlane_leases.redis.cache import RedisLeases
from pushlane_leases.redis.entry import epoch_key
from pushlane_leases.redis.url import RedisLimits
from pushlane_storage.memory import MemoryStore
from pushlane_storage.message import Message
from tests.dispatcher.rig import TENANT, Rig, memory_store, settle_as_anybody
from tools.services.redis import Redis, running_redis

QUICK = Settings(cache_rest_ms=200)
PATIENT = Settings(cache_claim_ms=30_000)
HOUR_MS = 3_600_000
PATIENCE_SECONDS = 60


@pytest.fixture
def server() -> Iterator[Redis]:
    with running_redis() as server:
        yield server


@asynccontextmanager
async def node(store: MemoryStore, server: Redis, settings: Settings = QUICK) -> AsyncIterator[Rig]:
    """`PATIENT` waits for Redis to say what is out, however busy the machine is."""
    wait_ms = 500 if settings is QUICK else settings.cache_claim_ms
    leases = RedisLeases(server.url, RedisLimits(connect_ms=wait_ms, answer_ms=wait_ms))
    try:
        async with open_dispatcher(store, leases, settings=settings) as dispatcher:
            queue = await dispatcher.open(TENANT, "q", create=True)
            yield Rig(dispatcher, queue)
    finally:
        await leases.close()


def real_time(test: Callable[[Redis], Awaitable[None]]) -> Callable[[Redis], None]:
    def run(server: Redis) -> None:
        async def main() -> None:
            with trio.fail_after(PATIENCE_SECONDS):
                await test(server)

        trio.run(main)

    run.__name__ = test.__name__
    return run


async def publish(r: Rig, first: int, count: int = 1) -> None:
    now = r.dispatcher.clock.wall()
    await r.runner.publish([Message(b"%d" % n, now) for n in range(first, first + count)])


async def until(done: Callable[[], bool]) -> None:
    while not done():  # noqa: ASYNC110 - what changes is in another process
        await trio.sleep(0.02)


async def known(r: Rig, server: Redis) -> int:
    """How many leases of the queue Redis knows, asked as another client of the same owner."""
    leases = RedisLeases(server.url)
    try:
        name = cache_name(r.runner.key)
        runs = await leases.claim(name, r.runner.epoch, r.dispatcher.clock.wall())
    finally:
        await leases.close()
    return sum(run.count for run in runs)


async def knows(r: Rig, server: Redis, count: int) -> None:
    """Wait until Redis knows so many."""
    while await known(r, server) != count:  # noqa: ASYNC110 - as above
        await trio.sleep(0.02)


def numbers(dispatcher: Dispatcher) -> dict[str, int]:
    found = dispatcher.lease_numbers()
    assert set(found) == {"broken", "failures", "forgotten", "overruled", "skipped", "trips"}
    return found


@real_time
async def test_redis_is_killed_under_load_and_comes_back_empty(server: Redis) -> None:
    store = memory_store()
    with trio.CancelScope() as power:
        async with node(store, server) as r:
            consumer = r.consumer(1_000, lease_ms=HOUR_MS)
            await publish(r, 0, 100)
            await consumer.got(100)
            assert await known(r, server) == 100
            server.kill()
            for number in range(100, 200):
                await publish(r, number)
            await consumer.got(200)
            await until(lambda: bool(numbers(r.dispatcher)["broken"]))
            found = numbers(r.dispatcher)
            assert found["trips"] >= 1
            assert found["failures"] >= 3
            await consumer.ack(consumer.runs[0])
            settled = len(consumer.runs[0].messages)
            server.start()
            await until(lambda: not numbers(r.dispatcher)["broken"])
            await knows(r, server, 200 - settled)  # without a further delivery
            prefix, last = consumer.sub.prefix, consumer.runs[-1].n
            power.cancel()  # nothing is closed in good order
            await trio.sleep_forever()
    async with node(MemoryStore(store.tables), server, PATIENT) as r:
        second = r.consumer(1_000)
        assert r.runner.stats().leased == 200 - settled
        assert (await settle_as_anybody(r, prefix, last)).lost == []
        await trio.sleep(0.3)
        assert second.runs == [], "nothing comes again early"


@real_time
async def test_redis_is_flushed_between_two_deliveries(server: Redis) -> None:
    async with node(memory_store(), server) as r:
        consumer = r.consumer(100, lease_ms=HOUR_MS)
        await publish(r, 0, 10)
        await consumer.got(10)
        with server.client() as client:
            client.flushall()
        await publish(r, 10)
        await consumer.got(11)
        await knows(r, server, 11)
        found = numbers(r.dispatcher)
        assert (found["forgotten"], found["broken"], found["failures"]) == (1, 0, 0)


@real_time
async def test_redis_hangs_and_deliveries_go_on(server: Redis) -> None:
    async with node(memory_store(), server) as r:
        consumer = r.consumer(1_000, acking=True)
        await publish(r, 0)
        await consumer.got(1)
        server.pause()
        try:
            for number in range(1, 50):
                await publish(r, number)
            await consumer.got(50)
            await until(lambda: bool(numbers(r.dispatcher)["broken"]))
        finally:
            server.resume()
        await until(lambda: not numbers(r.dispatcher)["broken"])
        await publish(r, 50)
        await consumer.got(51)


@real_time
async def test_without_redis_from_the_start(server: Redis) -> None:
    server.kill()
    async with node(memory_store(), server) as r:
        consumer = r.consumer(10, lease_ms=HOUR_MS)
        await publish(r, 0, 5)
        await consumer.got(5)
        server.start()
        await knows(r, server, 5)
        assert not numbers(r.dispatcher)["broken"]


@real_time
async def test_a_redis_that_is_ahead_of_the_store_is_overwritten(server: Redis) -> None:
    """It was restored, or is another one than before."""
    store = memory_store()
    async with node(store, server) as r:
        await publish(r, 0, 5)
        with server.client() as client:
            client.set(epoch_key(cache_name(r.runner.key)), 1_000_000)
    async with node(MemoryStore(store.tables), server, PATIENT) as r:
        consumer = r.consumer(10, lease_ms=HOUR_MS)
        await consumer.got(5)
        await knows(r, server, 5)
        assert numbers(r.dispatcher)["overruled"] == 1
        with server.client() as client:  # and while it serves
            client.set(epoch_key(cache_name(r.runner.key)), 1_000_000)
        await publish(r, 5)
        await consumer.got(6)
        await until(lambda: numbers(r.dispatcher)["overruled"] == 2)
        await knows(r, server, 6)


@real_time
async def test_a_second_owner_ends_the_first(server: Redis) -> None:
    store = memory_store()
    async with node(store, server) as old, node(MemoryStore(store.tables), server) as new:
        consumer = old.consumer(10)
        assert new.runner.epoch > old.runner.epoch
        old.runner.publish_soon([Message(b"1", old.dispatcher.clock.wall())])
        await consumer.until(lambda: consumer.end is not None)
        assert consumer.runs == []


def test_it_is_told_in_the_log(server: Redis, caplog: pytest.LogCaptureFixture) -> None:
    @real_time
    async def go(server: Redis) -> None:
        async with node(memory_store(), server) as r:
            consumer = r.consumer(100)
            server.kill()
            for number in range(5):
                await publish(r, number)
            await consumer.got(5)
            await until(lambda: bool(numbers(r.dispatcher)["broken"]))
            server.start()
            await until(lambda: not numbers(r.dispatcher)["broken"])

    with caplog.at_level(logging.WARNING):
        go(server)
    assert "the lease cache failed too often: continuing without it" in caplog.messages
    assert "the lease cache is back" in caplog.messages
