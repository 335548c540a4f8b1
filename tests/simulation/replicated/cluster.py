"""Several processes that fight for one slot, what they share, their clients, and the history."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import trio

from pushlane_dispatcher.core.effects import Deliver, Effect, Lost, SettleTicket
from pushlane_dispatcher.core.ident import make_id
from pushlane_dispatcher.core.shard import Shard
from pushlane_storage.bucket import ShardKey
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.history import event as history
from pushlane_storage.slot import slot_of
from tests.redriving import redrive_first
from tests.simulation.audit import audit
from tests.simulation.clients import Client, Consumer, Producer
from tests.simulation.cluster import BOUNDS, QUEUES, bounds_of, draw_configs
from tests.simulation.replicated.cache import Redis
from tests.simulation.replicated.calm_ring import CalmRing
from tests.simulation.replicated.process import TENANT, Process
from tests.simulation.replicated.ring import Network
from tests.simulation.replicated.tenure import ServedShard, Tenure
from tests.simulation.replicated.witness import Bodies
from tests.simulation.replicated.world import TrioWorld

PROCESSES = 3


class ReplicatedCluster:
    def __init__(self, world: TrioWorld, nursery: trio.Nursery) -> None:
        self.world = world
        self.bounds = msgspec.structs.replace(BOUNDS, drained_buckets=2)
        self._nursery = nursery
        rng = world.rng
        self.network = Network(world)
        self.redis = Redis(world)
        self.known: set[object] = set()
        """What the history has of the store."""
        self.bodies: Bodies = {}
        self.names: dict[str, str] = {}
        """Queue ids to names."""
        self.short_window = rng.random() < 0.5
        if self.short_window:
            world.ring_chances.clock_jump = 0.0
        self.configs = draw_configs(rng, self.short_window)
        self.processes: list[Process] = []
        self._started = 0
        self.producers = [Producer(self, f"p{i}") for i in range(rng.choice((1, 2, 3)))]
        self.consumers = [Consumer(self, f"c{i}", "q") for i in range(rng.choice((1, 2, 4)))]
        self.consumers.append(Consumer(self, "d0", "q.dead"))

    @property
    def clients(self) -> list[Client]:
        return [*self.producers, *self.consumers]

    # The beginning

    async def start(self) -> None:
        for queue, config in self.configs.items():
            self.world.record(
                history.QueueSet(
                    0,
                    queue,
                    config.max_attempts,
                    config.max_deliveries,
                    config.dedup_window_ms,
                    config.overflow,
                    config.dead_letter,
                )
            )
        await self._make_queues()
        for _ in range(PROCESSES):
            self.begin()
        for client in self.clients:
            client.connect()

    async def _make_queues(self) -> None:
        """Both in one slot: whoever owns one owns the other."""
        rng = self.world.rng
        ids = [rng.randbytes(16)]
        while slot_of(ShardKey(ids[0].hex(), 0)) != slot_of(ShardKey(ids[-1].hex(), 0)) or (
            len(ids) == 1
        ):
            ids[1:] = [rng.randbytes(16)]
        planned: list[bytes] = []

        def randbytes(count: int) -> bytes:
            return planned.pop() if planned else rng.randbytes(count)

        ring = CalmRing(self.network.replicas, rng)
        store = await CassandraStore.over(ring, Limits(), address="setup", randbytes=randbytes)
        for name in QUEUES:
            planned.append(ids.pop())
            row = await store.create_queue(TENANT, name, self.configs[name])
            self.names[row.id] = name
        await store.close()

    # Processes

    def begin(self) -> None:
        """One more process."""
        self._started += 1
        process = Process(self, f"n{self._started}")
        self.processes.append(process)
        self._nursery.start_soon(process.run)

    def over(self, process: Process) -> None:
        """Another one comes in its place."""
        self.processes.remove(process)
        self.world.after(self.world.rng.randrange(1, 600), self.begin)

    def lose(self, tenure: Tenure) -> None:
        for client in self.clients:
            if client.conn is not None and client.conn.node is tenure:
                client.lose_connection()

    @property
    def tenures(self) -> list[Tenure]:
        """Of those who serve, or think so; the newest last."""
        found = [p.tenure for p in self.processes if p.tenure is not None and p.tenure.alive]
        return sorted(found, key=lambda tenure: tenure.epoch)

    @property
    def newest(self) -> Tenure | None:
        tenures = self.tenures
        return tenures[-1] if tenures and self.is_newest(tenures[-1].epoch) else None

    @property
    def node(self) -> Tenure | None:
        """Mostly the owner; now and then somebody who was."""
        tenures = self.tenures
        if tenures and not self.world.calm and self.world.rng.random() < 0.1:
            return self.world.rng.choice(tenures)
        return self.newest

    def is_newest(self, epoch: int) -> bool:
        return epoch >= self.world.epoch

    # What befalls them

    def strike(self) -> None:
        """Now and then."""
        world, rng, chances = self.world, self.world.rng, self.world.ring_chances
        self.network.fail_nodes()
        self.redis.befall()
        if rng.random() < 0.08:
            self.redis.save()
        if not self.processes:
            return
        process = self._victim()
        if world.happens(chances.kill):
            world.fault("kill.process")
            process.kill()
        elif world.happens(chances.pause) and not process.paused:
            world.fault("pause.process")
            self.pause(process)
        elif world.happens(chances.stop) and not process.stopping:
            world.fault("stop.process")
            process.stop()
        if world.happens(chances.clock_jump):
            jump = rng.choice((-90_000, -5_000, -400, 400, 5_000, 90_000))
            world.fault("clock.forward" if jump > 0 else "clock.back")
            process.skew = jump

    def _victim(self) -> Process:
        """Mostly the owner."""
        newest = self.newest
        if newest is not None and self.world.rng.random() < 0.7:
            return newest.process
        return self.world.rng.choice(self.processes)

    def pause(self, process: Process) -> None:
        """Its clients give up at once, or wait for it."""
        process.pause(self.world.rng.choice((100, 700, 1_500, 2_500, 5_000, 9_000)))
        for client in self.clients:
            there = client.conn is not None and client.conn.node is process.tenure
            if there and self.world.rng.random() < 0.5:
                client.lose_connection()

    def calm(self) -> None:
        self.network.down.clear()
        self.redis.gone = False
        for process in self.processes:
            process.skew = 0
            process.resume()

    def gather(self) -> None:
        """In calm times nobody stays with one who is not the owner."""
        for client in self.clients:
            if client.conn is not None and client.conn.node is not self.newest:
                client.lose_connection()

    # Managing

    def purge(self) -> None:
        self.world.record(history.Allow(self.world.now, "q", "purged"))
        self._manage("q", lambda shard, now: shard.purge(SettleTicket(), now))

    def redrive(self) -> None:
        self.world.record(history.Allow(self.world.now, "q.dead", "redriven"))
        self._manage("q.dead", lambda shard, now: redrive_first(shard, 5, "q", now))

    def set_paused(self, paused: bool) -> None:
        self.configs["q"] = config = msgspec.structs.replace(self.configs["q"], paused=paused)
        self._manage("q", lambda shard, _: shard.configure(config, "q.dead"))

    def _manage(self, queue: str, action: Callable[[Shard, int], object]) -> None:
        newest = self.newest
        if newest is not None and not newest.process.paused:
            served = newest.runners[queue]
            action(served.shard, newest.now)
            served.turn()

    # History

    def observe(self, shard: Shard, effect: Effect) -> None:
        """A shard has decided to deliver, or that a lease is over."""
        if isinstance(effect, Deliver):
            self._record_grants(shard, effect)
        elif isinstance(effect, Lost) and self.is_newest(shard.epoch):
            for prefix, low, high in effect.receipts:
                for n in range(low, high + 1):
                    self.world.record(history.LeaseLost(self.world.now, f"{prefix}.{n}"))

    def _record_grants(self, shard: Shard, effect: Deliver) -> None:
        sub, queue = effect.subscription, self.names[shard.key.queue_id]
        # A zombie counts permits of its own: they say nothing of those that count.
        permits = sub.prefix if self.is_newest(shard.epoch) else ""
        for run in effect.runs:
            for index, message in enumerate(run.messages):
                self.world.record(
                    history.Grant(
                        self.world.now,
                        queue,
                        make_id(*shard.key, run.lane, run.seq + index),
                        message.body.decode(),
                        permits,
                        sub.session,
                        "" if sub.ack_none else f"{sub.prefix}.{run.n + index}",
                        0 if sub.ack_none else run.fence,
                        run.attempt,
                        sub.explicit,
                        sub.ack_none,
                        effect.again,
                        run.seq + index,
                    )
                )

    # Looking

    def sample(self) -> None:
        newest = self.newest
        if newest is None:
            return
        for queue, served in newest.runners.items():
            audit(served.shard)
            for name, value, limit in bounds_of(served.shard, self.bounds):
                self.world.record(history.Bound(self.world.now, f"{queue}.{name}", value, limit))

    def left(self, served: ServedShard) -> dict[str, str]:
        """What is still stored: message id → body."""
        key = served.runner.key
        return {
            served.id(lane.number, seq): self.bodies[key, lane.number, seq].body.decode()
            for lane in served.shard.window.order
            for bucket in lane.buckets
            for low, high in bucket.state.settled.gaps(bucket.first, bucket.last)
            for seq in range(low, high + 1)
        }

    def drained(self) -> bool:
        newest = self.newest
        if newest is None or any(p.unanswered or p.repeat for p in self.producers):
            return False
        shards = [served.shard for served in newest.runners.values()]
        return all(
            not shard.overflow.messages and not shard.journal.pending_messages for shard in shards
        )
