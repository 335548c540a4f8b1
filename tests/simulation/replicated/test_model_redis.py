"""The model of Redis gives the answers of a real one to the same commands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
import trio

from pushlane_leases.interface import LeaseRun, StaleEpoch
from pushlane_leases.redis.cache import RedisLeases
from pushlane_leases.redis.calls import Command
from pushlane_leases.redis.pipe import Pipe
from pushlane_leases.redis.url import RedisLimits
from tests.simulation.replicated.model_redis import ModelRedis
from tools.services.shared import Service

LIMITS = RedisLimits(chunk=4, shard_runs=1_000)
STEPS = 120
FAR = 10_000_000
"""Milliseconds: what a grant removes at random is never over by then."""


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Both:
    """A pipe that asks both, and compares."""

    def __init__(self, pipe: Pipe, model: ModelRedis) -> None:
        self._pipe = pipe
        self._model = model
        self.compared = 0

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        answers = await self._pipe.ask(commands)
        modelled = [self._model.execute(command) for command in commands]
        assert modelled == answers, f"{commands} is answered otherwise"
        self.compared += len(commands)
        return answers

    async def close(self) -> None:
        await self._pipe.close()


class ComparedLeases(RedisLeases):
    def __init__(self, url: str, rng: Random) -> None:
        super().__init__(url, LIMITS)
        self.both = Both(self._pipe, ModelRedis(wall_ms, rng))
        self._pipe = self.both  # type: ignore[assignment]


def draw_run(rng: Random, owner: int, now: int) -> LeaseRun:
    return LeaseRun(
        rng.choice(("a", "b:1", "é b")), rng.randrange(40), rng.randrange(1, 12), 4,
        rng.randrange(1 << 50), 9, "s", 0, 1, rng.random() < 0.5, 1_000,
        now + FAR + rng.randrange(1_000), owner,
    )  # fmt: skip


async def step(leases: ComparedLeases, rng: Random, shard: str, epoch: int) -> None:
    now = wall_ms()
    draw = rng.random()
    if draw < 0.35:
        runs = [draw_run(rng, epoch, now) for _ in range(rng.randrange(6))]
        await leases.grant(shard, epoch, runs)
    elif draw < 0.6:
        low = rng.randrange(40)
        cut = (rng.choice(("a", "b:1", "nobody")), low, low + rng.randrange(10))
        await leases.release(shard, epoch, [cut] * rng.randrange(3))
    elif draw < 0.75:
        await leases.claim(shard, epoch, now + rng.choice((0, FAR + 500)))
    elif draw < 0.78:
        await leases.overwrite(shard, epoch, epoch + rng.choice((0, 1)))
    elif draw < 0.85:
        marks = [(f"d{rng.randrange(5)}", rng.randbytes(9)) for _ in range(rng.randrange(6))]
        await leases.remember(shard, epoch, marks, 60_000, now)
    elif draw < 0.9:
        await leases.recall(shard, [f"d{n}" for n in range(5)], now)
    else:
        await step_session(leases, rng, shard, now)


async def step_session(leases: ComparedLeases, rng: Random, id: str, now: int) -> None:
    term, now = rng.randrange(1, 5), now + rng.choice((0, 0, 0, 70_000))
    match rng.randrange(5):
        case 0 | 1:
            await leases.put_session(id, term, rng.randbytes(9), 60_000, now)
        case 2:
            await leases.get_session(id, now)
        case 3:
            await leases.take_session(id, term, now)
        case _:
            await leases.drop_session(id, term)


@pytest.mark.parametrize("seed", range(6))
async def test_the_same_commands_have_the_same_answers(redis_service: Service, seed: int) -> None:
    rng = Random(seed)
    leases = ComparedLeases(redis_service.redis_url, rng)
    shard, epoch, stale = f"compared {seed} {rng.randbytes(8).hex()}", 3, 0
    for _ in range(STEPS):
        epoch += rng.random() < 0.05
        try:
            await step(leases, rng, shard, epoch - (rng.random() < 0.1))
        except StaleEpoch:
            stale += 1
    assert leases.both.compared > STEPS
    assert stale > 0
    await leases.close()


def test_what_is_kept_for_a_while_goes() -> None:
    now = [1_000]
    model = ModelRedis(lambda: now[0], Random(1))
    model.execute(("SET", "k", b"v", "PX", 50))
    assert model.execute(("GET", "k")) == b"v"
    now[0] += 50
    assert model.execute(("GET", "k")) is None
    assert model.execute(("DEL", "k")) == 0


async def test_it_comes_back_as_it_was() -> None:
    model = ModelRedis(lambda: 0, Random(1))
    model.execute(("SET", "k", b"old", "PX", 50))
    saved = model.snapshot()
    model.execute(("SET", "k", b"new", "PX", 50))
    model.restore(saved)
    assert model.execute(("MGET", "k", "other")) == [b"old", None]
    model.flush()
    assert model.keys() == []
    await trio.lowlevel.checkpoint()
