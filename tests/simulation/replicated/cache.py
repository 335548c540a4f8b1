"""The lease cache of one process: the product's own, over a pipe to the model of Redis.

The pipe carries commands in their order, as one connection does. A call may fail, take too long, or
be done though nobody heard of it; one whose connection was given up may be done much later, behind
those that came after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import trio

from pushlane_leases.interface import LeaseCacheError
from pushlane_leases.redis.cache import RedisLeases
from pushlane_leases.redis.calls import Command
from pushlane_leases.redis.entry import CLAIM
from pushlane_leases.redis.url import RedisLimits
from tests.simulation.replicated.model_redis import ModelRedis
from tests.simulation.replicated.ring import Reply
from tests.simulation.replicated.world import TrioWorld
from tests.simulation.world import EPOCH_MS

if TYPE_CHECKING:
    from tests.simulation.replicated.process import Process

LIMITS = RedisLimits(chunk=3, shard_runs=60)
"""Small, so that claims take several pages, and runs are pushed out."""
LATE_MS = 4_000
SNAPSHOTS = 8
"""Kept at a time; one is taken several times a second."""


class Redis:
    """The one server, and what befalls it."""

    def __init__(self, world: TrioWorld) -> None:
        self.world = world
        self.model = ModelRedis(lambda: EPOCH_MS + world.now, world.rng)
        self.gone = False
        self._snapshots = [self.model.snapshot()]
        self._saved = 0

    def save(self) -> None:
        """A snapshot, as its disk or its replica would have one; none of a time without calls."""
        if self.model.calls == self._saved:
            return
        self._saved = self.model.calls
        self._snapshots.append(self.model.snapshot())
        if len(self._snapshots) > SNAPSHOTS:
            del self._snapshots[self.world.rng.randrange(SNAPSHOTS)]

    def trouble(self) -> None:
        """A new owner comes, and the cache that it asks has not come through whole."""
        if self.world.happens(self.world.ring_chances.cache_trouble):
            ways = (self._flush, self._evict, self._go_back, self._go_back, self._run_ahead)
            self.world.rng.choice(ways)()

    def _flush(self) -> None:
        self.world.fault("cache.flushed")
        self.model.flush()

    def _evict(self) -> None:
        self.world.fault("cache.evicted")
        keys, rng = self.model.keys(), self.world.rng
        for key in rng.sample(keys, rng.randrange(len(keys) + 1)):
            self.model.drop(key)

    def _go_back(self) -> None:
        self.world.fault("cache.stale")
        self.model.restore(self.world.rng.choice(self._snapshots))

    def _run_ahead(self) -> None:
        """It is another's that was ahead: its epochs are greater than those of the store."""
        self.world.fault("cache.ahead")
        for key, value in self.model.values.items():
            if key.endswith(b":epoch"):
                self.model.values[key] = b"%d" % (
                    int(value) + self.world.rng.choice((1, 2, 1 << 30))
                )

    def befall(self) -> None:
        """Now and then."""
        world, rng, chances = self.world, self.world.rng, self.world.ring_chances
        if world.happens(chances.cache_flush):
            self._flush()
        if world.happens(chances.cache_evict):
            self._evict()
        if world.happens(chances.cache_stale):
            rng.choice((self._go_back, self._go_back, self._run_ahead))()
        if not self.gone and world.happens(chances.cache_outage):
            world.fault("cache.outage")
            self.gone = True
            world.after(rng.randrange(100, 3_000), self._return)

    def calm(self) -> None:
        """It is back for good; what is wrong in it stays wrong."""
        self.gone = False
        if self.world.rng.random() < 0.3:
            self._run_ahead()

    def _return(self) -> None:
        self.gone = False


class SimulatedPipe:
    """In the place of `Pipe`: the same two calls."""

    def __init__(self, process: Process, redis: Redis) -> None:
        self._process = process
        self._redis = redis
        self._world = redis.world
        self._next = 0

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        if not commands:
            await trio.lowlevel.checkpoint()
            return []
        reply = Reply()
        self._process.send_now(self._arrange, commands, reply)
        self._process.maybe_fail("cache")
        replies: list[Any] = await reply.wait()
        return replies

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()

    def _arrange(self, commands: Sequence[Command], reply: Reply) -> None:
        world, chances = self._world, self._world.ring_chances
        delay = world.latency()
        if world.happens(chances.cache_late):
            world.fault("cache.late")
            world.after(world.rng.randrange(1, LATE_MS), self._late, commands)
            self._process.receive(reply, None, LeaseCacheError("connection lost"))
            return
        if world.happens(chances.cache_slow):
            world.fault("cache.slow")
            delay += world.rng.randrange(50, 600)
        self._next = max(self._next, world.now + delay)
        world.after(self._next - world.now, self._arrive, commands, reply)

    def _arrive(self, commands: Sequence[Command], reply: Reply) -> None:
        world, chances = self._world, self._world.ring_chances
        if commands[0][:2] == ("EVALSHA", CLAIM.sha):
            self._redis.trouble()
        if self._redis.gone:
            self._process.receive(reply, None, LeaseCacheError("connection refused"))
        elif world.happens(chances.cache_error):
            world.fault("cache.error")
            if world.rng.random() < 0.5:
                self._perform(commands)
            self._process.receive(reply, None, LeaseCacheError("no answer"))
        else:
            self._process.receive(reply, self._perform(commands))

    def _late(self, commands: Sequence[Command]) -> None:
        if not self._redis.gone:
            self._perform(commands)

    def _perform(self, commands: Sequence[Command]) -> list[Any]:
        return [self._redis.model.execute(command) for command in commands]


class SimulatedLeases(RedisLeases):
    """`RedisLeases` with another pipe: it has no thread and no connection."""

    def __init__(self, process: Process, redis: Redis) -> None:
        self.process = process
        self.limits = LIMITS
        self._wall = lambda: process.wall() / 1000
        self._seen = {}
        self._pipe = SimulatedPipe(process, redis)  # type: ignore[assignment]
