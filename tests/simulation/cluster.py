"""The cluster: what outlives a node, who is connected to it, and the history of it all."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.dedup import TRANSFER
from pushlane_dispatcher.core.effects import Append, Settle, SettleTicket
from pushlane_dispatcher.core.ident import make_id, parse_id
from pushlane_dispatcher.core.recovered import Recovered
from pushlane_dispatcher.core.recovery import existing_marks
from pushlane_dispatcher.core.shard import Shard
from pushlane_leases.memory import LeaseTable
from pushlane_storage.bucket import ShardKey
from pushlane_storage.existing import ShardRows
from pushlane_storage.history import event as history
from pushlane_storage.queue import QueueConfig
from pushlane_storage.settlement import Settlement
from tests.redriving import redrive_first
from tests.simulation.audit import audit
from tests.simulation.clients import Client, Consumer, Producer
from tests.simulation.node import Crashed, Node, Runner
from tests.simulation.tables import open_tables
from tests.simulation.world import World

LONG_WINDOW_MS = 600_000
"""A dedup window longer than a run with all its clock jumps: a repeat is always within it."""
SHORT_WINDOW_MS = 4_000
"""One that ends during a run, so that drained buckets are dropped; only with a true clock."""

QUEUES = ("q.dead", "q")
"""The target of transfers is opened first."""

BOUNDS = Bounds(
    window_messages=24,
    window_bytes=4_000,
    positions=40,
    page_messages=8,
    segment_messages=6,
    segment_bytes=1_200,
    flushes=3,
    pending_messages=60,
    pending_bytes=20_000,
    bucket_ms=4_000,
    bucket_messages=15,
    bucket_bytes=3_000,
    checkpoint_rows=4,
    producer_seqs=16,
    settled_runs=64,
    transfers=4,
    leaving=50,
    transfer_retry_ms=100,
    fetch_messages=4,
    horizon_ms=2_000,
    steal_ms=300,
    expiry_sweep_ms=100,
)


def draw_configs(rng: Random, short_window: bool) -> dict[str, QueueConfig]:
    return {
        "q": QueueConfig(
            max_attempts=rng.choice((1, 3, 5)),
            max_deliveries=rng.choice((2, 5, 20)),
            reserve_ms=rng.choice((800, 3_000)),
            backoff_base_ms=50,
            backoff_max_ms=1_000,
            consumer_backoff_base_ms=20,
            consumer_backoff_max_ms=300,
            dedup_window_ms=SHORT_WINDOW_MS if short_window else LONG_WINDOW_MS,
            max_messages=rng.choice((60, 1_000, 1_000)),
            overflow=rng.choice(("reject", "drop_oldest", "dead_letter")),
        ),
        "q.dead": QueueConfig(
            max_attempts=1_000_000, max_deliveries=1_000_000, reserve_ms=2_000,
            backoff_base_ms=50,
            backoff_max_ms=500, max_messages=rng.choice((30, 1_000, 1_000)),
            dead_letter="",
        ),
    }  # fmt: skip


class Cluster:
    def __init__(self, world: World) -> None:
        self.world = world
        self.bounds = BOUNDS
        rng = world.rng
        self.tables = open_tables(world.store, world.seed)
        self.leases = LeaseTable()
        self.queue_ids = {queue: f"id-{queue}" for queue in QUEUES}
        self.dead_letters: dict[str, str | None] = {"q": "q.dead", "q.dead": None}
        self.short_window = rng.random() < 0.3
        if self.short_window:
            world.chances.clock_jump = world.chances.drift = 0.0
        self.epoch = 0
        self.node: Node | None = None
        self.nodes: list[Node] = []
        self.configs = draw_configs(rng, self.short_window)
        self.producers = [Producer(self, f"p{i}") for i in range(rng.choice((1, 2, 3)))]
        self.consumers = [Consumer(self, f"c{i}", "q") for i in range(rng.choice((1, 2, 4)))]
        self.consumers.append(Consumer(self, "d0", "q.dead"))
        self._rows: set[tuple[str, int, int]] = set()
        self._moved: set[tuple[str, str]] = set()
        self._purged: set[str] = set()

    @property
    def clients(self) -> list[Client]:
        return [*self.producers, *self.consumers]

    # Nodes

    def start(self) -> None:
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
        self.open()
        for client in self.clients:
            client.connect()

    def open(self) -> None:
        """A new owner: claim, recover, seal, serve."""
        self.epoch += 1
        self.tables.reopen()
        node = Node(self, f"n{self.epoch}", self.epoch)
        self.nodes.append(node)
        self.world.record(history.Open(self.world.now, node.name, node.epoch))
        try:
            for queue in QUEUES:
                node.runners[queue] = Runner(node, queue)
        except Crashed:
            return
        self.node = node
        for runner in node.runners.values():
            self.world.after(0, node.guarded(runner.turn))

    def died(self, node: Node, why: str) -> None:
        """A node is over. What it had sent to the store may land at any time from now."""
        self.world.record(history.Crash(self.world.now, node.name))
        for runner, effect in node.flying:
            if isinstance(effect, Append | Settle) and self.world.happens(
                self.world.chances.late_write
            ):
                self.world.fault("store.late_write")
                delay = self.world.rng.randrange(1, 600)
                self.world.after(delay, self._late, runner, effect)
        if self.node is node or self.node is None:
            self.node = None
            for client in self.clients:
                client.lose_connection()
            self.world.after(self.world.rng.randrange(1, 400), self._reopen, self.epoch)

    def close(self) -> None:
        for node in self.nodes:
            for runner in node.runners.values():
                runner.shard.dispose()
        self.tables.close()

    def _reopen(self, epoch: int) -> None:
        if self.epoch == epoch:
            self.open()

    def _late(self, runner: Runner, effect: Append | Settle) -> None:
        if isinstance(effect, Settle) and self.world.rng.random() < 0.3:
            self.tables.settle_rows(runner.key, effect.rows[:1])
        else:
            runner.perform(effect)

    def pause(self) -> None:
        """The node stops for so long that another takes over, and then goes on as if it owned."""
        node = self.node
        if node is None:
            return
        self.world.fault("pause.node")
        node.fenced = True
        self.node = None
        for client in self.clients:
            client.lose_connection()
        self.open()
        if self.node is None:
            self.world.after(100, self._reopen, self.epoch)

    def wipe_leases(self) -> None:
        self.leases = LeaseTable()

    def answer(self, node: Node, action: Any, *args: Any) -> None:
        """From a node to whoever asked, over the connection on which they did."""
        owner = action.__self__
        client = getattr(owner, "producer", None) or getattr(owner, "consumer", None) or owner
        if client.conn is not None and client.conn.node is node:
            client.conn.answer(action, *args)

    # Managing

    def purge(self) -> None:
        self.world.record(history.Allow(self.world.now, "q", "purged"))
        self._manage("q", lambda shard, now: shard.purge(SettleTicket(), now))

    def redrive(self) -> None:
        self.world.record(history.Allow(self.world.now, "q.dead", "redriven"))
        self._manage("q.dead", lambda shard, now: redrive_first(shard, 5, "q", now))

    def set_paused(self, paused: bool) -> None:
        self.configs["q"] = config = msgspec.structs.replace(self.configs["q"], paused=paused)
        self._manage("q", lambda shard, _: shard.configure(config, self.dead_letters["q"]))

    def _manage(self, queue: str, action: Callable[[Shard, int], object]) -> None:
        if self.node is None:
            return
        runner = self.node.runners[queue]
        action(runner.shard, self.node.now)
        self.node.guarded(runner.turn)()

    # History

    def record_rows(
        self, queue: str, key: ShardKey, rows: list[Settlement], purged: list[str]
    ) -> None:
        """A flush is durable and counts."""
        for row in rows:
            self._rows.add((queue, row.owner, row.n))
            self._record_row(queue, key, row)
        self._record_purged(queue, purged)

    def _record_row(self, queue: str, key: ShardKey, row: Settlement) -> None:
        now, lane, record = self.world.now, row.bucket.lane, self.world.record
        for void in row.voids:
            record(
                history.Void(
                    now,
                    queue,
                    make_id(*key, lane, void.seq),
                    void.fence,
                    void.attempts,
                    void.deliveries,
                )
            )
        for leaving in row.leaving:
            message_id = make_id(*key, lane, leaving.seq)
            record(history.Leaving(now, queue, message_id, leaving.cause, leaving.to))
        for low, high in row.acked:
            for seq in range(low, high + 1):
                record(history.Ended(now, queue, make_id(*key, lane, seq), "acked"))
        for gone in row.gone:
            how: Any = gone.cause.split(":")[0]
            cause = gone.cause.partition(":")[2]
            for seq in range(gone.low, gone.high + 1):
                record(history.Ended(now, queue, make_id(*key, lane, seq), how, cause))

    def _record_purged(self, queue: str, purged: list[str]) -> None:
        for message_id in purged:
            if message_id not in self._purged:
                self._purged.add(message_id)
                self.world.record(history.Ended(self.world.now, queue, message_id, "purged"))

    def record_moved(self, old: str, to: str, new: str, uid: str, seq: int) -> None:
        """A transfer is stored at its target."""
        if (old, new) not in self._moved:
            self._moved.add((old, new))
            queue_id = parse_id(old).queue_id
            queue = next(name for name, known in self.queue_ids.items() if known == queue_id)
            self.world.record(
                history.Moved(self.world.now, queue, old, to, new_id=new, uid=uid, seq=seq)
            )

    def record_found(
        self, queue: str, key: ShardKey, rows: ShardRows, flushes: dict[int, int],
        recovered: Recovered,
    ) -> None:  # fmt: skip
        """What a new owner found that its predecessor did not live to tell."""
        for found in recovered.buckets:
            for mark in existing_marks(found.row, rows.heads.get(found.row.key, ())):
                if mark.dedup is not None and mark.dedup.startswith(TRANSFER):
                    old = mark.dedup.removeprefix(TRANSFER)
                    new = make_id(*key, found.row.key.lane, mark.seq)
                    message = self.tables.messages(key, found.row.key, [mark.seq])[mark.seq]
                    self.record_moved(old, queue, new, message.body.decode(), mark.seq)
        news = [
            row
            for partition in rows.settlements.values()
            for row in partition
            if row.n < flushes.get(row.owner, 0) and (queue, row.owner, row.n) not in self._rows
        ]
        for row in sorted(news, key=lambda row: (row.owner, row.n)):
            self._record_row(queue, key, row)
        self._rows.update((queue, row.owner, row.n) for row in news)
        purged = [
            make_id(*key, found.row.key.lane, seq)
            for found in recovered.buckets
            for low, high in found.state.gone.get("purged", ())
            for seq in range(low, high + 1)
        ]
        self._record_purged(queue, purged)

    # Looking

    def sample(self) -> None:
        """Check what must hold inside, and note how near the bounds are."""
        if self.node is None:
            return
        for queue, runner in self.node.runners.items():
            audit(runner.shard)
            for name, value, limit in bounds_of(runner.shard, self.bounds):
                self.world.record(history.Bound(self.world.now, f"{queue}.{name}", value, limit))

    def left(self, queue: str) -> dict[str, str]:
        """What is still stored: message id → body."""
        assert self.node is not None
        runner = self.node.runners[queue]
        return {
            runner.id(lane.number, seq): message.body.decode()
            for lane in runner.shard.window.order
            for bucket in lane.buckets
            for low, high in bucket.state.settled.gaps(bucket.first, bucket.last)
            for seq, message in self.tables.messages(
                runner.key, bucket.key, range(low, high + 1)
            ).items()
        }


def bounds_of(shard: Shard, bounds: Bounds) -> list[tuple[str, int, int]]:
    # Each lane may have one page under way when the window fills, and bodies are fetched singly.
    under_way = 4 * (bounds.page_messages + bounds.segment_messages + bounds.fetch_messages)
    return [
        ("window", shard.window.resident, bounds.window_messages + under_way),
        ("positions", shard.life.waiting(), bounds.positions + bounds.window_messages + 64),
        ("pending", shard.journal.pending_messages, bounds.pending_messages),
        ("effects", len(shard._effects), 100),
    ]
