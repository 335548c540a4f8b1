"""Several nodes on one Cassandra and one Redis, links between them, and clients of them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import trio

from pushlane_dispatcher.core.ident import make_id
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_history import event as history
from pushlane_storage.bucket import ShardKey
from pushlane_storage.message import Message, is_transfer
from tests.simulation.cluster_world.clients import NodeProducer
from tests.simulation.cluster_world.consumers import NodeConsumer, Stream
from tests.simulation.cluster_world.links import Air
from tests.simulation.cluster_world.node import ClusterNode
from tests.simulation.cluster_world.world import ClusterWorld
from tests.simulation.population import ANNEX, Population, draw_annex
from tests.simulation.replicated.cluster import UPDATE_MS, ReplicatedCluster
from tests.simulation.replicated.process import Process


class Owned:
    """A shard at the node that has it."""

    def __init__(self, node: ClusterNode, runner: ShardRunner, label: str) -> None:
        self.node = node
        self.runner = runner
        self.label = label

    @property
    def shard(self) -> Shard:
        return self.runner._shard

    def id(self, lane: int, seq: int) -> str:
        return make_id(*self.runner.key, lane, seq)


class ClusterOfNodes(ReplicatedCluster):
    world: ClusterWorld
    processes: list[ClusterNode]  # type: ignore[assignment]

    def __init__(self, world: ClusterWorld, nursery: trio.Nursery) -> None:
        self.air = Air(world)
        self.streams: dict[str, Stream] = {}
        """By session: its subscription."""
        self.members = [f"n{number + 1}" for number in range(world.rng.choice((3, 3, 4, 5)))]
        self._lives = {member: count(1) for member in self.members}
        self._ports = dict.fromkeys(self.members, 1)
        super().__init__(world, nursery)

    def settle_in(self, home: Any) -> None:
        rng, profile = self.world.rng, self.world.profile
        self.producers += [NodeProducer(home, f"p{i}") for i in range(rng.choice((1, 2, 3)))]
        manners = (*profile.manners, "crowd")
        self.consumers += [NodeConsumer(home, f"c{i}", "q", m) for i, m in enumerate(manners)]
        self.consumers.append(NodeConsumer(home, "d0", "q.dead"))
        if profile.annex:
            self.configs[ANNEX] = draw_annex(rng, self.configs["q"])
            self.producers.append(NodeProducer(home, "pr", ANNEX))
            self.consumers.append(NodeConsumer(home, "r0", ANNEX))

    # Nodes

    def begin_all(self) -> None:
        for member in self.members:
            self.start_node(member)

    def start_node(self, member: str) -> None:
        """It starts, or starts again: perhaps at another address."""
        if self.world.rng.random() < 0.5:
            self._ports[member] += 1
        node = ClusterNode(self, member, next(self._lives[member]), self._ports[member])
        self.processes.append(node)
        self._compare_clocks()
        self._nursery.start_soon(node.run)

    def over(self, process: Process) -> None:
        assert isinstance(process, ClusterNode)
        self.processes.remove(process)
        self.world.after(self.world.rng.randrange(1, 900), self.start_node, process.member)

    def leave(self, node: ClusterNode) -> None:
        """Its clients are on their own."""
        for client in self.clients:
            there: object = None if client.conn is None else client.conn.node
            if there is node:
                client.lose_connection(broken=False)

    def any_node(self) -> ClusterNode | None:
        at_work = [node for node in self.processes if node.at_work]
        return self.world.rng.choice(at_work) if at_work else None

    @property
    def moves(self) -> int:
        """How many slots were given up because they belong elsewhere."""
        found = [node.dispatcher for node in self.processes]
        return sum(each.cluster.moves for each in found if each is not None and each.cluster)

    # Shards

    def owned(self, queue: str) -> list[Owned]:
        """The shards of a queue, at their newest owners, as far as there are any."""
        return list(self._owned(queue))

    def _owned(self, queue: str) -> Iterator[Owned]:
        label = self.labels[queue]
        for key in self.shards_of(label):
            for node in self.processes:
                runner = node.runner(key)
                if runner is not None and self.epochs.is_newest(key, runner.epoch):
                    yield Owned(node, runner, label)
                    break

    def shards_of(self, label: str) -> list[ShardKey]:
        return [key for key in self.shards if self.names[key.queue_id] == label]

    def every(self) -> list[Owned]:
        return [owned for queue in self.there for owned in self._owned(queue)]

    @property
    def complete(self) -> bool:
        """Every shard of every queue has an owner."""
        return not self.unserved

    @property
    def unserved(self) -> list[ShardKey]:
        served = {owned.runner.key for owned in self.every()}
        keys = (key for queue in self.there for key in self.shards_of(self.labels[queue]))
        return [key for key in keys if key not in served]

    def sample(self) -> None:
        for owned in self.every():
            self.look_at(owned)  # type: ignore[arg-type]

    def left_in(self, queue: str) -> dict[str, str]:
        """What is still stored: message id → body."""
        return {
            id: body
            for owned in self._owned(queue)
            for id, body in self.left(owned).items()  # type: ignore[arg-type]
        }

    def drained(self) -> bool:
        there = self.there
        waiting = (p for p in self.producers if p.queue in there and (p.unanswered or p.repeat))
        if not self.complete or any(waiting):
            return False
        shards = [owned.shard for owned in self.every()]
        return all(
            not shard.overflow.messages and not shard.journal.pending_messages for shard in shards
        )

    # What befalls them

    def strike(self) -> None:
        super().strike()
        world, chances = self.world, self.world.link_chances
        if world.happens(chances.cut):
            self._cut()
        if world.happens(chances.break_link):
            self.air.break_one()

    def _cut(self) -> None:
        """Between two nodes, one way or both; or one node from all others."""
        rng = self.world.rng
        one, other = rng.sample(self.members, 2)
        ms = rng.choice((50, 300, 700, 2_000, 6_000))
        draw = rng.random()
        if draw < 0.4:
            self.world.fault("cut.one_way")
            self.air.cut(one, other, ms)
        elif draw < 0.8:
            self.world.fault("cut.both_ways")
            self.air.cut(one, other, ms)
            self.air.cut(other, one, ms)
        else:
            self.world.fault("cut.from_all")
            for far in self.members:
                if far != one:
                    self.air.cut(one, far, ms)
                    self.air.cut(far, one, ms)

    def _victim(self) -> Process:
        """Mostly an owner."""
        owners = [owned.node for owned in self.every()]
        if owners and self.world.rng.random() < 0.5:
            return self.world.rng.choice(owners)
        return self.world.rng.choice(self.processes)

    def pause(self, process: Process) -> None:
        process.pause(self.world.rng.choice((100, 700, 1_500, 2_500, 5_000)))
        for client in self.clients:
            there: object = None if client.conn is None else client.conn.node
            if there is process and self.world.rng.random() < 0.5:
                client.lose_connection()

    def calm(self) -> None:
        self.air.heal()
        super().calm()

    def gather(self) -> None:
        """In calm times what operators want is done."""
        for queue in sorted(self._changed):
            if not self._updating and self.world.now >= self._update_at:
                self._update_at = self.world.now + UPDATE_MS
                self._update(queue)

    # Managing

    def newest(self, queue: str) -> None:
        """No node has a queue alone."""

    def manage(self, queue: str, action: Callable[[Shard, int], object]) -> None:
        for owned in self.owned(queue):
            if not owned.node.paused:
                action(owned.shard, self.world.now)
                owned.runner._engine.wake()

    def vanish(self) -> None:
        if ANNEX not in self.there:
            self.make_again(ANNEX)
        else:
            Population.vanish(self)

    # History

    def label_of(self, sub: Subscription) -> str:
        stream = self.streams.get(sub.session)
        return sub.session if stream is None else stream.label

    def came_back(self, shard: Shard, sub: Subscription) -> None:
        """A shard knows that a client is there."""
        stream = self.streams.get(sub.session)
        if stream is None or stream.away or not self.is_newest(shard):
            return
        if stream.label in self.world.checker._ledger.away:
            self.world.record(history.Resume(self.world.now, stream.label, sub.prefix))

    def repeated(self, key: ShardKey, message: Message) -> None:
        """A node publishes it again."""
        if is_transfer(message):
            return
        self.world.fault("publish.repeated")
        by_number = message.producer is not None
        age = self.world.time - message.published_at
        if by_number or (message.dedup and age <= self.configs["q"].dedup_window_ms):
            self.world.record(
                history.Publish(
                    self.world.now, self.world.op(), self.names[key.queue_id],
                    message.body.decode(), message.key, message.dedup, message.producer,
                    message.producer_seq or None,
                    0, bool(message.expires_at),
                    max(0, message.expires_at - message.published_at),
                    max(0, message.not_before - message.published_at),
                )
            )  # fmt: skip

    def started(self, shard: Shard, receipt: str) -> None:
        """What a zombie takes for started is its own affair, once the receipt is void."""
        if self.is_newest(shard) or self.world.is_valid(receipt):
            self.world.record(history.Start(self.world.now, receipt))

    def recalled(self, shard: Shard, receipt: str) -> None:
        if self.is_newest(shard):
            self.world.record(history.LeaseLost(self.world.now, receipt, unseen=True))
