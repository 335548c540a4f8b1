"""One run of a world of nodes: chaos until enough has happened, then calm, until all is drained.

Then every queue is asked for through every node, and at the end the owners die once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import trio

from pushlane.wire.errors import PushlaneError
from pushlane_dispatcher.cluster.remote.shard import Sent
from pushlane_dispatcher.cluster.repeats import Repeats
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.subscription import ANYBODY, Subscription
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_dispatcher.shard.engine import Engine
from pushlane_dispatcher.shard.port import ShardPort
from pushlane_dispatcher.shard.sender import Sender
from pushlane_history import event as history
from pushlane_history.rule import Report
from pushlane_storage.message import Message
from tests.simulation.cluster_world.clients import Batch
from tests.simulation.cluster_world.cluster import ClusterOfNodes
from tests.simulation.cluster_world.node import ClusterNode
from tests.simulation.cluster_world.world import ClusterWorld
from tests.simulation.population import TENANT
from tests.simulation.replicated.run import answered, every, manage, observed, play, wait_for

CHAOS_MS = 120_000
RECOVERY_MS = 10_000
"""How long after the last fault everything must be well, and every slot is where it belongs."""
TRAFFIC_MS = 3_000
DRAIN_MS = 120_000
SUCCESSION_MS = 15_000
ASLEEP_MS = 500
"""How long consumers take up nothing before a node drains: so that much is out."""
SETTLED_MS = 2_500
"""Who has not moved a slot for so long won't."""
MOVE_MS = 15_000
THROUGH_MS = 5_000
"""How long it may take to open a queue through any node."""
TICK_MS = 10


def run(world: ClusterWorld, events: int) -> Report:
    return play(world, lambda: _run(world, events))


async def _run(world: ClusterWorld, events: int) -> Report:
    async with trio.open_nursery() as nursery:
        cluster = ClusterOfNodes(world, nursery)
        with (
            patch.object(Sender, "add", observed(cluster)),
            patch.object(Engine, "_transferred", answered(cluster)),
            patch.object(Shard, "settle", _started(cluster)),
            patch.object(Shard, "adopt", _recalled(cluster)),
            patch.object(Shard, "attach", _attached(cluster)),
            patch.object(Shard, "resume", _resumed(cluster)),
            patch.object(OpenQueue, "publish_soon", _reached(cluster)),
            patch.object(Repeats, "_publish", _repeated(cluster)),
            patch("secrets.token_urlsafe", lambda n: world.rng.randbytes(n).hex()),
        ):
            try:
                await _play(world, cluster, events)
            finally:  # whoever closed in good order might wait for answers that nobody plans
                for node in list(cluster.processes):
                    node.kill()
                nursery.cancel_scope.cancel()
    return world.checker.finish()


def _started(cluster: ClusterOfNodes) -> Any:
    """The start of a reserved message is written down when its shard takes it."""
    settle = Shard.settle

    def started(
        self: Shard, sub: Any, generation: int, act: Any, receipts: Any, ticket: Any, now: int
    ) -> None:
        receipts = list(receipts)
        reserved = [
            n
            for _, low, high in (receipts if act.verb == "start" else ())
            for n in range(low, high + 1)
            if (entry := sub.held.get(n)) is not None and entry.state is State.RESERVED
        ]
        settle(self, sub, generation, act, receipts, ticket, now)
        lost = {n for _, low, high in ticket.lost for n in range(low, high + 1)}
        for n in reserved:
            if n not in lost:
                cluster.started(self, f"{sub.prefix}.{n}")

    return started


def _recalled(cluster: ClusterOfNodes) -> Any:
    """What goes back because it did not get to its client's gateway."""
    adopt = Shard.adopt

    def recalled(self: Shard, sub: Any, held: Any, now: int) -> Any:
        before = list(sub.held)
        resumed = adopt(self, sub, held, now)
        cluster.came_back(self, sub)
        for n in before:
            if n not in sub.held:
                cluster.recalled(self, f"{sub.prefix}.{n}")
        return resumed

    return recalled


def _attached(cluster: ClusterOfNodes) -> Any:
    attach = Shard.attach

    def attached(self: Shard, sub: Subscription) -> None:
        attach(self, sub)
        if sub.generation != ANYBODY:  # else it is one that outlived its owner
            cluster.came_back(self, sub)

    return attached


def _resumed(cluster: ClusterOfNodes) -> Any:
    resume = Shard.resume

    def resumed(self: Shard, sub: Subscription, held: Any) -> Any:
        found = resume(self, sub, held)
        cluster.came_back(self, sub)
        return found

    return resumed


def _reached(cluster: ClusterOfNodes) -> Any:
    """A request is written down when it reaches the shards of its queue."""
    publish_soon = OpenQueue.publish_soon

    def reached(
        self: OpenQueue, messages: list[Message], answer: Any, lanes: Sequence[int] | None = None
    ) -> None:
        error = None
        if isinstance(messages, Batch):
            error = messages.reached(cluster.names[self.row.id])
        if error is None:
            publish_soon(self, messages, answer, lanes)
        else:
            answer(None, error)

    return reached


