"""One run of a replicated world: chaos until enough has happened, then calm, until all is drained.

At the end the owner dies, and whoever comes after it must find the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

import trio
from trio._core import _run as scheduler

from pushlane_dispatcher.core.effects import Deliver, Lost, Remember, Transfer
from pushlane_dispatcher.queues.transfers import Errors
from pushlane_dispatcher.shard.engine import Engine
from pushlane_dispatcher.shard.sender import Sender
from pushlane_history import event as history
from pushlane_history.rule import Report
from pushlane_storage import slot
from tests.simulation.replicated.cache import SimulatedLeases
from tests.simulation.replicated.cluster import ReplicatedCluster
from tests.simulation.replicated.world import TrioWorld, make_clock

CHAOS_MS = 240_000
RECOVERY_MS = 15_000
"""How long after the last fault everything must be well: leases have run out, idle slots are given
back, and one process has all queues."""
TRAFFIC_MS = 4_000
"""How long producers go on after that: nobody may stand still now."""
DRAIN_MS = 120_000
SUCCESSION_MS = 15_000
SLOTS = 8
TICK_MS = 10


def run(world: TrioWorld, events: int) -> Report:
    return play(world, lambda: _run(world, events))


def play(world: TrioWorld, run: Callable[[], Awaitable[Report]]) -> Report:
    """Play it, in a trio that does the same for the same seed."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", True))
        stack.enter_context(patch.object(slot, "SLOTS", SLOTS))
        stack.enter_context(patch.object(scheduler, "_r", Random(world.seed)))
        try:
            return trio.run(run, clock=make_clock(world))
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
        with (
            patch.object(Sender, "add", observed(cluster)),
            patch.object(Engine, "_transferred", answered(cluster)),
        ):
            await _play(world, cluster, events)
            nursery.cancel_scope.cancel()
    return world.checker.finish()


def observed(cluster: ReplicatedCluster) -> Any:
    """A delivery is written down when it is decided, before the lease cache is told.

    A process may be killed by its own request: the rest of that turn runs on, as it does for no
    process that is dead.
    """
    add = Sender.add

    def add_observed(self: Sender, effect: Deliver | Lost | Remember) -> None:
        cache = self._guard._cache
        assert isinstance(cache, SimulatedLeases)
        if cache.process.dead:
            return
        cluster.observe(self._shard, effect)
        add(self, effect)

    return add_observed


def answered(cluster: ReplicatedCluster) -> Any:
    transferred = Engine._transferred

    def note_answers(self: Engine, transfer: Transfer, errors: Errors) -> None:
        cluster.refused(transfer, errors)
        transferred(self, transfer, errors)

    return note_answers


async def _play(world: TrioWorld, cluster: ReplicatedCluster, events: int) -> None:
    await cluster.start()
    every(world, TICK_MS, lambda: _act(cluster))
    await world.until(lambda: world.events >= events or world.now >= CHAOS_MS)
    _calm(cluster)
    await wait_for(world, RECOVERY_MS)
    world.traffic = True
    await wait_for(world, TRAFFIC_MS)
    world.traffic = False
    deadline = world.now + DRAIN_MS + world.farthest
    there = [cluster.labels[name] for name in cluster.there]
    world.record(history.Quiesce(world.now, there, deadline))
    await world.until(lambda: world.now >= deadline or cluster.drained())
    if world.checker.violated:
        return
    cluster.sample()
    world.record(history.Drained(world.now, sum(map(len, _left(cluster).values()))))
    if not world.checker.violated:
        await _succeed(world, cluster)
        for label, left in _left(cluster).items():
            world.record(history.Stored(world.now, label, list(left), list(left.values())))


async def wait_for(world: TrioWorld, ms: int) -> None:
    deadline = world.now + ms
    await world.until(lambda: world.now >= deadline)


def _left(cluster: ReplicatedCluster) -> dict[str, dict[str, str]]:
    """By queue: what it still has."""
    assert cluster.complete, "a queue that nobody serves"
    return {
        tenure.label: {
            id: body for served in tenure.every for id, body in cluster.left(served).items()
        }
        for tenure in cluster.serving
    }


async def _succeed(world: TrioWorld, cluster: ReplicatedCluster) -> None:
    """The owner dies once more."""
    for process in {tenure.process: None for tenure in cluster.serving}:
        process.kill()
    deadline = world.now + SUCCESSION_MS
    world.serene_since = None
    await world.until(lambda: world.now >= deadline or cluster.complete)
    assert cluster.complete, "nobody can take over"


def every(world: TrioWorld, interval: int, action: Callable[[], None]) -> None:
    def again() -> None:
        action()
        world.after(10 * interval if world.calm else interval, again)

    world.after(interval, again)


def _act(cluster: ReplicatedCluster) -> None:
    """Everybody does something now and then."""
    world, rng = cluster.world, cluster.world.rng
    for consumer in cluster.consumers:
        if rng.random() < (0.5 if world.calm else 0.1):
            consumer.act()
    if rng.random() < 0.05:
        cluster.sample()
    for producer in cluster.producers if world.traffic else ():
        if rng.random() < 0.12:
            producer.act()
    if world.calm:
        cluster.gather()
        if world.serene_since is not None and world.now >= world.serene_since:
            assert cluster.complete, f"only {cluster.serving} of {cluster.there} are served"
    else:
        cluster.strike()
        manage(cluster)


def manage(cluster: ReplicatedCluster) -> None:
    """What operators do."""
    world, rng = cluster.world, cluster.world.rng
    draw = rng.random()
    if draw < 0.0005:
        cluster.purge()
    elif draw < 0.003:
        cluster.redrive()
    elif draw < 0.004:
        cluster.configure("q", paused=True)
        world.after(rng.randrange(50, 500), partial(cluster.configure, "q", paused=False))
    elif draw < 0.009 and world.profile.annex:
        cluster.vanish()
    if world.profile.changing_limits and rng.random() < 0.01:
        cluster.change_limits()


def _calm(cluster: ReplicatedCluster) -> None:
    world = cluster.world
    world.calm, world.traffic = True, False
    world.serene_since = world.now + RECOVERY_MS
    cluster.calm()
    for client in cluster.clients:
        client.connect()
    for consumer in cluster.consumers:
        consumer.wake()
