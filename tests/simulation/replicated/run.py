"""One run of a replicated world: chaos until enough has happened, then calm, until all is drained.

At the end the owner dies, and whoever comes after it must find the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from typing import Any
from unittest.mock import patch

import trio
from trio._core import _run as scheduler

from pushlane_dispatcher.core.effects import Deliver, Lost, Remember
from pushlane_dispatcher.courier import Courier
from pushlane_storage.history import event as history
from pushlane_storage.history.rule import Report
from tests.simulation.cluster import QUEUES
from tests.simulation.replicated.cache import SimulatedLeases
from tests.simulation.replicated.cluster import ReplicatedCluster
from tests.simulation.replicated.tenure import Tenure
from tests.simulation.replicated.world import TrioWorld, make_clock

CHAOS_MS = 240_000
DRAIN_MS = 300_000
TICK_MS = 10


def run(world: TrioWorld, events: int) -> Report:
    """Play it, in a trio that does the same for the same seed."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", True))
        stack.enter_context(patch.object(scheduler, "_r", Random(world.seed)))
        try:
            return trio.run(_run, world, events, clock=make_clock(world))
        except BaseExceptionGroup as group:
            raise _first(group) from None


def _first(error: BaseException) -> BaseException:
    """What went wrong first, without the groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _run(world: TrioWorld, events: int) -> Report:
    async with trio.open_nursery() as nursery:
        cluster = ReplicatedCluster(world, nursery)
        with patch.object(Courier, "add", _observed(cluster)):
            await _play(world, cluster, events)
            nursery.cancel_scope.cancel()
    return world.checker.finish()


def _observed(cluster: ReplicatedCluster) -> Any:
    """A delivery is written down when it is decided, before the lease cache is told.

    A process may be killed by its own request: the rest of that turn runs on, as it does for no
    process that is dead.
    """
    add = Courier.add

    def observed(self: Courier, effect: Deliver | Lost | Remember) -> None:
        cache = self._guard._cache
        assert isinstance(cache, SimulatedLeases)
        if cache.process.dead:
            return
        cluster.observe(self._shard, effect)
        add(self, effect)

    return observed


async def _play(world: TrioWorld, cluster: ReplicatedCluster, events: int) -> None:
    await cluster.start()
    _every(world, TICK_MS, lambda: _act(cluster))
    await world.until(lambda: world.events >= events or world.now >= CHAOS_MS)
    _calm(cluster)
    deadline = world.now + DRAIN_MS
    world.record(history.Quiesce(world.now, list(QUEUES), deadline))
    await world.until(lambda: world.now >= deadline or cluster.drained())
    newest = cluster.newest
    if newest is not None and not world.checker.violated:
        cluster.sample()
        left = sum(len(cluster.left(served)) for served in newest.runners.values())
        world.record(history.Drained(world.now, left))
        if not world.checker.violated:
            newest = await _succeed(world, cluster, newest)
        for queue, served in newest.runners.items():
            left_over = cluster.left(served)
            world.record(
                history.Stored(world.now, queue, list(left_over), list(left_over.values()))
            )


async def _succeed(world: TrioWorld, cluster: ReplicatedCluster, owner: Tenure) -> Tenure:
    """The owner dies once more."""
    owner.process.kill()
    deadline = world.now + DRAIN_MS
    await world.until(lambda: world.now >= deadline or cluster.newest is not None)
    assert cluster.newest is not None, "nobody can take over"
    return cluster.newest


def _every(world: TrioWorld, interval: int, action: Callable[[], None]) -> None:
    def again() -> None:
        action()
        world.after(10 * interval if world.calm else interval, again)

    world.after(interval, again)


def _act(cluster: ReplicatedCluster) -> None:
    """Everybody does something now and then."""
    world, rng = cluster.world, cluster.world.rng
    for consumer in cluster.consumers:
        if rng.random() < 0.1:
            consumer.act()
    if rng.random() < 0.05:
        cluster.sample()
    if world.calm:
        cluster.gather()
        return
    for producer in cluster.producers:
        if rng.random() < 0.12:
            producer.act()
    cluster.strike()
    draw = rng.random()
    if draw < 0.0005:
        cluster.purge()
    elif draw < 0.002:
        cluster.redrive()
    elif draw < 0.003:
        cluster.set_paused(True)
        world.after(rng.randrange(50, 500), cluster.set_paused, False)


def _calm(cluster: ReplicatedCluster) -> None:
    cluster.world.calm = True
    cluster.calm()
    cluster.set_paused(False)
    for client in cluster.clients:
        client.connect()
