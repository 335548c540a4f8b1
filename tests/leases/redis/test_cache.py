"""What the conformance suite doesn't ask of every back end: keys, times to live, bounds."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import redis

from pushlane_leases.interface import Forgotten, LeaseCache, LeaseRun, StaleEpoch
from pushlane_leases.redis.cache import RedisLeases
from pushlane_leases.redis.entry import epoch_key, runs_key
from pushlane_leases.redis.url import RedisLimits
from tests.leases.samples import NOW, by_receipt, run
from tools.services.redis import Redis, running_redis_cluster

HOUR_MS = 3_600_000


@asynccontextmanager
async def opened(server: Redis, limits: RedisLimits | None = None) -> AsyncIterator[RedisLeases]:
    leases = RedisLeases(server.url, limits)
    try:
        yield leases
    finally:
        await leases.close()


async def fill(leases: LeaseCache, shard: str = "queue/0") -> None:
    """Something of every kind, with deadlines from now on."""
    deadline = int(time.time() * 1000) + HOUR_MS
    await leases.claim(shard, 1, NOW)
    await leases.grant(shard, 1, [run(1, 10, deadline=deadline), run(1, prefix="q")])
    await leases.release(shard, 1, [("p", 5, 5), ("q", 1, 1)])
    await leases.remember(shard, 1, [("a", b"id-1"), ("b {x}", b"id-2")], HOUR_MS, NOW)


def ttls(client: redis.Redis) -> dict[str, int]:
    return {key.decode(): client.pttl(key) for key in client.scan_iter()}


async def test_every_key_has_a_time_to_live(leases: RedisLeases, server: Redis) -> None:
    await fill(leases)
    with server.client() as client:
        found = ttls(client)
    assert len(found) == 4
    assert min(found.values()) > HOUR_MS / 2


async def test_a_set_that_is_emptied_and_filled_keeps_its_time(
    leases: RedisLeases, server: Redis
) -> None:
    """A release that leaves a part of the only run, and a grant over the only run."""
    await leases.grant("s", 1, [run(1, 10)])
    for _ in range(3):
        await leases.release("s", 1, [("p", 3, 5)])
        await leases.grant("s", 1, [run(1, 10, started=True)])
        with server.client() as client:
            assert min(ttls(client).values()) > 0


async def test_an_epoch_is_kept_for_longer_than_any_lease(
    leases: RedisLeases, server: Redis
) -> None:
    now = int(time.time() * 1000)
    limits = leases.limits
    with server.client() as client:
        for deadline in (now + 12 * HOUR_MS, now + 1_000, now + 100 * HOUR_MS, now + 1_000):
            await leases.grant("s", 1, [run(1, deadline=deadline)])
            epoch, runs = client.pttl(epoch_key("s")), client.pttl(runs_key("s"))
            assert epoch >= runs >= deadline - now
            assert epoch > limits.epoch_ms - 60_000
    assert limits.epoch_ms >= 2 * 12 * HOUR_MS


async def test_every_call_of_the_owner_keeps_its_epoch(leases: RedisLeases, server: Redis) -> None:
    await leases.claim("s", 7, NOW)
    with server.client() as client:
        for call in ("claim", "grant", "release", "remember"):
            client.pexpire(epoch_key("s"), 60_000)
            if call == "claim":
                await leases.claim("s", 7, NOW)
            elif call == "grant":
                await leases.grant("s", 7, [])
            elif call == "release":
                await leases.release("s", 7, [])
            else:
                await leases.remember("s", 7, [], 1, NOW)
            assert client.pttl(epoch_key("s")) > 23 * HOUR_MS


async def test_the_keys_of_a_shard_are_together_in_a_cluster_and_shards_apart() -> None:
    shards = ["0f3a/0", "0f3a/1", "a}b{c", "{}", ""]
    slots = {}
    with running_redis_cluster() as [server], server.client() as client:
        async with opened(server) as leases:
            for shard in shards:
                client.flushall()
                await fill(leases, shard)
                assert await leases.recall(shard, ["a", "b {x}"], NOW) != {}
                keys = [key for key in client.scan_iter() if b"queue" not in key]
                assert len(keys) == 4
                [slots[shard]] = {client.execute_command("CLUSTER KEYSLOT", key) for key in keys}
    assert len(set(slots.values())) > 1


async def test_a_run_is_one_entry_however_long(leases: RedisLeases, server: Redis) -> None:
    await leases.grant("s", 1, [run(1, 1_000)])
    with server.client() as client:
        assert client.zcard(runs_key("s")) == 1
        await leases.release("s", 1, [("p", 1, 100)])
        assert client.zcard(runs_key("s")) == 1
        await leases.release("s", 1, [("p", 500, 500)])
        assert client.zcard(runs_key("s")) == 2
        await leases.release("s", 1, [("p", 1, 1_000)])
        assert not client.exists(runs_key("s"))


async def test_two_owners(server: Redis) -> None:
    async with opened(server) as old, opened(server) as new:
        await old.claim("s", 4, NOW)
        await old.grant("s", 4, [run(1, 5, owner=4)])
        assert by_receipt(await new.claim("s", 5, NOW)) == by_receipt([run(1, 5, owner=4)])
        for call in (
            old.grant("s", 4, [run(6)]),
            old.release("s", 4, [("p", 1, 5)]),
            old.remember("s", 4, [("a", b"b")], 1_000, NOW),
            old.claim("s", 4, NOW),
        ):
            with pytest.raises(StaleEpoch, match="s: epoch 4, the owner's is 5"):
                await call
        assert sum(one.count for one in await new.claim("s", 5, NOW)) == 5


# Bounds


async def test_large_calls_are_cut_into_chunks(server: Redis) -> None:
    limits = RedisLimits(chunk=10, commands=3)
    async with opened(server, limits) as leases:
        runs = [run(n) for n in range(0, 200, 2)]
        await leases.grant("s", 1, runs)
        assert by_receipt(await leases.claim("s", 1, NOW)) == by_receipt(runs)
        await leases.release("s", 1, [("p", n, n) for n in range(0, 100, 2)])
        assert len(await leases.claim("s", 1, NOW)) == 50
        marks = [(f"a{n}", b"id-%d" % n) for n in range(35)]
        await leases.remember("s", 1, marks, 1_000, NOW)
        assert await leases.recall("s", [name for name, _ in marks], NOW) == dict(marks)


async def test_pages_of_expired_runs_do_not_end_a_claim(server: Redis) -> None:
    async with opened(server, RedisLimits(chunk=10)) as leases:
        old = [run(n, deadline=NOW) for n in range(0, 60, 2)]
        await leases.grant("s", 1, [*old, run(60), run(62)])
        assert sorted(one.n for one in await leases.claim("s", 1, NOW)) == [60, 62]
        with server.client() as client:
            assert client.zcard(runs_key("s")) == 2


async def test_what_nobody_released_goes_by_and_by(server: Redis) -> None:
    """After an outage Redis holds runs that ended meanwhile: grants find and drop them."""
    now = int(time.time() * 1000)
    async with opened(server, RedisLimits(grace_ms=0)) as leases:
        over = [run(n, deadline=now - 1_000) for n in range(0, 40, 2)]
        await leases.grant("s", 1, over)
        for _ in range(400):
            await leases.grant("s", 1, [run(1_000, deadline=now + HOUR_MS)])
        with server.client() as client:
            assert client.zcard(runs_key("s")) == 1


async def test_a_shard_has_a_limit_of_runs(server: Redis) -> None:
    async with opened(server, RedisLimits(shard_runs=20)) as leases:
        runs: list[LeaseRun] = [run(n) for n in range(0, 60, 2)]
        await leases.grant("s", 1, runs)
        left = by_receipt(await leases.claim("s", 1, NOW))
        assert len(left) == 20
        assert left.items() <= by_receipt(runs).items()


async def test_the_shard_seen_first_is_the_first_whose_loss_is_not_noticed(server: Redis) -> None:
    async with opened(server, RedisLimits(seen=2)) as leases:
        for shard in "abc":
            await leases.claim(shard, 1, NOW)
        with server.client() as client:
            client.flushall()
        for shard in "bc":
            with pytest.raises(Forgotten):
                await leases.grant(shard, 1, [run(1)])
        await leases.grant("a", 1, [run(1)])