def _repeated(cluster: ClusterOfNodes) -> Any:
    """What a node publishes again on its own account is another request, of the same message. It
    may only do that with what can be told from a first one."""
    publish = Repeats._publish

    def repeated(self: Repeats, shard: ShardPort, sent: Sent) -> None:
        if not sent.unsent:
            for message in sent.messages:
                cluster.repeated(shard.key, message)
        publish(self, shard, sent)

    return repeated


async def _play(world: ClusterWorld, cluster: ClusterOfNodes, events: int) -> None:
    await cluster.start()
    every(world, TICK_MS, lambda: _act(cluster))
    await world.until(lambda: world.events >= events or world.now >= CHAOS_MS)
    _calm(cluster)
    await wait_for(world, RECOVERY_MS)
    if _is_broken(world):
        return
    await _ask_all(cluster)
    world.traffic = True
    if world.drains:
        await _drain_one(world, cluster)
    moves: int = cluster.moves
    await wait_for(world, TRAFFIC_MS)
    world.traffic = False
    deadline = world.now + DRAIN_MS + world.farthest
    there = [cluster.labels[name] for name in cluster.there]
    world.record(history.Quiesce(world.now, there, deadline))
    await world.until(lambda: world.now >= deadline or cluster.drained())
    if _is_broken(world):
        return
    assert cluster.moves == moves, "slots move though nobody came or went"
    cluster.sample()
    left = {queue: cluster.left_in(queue) for queue in cluster.there}
    world.record(history.Drained(world.now, sum(map(len, left.values()))))
    if not _is_broken(world):
        await _succeed(world, cluster)
        for queue in cluster.there:
            stored = cluster.left_in(queue)
            label = cluster.labels[queue]
            world.record(history.Stored(world.now, label, list(stored), list(stored.values())))


def _is_broken(world: ClusterWorld) -> bool:
    return bool(world.checker.violated)


async def _ask_all(cluster: ClusterOfNodes) -> None:
    """Every queue is served through every node."""
    late: list[str] = []

    async def ask(node: ClusterNode, queue: str) -> None:
        assert node.dispatcher is not None, f"{node.name} does not serve"
        try:
            with trio.fail_after(THROUGH_MS / 1000):
                await node.dispatcher.open(TENANT, queue)
        except (trio.TooSlowError, PushlaneError) as error:
            late.append(f"{queue} through {node.name}: {error!r}")

    async with trio.open_nursery() as nursery:
        for node in cluster.processes:
            for queue in cluster.there:
                nursery.start_soon(ask, node, queue)
    assert not late, f"not served: {late}"


async def _drain_one(world: ClusterWorld, cluster: ClusterOfNodes) -> None:
    """An owner gives all that it has to others, and gets it back: nobody loses what is out."""
    world.asleep, world.serene_since = True, None
    await wait_for(world, ASLEEP_MS)
    owner = world.rng.choice(list({owned.node: None for owned in cluster.every()}))
    lost = _taken_over(world)
    await _set_draining(world, cluster, owner, draining=True)
    world.asleep = False
    for consumer in cluster.consumers:
        consumer.wake()
    await _set_draining(world, cluster, owner, draining=False)
    assert _taken_over(world) == lost, "a hand-over forgot what was out"
    world.serene_since = world.now


async def _set_draining(
    world: ClusterWorld, cluster: ClusterOfNodes, owner: ClusterNode, *, draining: bool
) -> None:
    """Come back when all has moved that is to move."""
    assert owner.dispatcher is not None
    world.fault("node.drained" if draining else "node.takes_slots_again")
    await owner.dispatcher.set_draining(owner.member, draining)
    deadline = world.now + MOVE_MS
    await wait_for(world, SETTLED_MS)
    while world.now < deadline:
        moves = cluster.moves
        await wait_for(world, SETTLED_MS)
        if moves == cluster.moves and cluster.complete:
            break
    assert cluster.complete, f"nobody serves {cluster.unserved}"
    has = any(owned.node is owner for owned in cluster.every())
    assert not (draining and has), f"{owner.name} drains, and has slots"


def _taken_over(world: ClusterWorld) -> int:
    """Messages that were granted again though their last grant was not over."""
    return world.checker._ledger.report.notes.get("takeover", 0)


async def _succeed(world: ClusterWorld, cluster: ClusterOfNodes) -> None:
    """The owners die once more, all at once."""
    for node in {owned.node: None for owned in cluster.every()}:
        node.kill()
    deadline = world.now + SUCCESSION_MS
    world.serene_since = None
    await world.until(lambda: world.now >= deadline or cluster.complete)
    assert cluster.complete, "nobody can take over"


def _act(cluster: ClusterOfNodes) -> None:
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
            assert cluster.complete, f"nobody serves {cluster.unserved}"
    else:
        cluster.strike()
        manage(cluster)


def _calm(cluster: ClusterOfNodes) -> None:
    world = cluster.world
    world.calm, world.traffic = True, False
    world.serene_since = world.now + RECOVERY_MS
    cluster.calm()
    for client in cluster.clients:
        client.connect()
    for consumer in cluster.consumers:
        consumer.wake()
