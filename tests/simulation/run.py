"""One simulated run: chaos until enough has happened, then calm, until all is drained."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import msgspec

from pushlane_storage.history import event as history
from pushlane_storage.history.rule import Report
from tests.simulation.cluster import QUEUES, Cluster
from tests.simulation.replicated import run as replicated
from tests.simulation.replicated.world import TrioWorld
from tests.simulation.tables import StoreKind
from tests.simulation.world import World

EVENTS: dict[StoreKind, int] = {"memory": 2_000, "sqlite": 2_000, "cassandra": 1_200}
"""History events before the calm. On Cassandra shorter runs, and more of them, show more changes of
owners in the same time."""
CHAOS_MS = 600_000
DRAIN_MS = 300_000
TICK_MS = 10


class Outcome(msgspec.Struct):
    seed: int
    events: int
    broken: dict[str, int]
    faults: dict[str, int]
    digest: int
    """A checksum over the history."""
    text: str = ""


def simulate(
    seed: int, events: int | None = None, keep: bool = False, store: StoreKind = "memory"
) -> tuple[Outcome, World]:
    """Run one seed. Broken rules, failed audits and exceptions all end up in the outcome."""
    world = TrioWorld(seed, keep) if store == "cassandra" else World(seed, keep, store)
    try:
        report = _run(world, EVENTS[store] if events is None else events)
    except Exception as error:  # whatever the code under test raised is a finding
        world.checker.finish()
        report = Report()
        name = "audit" if isinstance(error, AssertionError) else "exception"
        report.broken[name] = 1
        text = traceback.format_exc()
        return Outcome(seed, world.events, report.broken, {}, world.digest, text), world
    text = "" if report.ok else str(report)
    return Outcome(seed, world.events, report.broken, report.faults, world.digest, text), world


def _run(world: World, events: int) -> Report:
    if isinstance(world, TrioWorld):
        return replicated.run(world, events)
    cluster = Cluster(world)
    try:
        return _play(world, cluster, events)
    finally:
        cluster.close()


def _play(world: World, cluster: Cluster, events: int) -> Report:
    cluster.start()
    _every(world, TICK_MS, lambda: _act(cluster))
    while world.events < events and world.now < CHAOS_MS and not world.checker.violated:
        world.step()
    _calm(cluster)
    deadline = world.now + DRAIN_MS
    world.record(history.Quiesce(world.now, list(QUEUES), deadline))
    while world.now < deadline and not world.checker.violated and not _drained(cluster):
        world.step()
    if cluster.node is not None:
        cluster.sample()
        world.record(history.Drained(world.now, sum(len(cluster.left(q)) for q in QUEUES)))
        for queue in QUEUES:
            left = cluster.left(queue)
            world.record(history.Stored(world.now, queue, list(left), list(left.values())))
    cluster.tables.audit()
    return world.checker.finish()


def _every(world: World, interval: int, action: Callable[[], None]) -> None:
    def again() -> None:
        action()
        world.after(10 * interval if world.calm else interval, again)

    world.after(interval, again)


def _act(cluster: Cluster) -> None:
    """Everybody does something now and then."""
    world, rng = cluster.world, cluster.world.rng
    for consumer in cluster.consumers:
        if rng.random() < 0.1:
            consumer.act()
    if rng.random() < 0.05:
        cluster.sample()
    if world.calm:
        return
    for producer in cluster.producers:
        if rng.random() < 0.12:
            producer.act()
    if world.happens(world.chances.pause):
        cluster.pause()
    if world.happens(world.chances.clock_jump):
        jump = rng.choice((-90_000, -5_000, -400, 400, 5_000, 90_000))
        world.fault("clock.forward" if jump > 0 else "clock.back")
        world.skew = jump
    draw = rng.random()
    if draw < 0.0005:
        cluster.purge()
    elif draw < 0.002:
        cluster.redrive()
    elif draw < 0.003:
        cluster.set_paused(True)
        world.after(rng.randrange(50, 500), cluster.set_paused, False)


def _calm(cluster: Cluster) -> None:
    cluster.world.calm = True
    cluster.world.skew = 0
    cluster.set_paused(False)
    for client in cluster.clients:
        client.connect()


def _drained(cluster: Cluster) -> bool:
    if cluster.node is None or any(p.unanswered or p.repeat for p in cluster.producers):
        return False
    shards = [runner.shard for runner in cluster.node.runners.values()]
    return all(
        not shard.overflow.messages and not shard.journal.pending_messages for shard in shards
    )
