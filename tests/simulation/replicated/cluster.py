"""Several processes that fight for the slots of a few queues, what they share, their clients, and
the history.

Clients may come to any process. One that has not got their queue tries to get it, and they come
back a little later, there or elsewhere. When faults have stopped, all of them go to one process,
which need not be the one that has the queues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import trio

from pushlane_dispatcher.core.effects import Deliver, Effect, Lost
from pushlane_dispatcher.core.ident import make_id
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.dispatcher import Dispatcher
from pushlane_history import event as history
from pushlane_storage.bucket import ShardKey
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.slot import slot_of
from tests.simulation.fan import label_of
from tests.simulation.population import ANNEX, BOUNDS, QUEUES, TENANT, Population, draw_annex
from tests.simulation.replicated.cache import Redis
from tests.simulation.replicated.calm_ring import CalmRing
from tests.simulation.replicated.process import Process
from tests.simulation.replicated.ring import Network
from tests.simulation.replicated.tenure import ServedShard, Tenure
from tests.simulation.replicated.witness import Bodies, Epochs
from tests.simulation.replicated.world import TrioWorld

PROCESSES = 3
UPDATE_MS = 500
"""How long an operator waits before the next try."""


class ReplicatedCluster(Population):
    world: TrioWorld

    def __init__(self, world: TrioWorld, nursery: trio.Nursery) -> None:
        super().__init__(world, msgspec.structs.replace(BOUNDS, drained_buckets=2), 0.5)
        self._nursery = nursery
        self.network = Network(world)
        self.redis = Redis(world)
        self.known: set[object] = set()
        """What the history has of the store."""
        self.bodies: Bodies = {}
        self.epochs = Epochs()
        self.shards: dict[ShardKey, None] = {}
        """All that ever were."""
        self.gone: set[str] = set()
        """Labels of queues that were deleted."""
        for queue in QUEUES:
            self.configs[queue] = _allowed(self.configs[queue])
        self._changed: set[str] = set()
        """Queues whose rows may differ from `configs`."""
        self._update_at = 0
        self._updates = 0
        self._updating: set[int] = set()
        self._stray = world.rng.choice((0.02, 0.1, 0.4))
        """How often a client comes to just any process."""
        self.processes: list[Process] = []
        self._home: Process | None = None
        self._started = 0
        self.settle_in(self)

    # Queues

    async def start(self) -> None:
        ring = CalmRing(self.network.replicas, self.world.rng)
        async with CassandraStore.over(
            ring, Limits(), address="setup", randbytes=self._draw_ids()
        ) as store:
            for name, config in self.configs.items():
                self.met(await store.catalog.create(TENANT, name, config))
        self.begin_all()
        for client in self.clients:
            client.connect()

    def _draw_ids(self) -> Callable[[int], bytes]:
        """Ids such that a queue begins in another slot than its dead letters."""
        rng = self.world.rng
        used: set[int] = set()

        def randbytes(count: int) -> bytes:
            while True:
                drawn = rng.randbytes(count)
                slot = slot_of(ShardKey(drawn.hex(), 0))
                if slot not in used:
                    used.add(slot)
                    return drawn

        return randbytes

    def met(self, row: QueueRow) -> None:
        """Somebody has read a row, or made it."""
        if row.id in self.names:
            return
        before = self.labels.get(row.name)
        if before is not None:
            self.lost(before)
        self.name(row)
        for number in range(row.config.shards):
            self.shards[ShardKey(row.id, number)] = None

    def removed(self, queue_id: str) -> None:
        """Nothing of it is left."""
        self.lost(self.names[queue_id])

    def lost(self, label: str) -> None:
        """There is no such queue any more."""
        if label not in self.gone:
            self.gone.add(label)
            self.world.record(history.Deleted(self.world.now, label))

    @property
    def there(self) -> list[str]:
        """The names of the queues that there are."""
        return [name for name, label in self.labels.items() if label not in self.gone]

    # Processes

    def begin_all(self) -> None:
        for _ in range(PROCESSES):
            self.begin()

    def begin(self) -> None:
        """One more process."""
        self._started += 1
        process = Process(self, f"n{self._started}")
        self.processes.append(process)
        self._compare_clocks()
        self._nursery.start_soon(process.run)

    def over(self, process: Process) -> None:
        """Another one comes in its place."""
        self.processes.remove(process)
        self.world.after(self.world.rng.randrange(1, 600), self.begin)

    def lose(self, tenure: Tenure) -> None:
        for client in self.clients:
            if client.conn is not None and client.conn.node is tenure:
                client.lose_connection(broken=False)

    def newest(self, queue: str) -> Tenure | None:
        """Who has it."""
        for process in self.processes:
            tenure = process.tenures.get(queue)
            if tenure is not None and tenure.alive and tenure.is_newest:
                return tenure
        return None

    @property
    def serving(self) -> list[Tenure]:
        return [found for name in self.there if (found := self.newest(name)) is not None]

    @property
    def home(self) -> Process | None:
        """Where clients mostly go."""
        if self._home is None or not self._home.at_work:
            at_work = [process for process in self.processes if process.at_work]
            self._home = self.world.rng.choice(at_work) if at_work else None
        return self._home

    def find(self, queue: str) -> Tenure | None:
        process = self._door(queue)
        if process is None:
            return None
        tenure = process.tenures.get(queue)
        if tenure is None or not tenure.alive:
            process.want(queue)
            return None
        return tenure

    def _door(self, queue: str) -> Process | None:
        rng = self.world.rng
        if self.world.calm:
            return self.home
        if self.processes and rng.random() < self._stray:
            return rng.choice(self.processes)
        newest = self.newest(queue)
        return self.home if newest is None else newest.process

    def is_newest(self, shard: Shard) -> bool:
        return self.epochs.is_newest(shard.key, shard.epoch)

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
            jump = rng.choice(self.steps)
            world.fault("clock.forward" if jump > 0 else "clock.back")
            process.skew = jump
            self._compare_clocks()

    def _compare_clocks(self) -> None:
        skews = [process.skew for process in self.processes]
        if max(skews) - min(skews) > self.configs["q"].dedup_window_ms:
            self.world.fault("clock.apart")

    def _victim(self) -> Process:
        """Mostly an owner."""
        serving = self.serving
        if serving and self.world.rng.random() < 0.7:
            return self.world.rng.choice(serving).process
        return self.world.rng.choice(self.processes)

    def pause(self, process: Process) -> None:
        """Its clients give up at once, or wait for it."""
        process.pause(self.world.rng.choice((100, 700, 1_500, 2_500, 5_000, 9_000)))
        for client in self.clients:
            there = client.conn is not None and client.conn.node in process.tenures.values()
            if there and self.world.rng.random() < 0.5:
                client.lose_connection()

    def calm(self) -> None:
        self.network.down.clear()
        self.redis.calm()
        for process in self.processes:
            process.resume()
        self._home = None
        self.configure("q", paused=False)
        self.configure("q.dead", max_messages=1_000, max_message_bytes=1_000)

    def gather(self) -> None:
        """In calm times all go to one process, and what operators want is done there."""
        home = self.home
        for client in self.clients:
            node = None if client.conn is None else client.conn.node
            if isinstance(node, Tenure) and node.process is not home:
                client.lose_connection()
        for queue in sorted(self._changed):
            if not self._updating and self.world.now >= self._update_at:
                self._update_at = self.world.now + UPDATE_MS
                self._update(queue)

    # Managing

    def manage(self, queue: str, action: Callable[[Shard, int], object]) -> None:
        newest = self.newest(queue)
        if newest is not None and not newest.process.paused:
            for served in newest.every:
                action(served.shard, newest.now)
                served.turn()

    def configure(self, queue: str, **changes: Any) -> None:
        """Through any process, whoever has the queue."""
        self.configs[queue] = msgspec.structs.replace(self.configs[queue], **changes)
        self._changed.add(queue)
        self._update(queue)

    def _update(self, queue: str) -> None:
        config = self.configs[queue]

        async def update(dispatcher: Dispatcher) -> None:
            self._changed.add(queue)
            self._updates += 1
            mine = self._updates
            alone = not self._updating
            self._updating.add(mine)
            elsewhere = self._is_elsewhere(queue, dispatcher)
            try:
                await dispatcher.update(TENANT, queue, config)
            finally:
                self._updating.discard(mine)
            if elsewhere:
                self.world.fault("queue.changed_elsewhere")
            # Where others were under way nobody knows which one came last.
            if self.configs[queue] is config and alone and self._updates == mine:
                self._changed.discard(queue)

        self._ask(update, queue)

    def delete(self, queue: str) -> None:
        self.world.fault("queue.deleted")

        async def delete(dispatcher: Dispatcher) -> None:
            elsewhere = self._is_elsewhere(queue, dispatcher)
            try:
                await dispatcher.delete(TENANT, queue)
            except trio.Cancelled:
                self.world.fault("queue.deletion_cut")
                raise
            if elsewhere:
                self.world.fault("queue.deleted_elsewhere")

        process = self._ask(delete, queue)
        if process is not None and self.world.happens(self.world.ring_chances.kill * 300):
            self.world.after(self.world.rng.randrange(1, 400), process.kill)

    def _is_elsewhere(self, queue: str, dispatcher: Dispatcher) -> bool:
        """Whether another process serves a queue."""
        newest = self.newest(queue)
        return newest is not None and newest.process.dispatcher is not dispatcher

    def vanish(self) -> None:
        """Mostly when somebody serves it, and perhaps while that one is paused: others take its
        slots for that, and its clients wait for it."""
        rng, newest = self.world.rng, self.newest(ANNEX)
        if newest is None and rng.random() < 0.8:
            if ANNEX not in self.there:
                self.make_again(ANNEX)
            return
        if newest is not None and not newest.process.paused and rng.random() < 0.5:
            self.world.fault("pause.deletion")
            newest.process.pause(rng.choice((2_500, 5_000)))
        super().vanish()

    def make_again(self, queue: str) -> None:
        self.world.fault("queue.made_again")
        config = self.configs[queue] = draw_annex(self.world.rng, self.configs["q"])

        async def create(dispatcher: Dispatcher) -> None:
            await dispatcher.create(TENANT, queue, config)

        self._ask(create)

    def _ask(self, action: Callable[[Dispatcher], Any], queue: str = "") -> Process | None:
        """Of any process, in calm times of the one that serves; answers which.

        With a queue mostly of one that does not serve it.
        """
        at_work = [process for process in self.processes if process.at_work]
        newest = self.newest(queue)
        others = [each for each in at_work if newest is not None and each is not newest.process]
        doors = [*at_work, *others, *others, None]
        process = self.home if self.world.calm else self.world.rng.choice(doors)
        if process is not None:
            process.manage(action)
        return process

    # History

    def observe(self, shard: Shard, effect: Effect) -> None:
        """A shard has decided to deliver, or that a lease is over."""
        if isinstance(effect, Deliver):
            self._record_grants(shard, effect)
        elif isinstance(effect, Lost) and self.is_newest(shard):
            for prefix, low, high in effect.receipts:
                for n in range(low, high + 1):
                    self.world.record(history.LeaseLost(self.world.now, f"{prefix}.{n}"))

    def label_of(self, sub: Subscription) -> str:
        """What the history calls a subscription."""
        return label_of(sub.prefix)

    def _record_grants(self, shard: Shard, effect: Deliver) -> None:
        sub, queue = effect.subscription, self.names[shard.key.queue_id]
        # A zombie counts permits of its own: they say nothing of those that count.
        permits = self.label_of(sub) if self.is_newest(shard) else ""
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
        for tenure in self.serving:
            for served in tenure.every:
                self.look_at(served)

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

    @property
    def complete(self) -> bool:
        """Every queue is served."""
        return len(self.serving) == len(self.there)

    def drained(self) -> bool:
        there = self.there
        waiting = (p for p in self.producers if p.queue in there and (p.unanswered or p.repeat))
        if not self.complete or any(waiting):
            return False
        shards = [served.shard for tenure in self.serving for served in tenure.every]
        return all(
            not shard.overflow.messages and not shard.journal.pending_messages for shard in shards
        )


def _allowed(config: QueueConfig) -> QueueConfig:
    """What a dispatcher takes: operators change it."""
    return msgspec.structs.replace(
        config,
        reserve_ms=max(config.reserve_ms, 1_000),
        max_attempts=min(config.max_attempts, 1_000),
        max_deliveries=min(config.max_deliveries, 1_000),
    )
