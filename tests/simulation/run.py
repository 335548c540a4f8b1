"""One simulated run: chaos until enough has happened, then calm, until all is drained."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import msgspec

from pushlane_history import event as history
from pushlane_history.rule import Report
from tests.simulation.cluster import Cluster
from tests.simulation.cluster_world import run as cluster_world
from tests.simulation.cluster_world.world import ClusterWorld
from tests.simulation.replicated import run as replicated
from tests.simulation.replicated.world import TrioWorld
from tests.simulation.tables import StoreKind
from tests.simulation.world import World

EVENTS: dict[StoreKind, int] = {"memory": 850, "sqlite": 850, "cassandra": 1_200, "cluster": 900}
"""History events before the calm. On Cassandra shorter runs, and more of them, show more changes of
owners in the same time."""
CHAOS_MS = 600_000
RECOVERY_MS = 8_000
"""How long after the last fault everything must be well: leases and waits have run out."""
TRAFFIC_MS = 4_000
"""How long producers go on after that: nobody may stand still now."""
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
    world = _make_world(seed, keep, store)
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


def _make_world(seed: int, keep: bool, store: StoreKind) -> World:
    if store == "cluster":
        return ClusterWorld(seed, keep)
    return TrioWorld(seed, keep) if store == "cassandra" else World(seed, keep, store)


def _run(world: World, events: int) -> Report:
    if isinstance(world, ClusterWorld):
        return cluster_world.run(world, events)
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
    _until(cluster, world.now + RECOVERY_MS, lambda: False)
    world.traffic = True
    _until(cluster, world.now + TRAFFIC_MS, lambda: False)
    world.traffic = False
    deadline = world.now + DRAIN_MS + world.farthest
    there = [cluster.labels[name] for name in cluster.rows]
    world.record(history.Quiesce(world.now, there, deadline))
    _until(cluster, deadline, lambda: _drained(cluster))
    if cluster.node is not None:
        cluster.sample()
        queues = list(cluster.node.runners)
        world.record(history.Drained(world.now, sum(len(cluster.left(q)) for q in queues)))
        for queue in queues:
            left = cluster.left(queue)
            label = cluster.labels[queue]
            world.record(history.Stored(world.now, label, list(left), list(left.values())))
    cluster.tables.audit()
    return world.checker.finish()


def _until(cluster: Cluster, deadline: int, done: Callable[[], bool]) -> None:
    world = cluster.world
    while world.now < deadline and not world.checker.violated and not done():
        world.step()


def _every(world: World, interval: int, action: Callable[[], None]) -> None:
    def again() -> None:
        action()
        world.after(10 * interval if world.calm else interval, again)

    world.after(interval, again)


def _act(cluster: Cluster) -> None:
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
    if not world.calm:
        _befall(cluster)


def _befall(cluster: Cluster) -> None:
    """What strikes, and what operators do."""
    world, rng = cluster.world, cluster.world.rng
    if world.happens(world.chances.pause):
        cluster.pause()
    if world.happens(world.chances.clock_jump):
        jump = rng.choice(cluster.steps)
        world.fault("clock.forward" if jump > 0 else "clock.back")
        world.step_clock(jump)
    if rng.random() < 0.002:
        cluster.redrive()
    if rng.random() < 0.001:
        cluster.squeeze()
    draw = rng.random()
    if draw < 0.0005:
        cluster.purge()
    elif draw < 0.002:
        cluster.redrive()
    elif draw < 0.003:
        cluster.set_paused(True)
        world.after(rng.randrange(50, 500), cluster.set_paused, False)
    elif draw < 0.008 and world.profile.annex:
        cluster.vanish()
    if world.profile.changing_limits and rng.random() < 0.01:
        cluster.change_limits()


def _calm(cluster: Cluster) -> None:
    world = cluster.world
    world.calm, world.traffic = True, False
    if world.serene_since is None:
        world.serene_since = world.now + RECOVERY_MS
    cluster.set_paused(False)
    cluster.relax()
    for client in cluster.clients:
        client.connect()
    for consumer in cluster.consumers:
        consumer.wake()


def _drained(cluster: Cluster) -> bool:
    if cluster.node is None or any(p.unanswered or p.repeat for p in cluster.producers):
        return False
    return all(
        not runner.shard.overflow.messages and not runner.shard.journal.pending_messages
        for runner in cluster.node.every
    )
