"""Redis goes, comes back, forgets, hangs: errors meanwhile, and no harm afterwards."""

from __future__ import annotations

import time

import pytest
import redis
import trio

from pushlane_leases.interface import Forgotten, LeaseCacheError, StaleEpoch
from pushlane_leases.redis.cache import RedisLeases
from pushlane_leases.redis.url import RedisLimits
from tests.leases.samples import LEASE_MS, NOW, by_receipt, run
from tools.services.ports import free_port
from tools.services.redis import Redis


async def out(leases: RedisLeases, epoch: int = 1) -> list[int]:
    return sorted(n for _, n in by_receipt(await leases.claim("s", epoch, NOW)))


async def test_a_kill_and_a_restart(leases: RedisLeases, server: Redis) -> None:
    await leases.grant("s", 1, [run(1, 3)])
    server.kill()
    for _ in range(3):
        with pytest.raises(LeaseCacheError, match="ConnectionError"):
            await leases.grant("s", 1, [run(4)])
    with pytest.raises(LeaseCacheError):
        await leases.recall("s", ["a"], NOW)
    server.start()
    with pytest.raises(Forgotten, match="s: Redis was restarted or flushed"):
        await leases.grant("s", 1, [run(5)])
    assert await out(leases) == [5], "what the call was about is done"
    await leases.grant("s", 1, [run(1, 3)])
    assert await out(leases) == [1, 2, 3, 5]


@pytest.mark.parametrize("call", ["grant", "release", "remember"])
async def test_a_flush_in_the_middle_is_noticed_once(
    leases: RedisLeases, server: Redis, call: str
) -> None:
    async def once() -> None:
        if call == "grant":
            await leases.grant("s", 1, [run(1)])
        elif call == "release":
            await leases.release("s", 1, [("p", 9, 9)])
        else:
            await leases.remember("s", 1, [("a", b"b")], 1_000, NOW)

    await leases.claim("s", 1, NOW)
    await once()
    with server.client() as client:
        client.flushall()
        client.script_flush()
    with pytest.raises(Forgotten):
        await once()
    await once()


async def test_a_claim_after_a_flush_finds_nothing_and_is_no_error(
    leases: RedisLeases, server: Redis
) -> None:
    await leases.grant("s", 1, [run(1)])
    with server.client() as client:
        client.flushall()
    assert await out(leases, epoch=2) == []
    with pytest.raises(StaleEpoch):
        await leases.grant("s", 1, [run(1)])


async def test_a_redis_that_hangs_is_an_error_in_time_and_then_forgiven(
    leases: RedisLeases, server: Redis
) -> None:
    await leases.grant("s", 1, [run(1)])
    server.pause()
    started = time.monotonic()
    for _ in range(2):
        with pytest.raises(LeaseCacheError, match="TimeoutError"):
            await leases.grant("s", 1, [run(2)])
    assert time.monotonic() - started < 30
    with trio.move_on_after(0.05) as scope:
        await leases.release("s", 1, [("p", 9, 9)])
    assert scope.cancelled_caught, "whoever waits may leave earlier"
    server.resume()
    await leases.grant("s", 1, [run(3)])
    assert {1, 3} <= set(await out(leases))


async def test_a_read_only_and_a_full_redis(leases: RedisLeases, server: Redis) -> None:
    with server.client() as client:
        await leases.grant("s", 1, [run(1)])
        await leases.grant("s", 1, [run(3)])
        client.config_set("maxmemory", 1)
        # Also where it has to be kept for longer than what is there.
        for later in (0, 60_000):
            with pytest.raises(LeaseCacheError, match=r"OOM|OutOfMemory"):
                await leases.grant("s", 1, [run(2, deadline=NOW + LEASE_MS + later)])
            with pytest.raises(LeaseCacheError, match=r"OOM|OutOfMemory"):
                await leases.remember("s", 1, [("a", b"b")], NOW + later, NOW)
        await leases.release("s", 1, [("p", 3, 3)])  # which makes room
        client.config_set("maxmemory", 0)
        client.replicaof("127.0.0.1", free_port())
        with pytest.raises(LeaseCacheError, match=r"(?i)read.?only"):
            await leases.grant("s", 1, [run(2)])
        client.replicaof("NO", "ONE")
    await leases.grant("s", 1, [run(2)])
    assert await out(leases) == [1, 2]


async def test_a_redis_that_is_busy_with_another_script(leases: RedisLeases, server: Redis) -> None:
    await leases.grant("s", 1, [run(1)])
    with server.client() as other, server.client() as client:
        client.config_set("busy-reply-threshold", 50)

        def hog() -> None:
            with pytest.raises(redis.ResponseError, match="killed"):
                other.eval("while true do end", 0)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, hog)
            await trio.sleep(0.2)
            with pytest.raises(LeaseCacheError, match=r"BUSY|busy|Timeout"):
                await leases.grant("s", 1, [run(2)])
            client.script_kill()
    await leases.grant("s", 1, [run(3)])


async def test_nobody_there_from_the_start() -> None:
    leases = RedisLeases(f"redis://127.0.0.1:{free_port()}", RedisLimits(connect_ms=300))
    with pytest.raises(LeaseCacheError, match="refused"):
        await leases.claim("s", 1, NOW)
    await leases.close()


async def test_a_close_while_redis_hangs_comes_to_an_end(server: Redis) -> None:
    leases = RedisLeases(server.url, RedisLimits(answer_ms=500))
    await leases.claim("s", 1, NOW)
    server.pause()

    async def refused() -> None:
        with pytest.raises(LeaseCacheError):
            await leases.grant("s", 1, [run(1)])

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(refused)
            await trio.sleep(0.1)
            await leases.close()
