"""The cluster: what outlives a node, who is connected to it, and the history of it all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pushlane_dispatcher.core.effects import Append, Settle
from pushlane_dispatcher.core.ident import make_id, parse_id
from pushlane_dispatcher.core.recovered import existing_marks, recover
from pushlane_dispatcher.core.shard import Shard
from pushlane_history import event as history
from pushlane_leases.memory import LeaseTable
from pushlane_storage.bucket import ShardKey
from pushlane_storage.message import TRANSFER
from pushlane_storage.queue import QueueRow
from pushlane_storage.seal import Seal, ShardRows
from pushlane_storage.settlement import Settlement
from tests.simulation.audit import audit_window
from tests.simulation.node import Crashed, Node, Runner
from tests.simulation.population import ANNEX, BOUNDS, TENANT, Population, draw_annex
from tests.simulation.profile import LARGE_STEPS
from tests.simulation.tables import open_tables
from tests.simulation.world import World


class Cluster(Population):
    def __init__(self, world: World) -> None:
        super().__init__(world, BOUNDS, 0.3)
        self.tables = open_tables(world.store, world.seed)
        self.leases = LeaseTable()
        self.rows: dict[str, QueueRow] = {}
        """By name, of the queues that there are; some are being deleted."""
        self.dead_letters: dict[str, str | None] = {"q": "q.dead", "q.dead": None, ANNEX: "q.dead"}
        if self.short_window:
            world.chances.drift = 0.0
        self.epoch = 0
        self.node: Node | None = None
        self.nodes: list[Node] = []
        self.settle_in(self)
        self._rows: set[tuple[ShardKey, int, int]] = set()
        self._moved: set[tuple[str, str]] = set()
        self._purged: set[str] = set()
        self._stock: dict[str, int] = {}
        """By queue: what it held when somebody last looked at its present owner."""

    def find(self, queue: str) -> Node | None:
        """One node has all queues."""
        return self.node

    @property
    def queue_ids(self) -> dict[str, str]:
        return {name: row.id for name, row in self.rows.items()}

    # Queues

    def create(self, name: str) -> None:
        row = self.rows[name] = self.tables.create_queue(TENANT, name, self.configs[name])
        self.name(row)

    def delete(self, queue: str) -> None:
        """Mark its row, close its shards, remove all that it has; a crash may come in between."""
        if self.node is not None and queue in self.node.runners:
            self.world.fault("queue.deleted")
            self.node.guarded(self._mark)(self.node, queue)

    def _mark(self, node: Node, name: str) -> None:
        node.maybe_crash("delete.before")
        self.rows[name] = self.tables.mark_deleting(self.rows[name])
        node.maybe_crash("delete.marked")
        closed = node.runners.pop(name)
        for runner in closed:
            runner.close()
        for client in self.clients:
            if client.conn is not None and client.conn.node is node:
                client.conn.answer(client.deleted, closed[0].label)
        self.world.after(self.world.latency(), node.guarded(self._remove), node, name)

    def _remove(self, node: Node, name: str) -> None:
        """Also by the next owner, where the last one did not come to it."""
        self.tables.remove_queue(self.rows.pop(name))
        self.world.record(history.Deleted(self.world.now, self.labels[name]))
        node.maybe_crash("delete.after")

    def make_again(self, queue: str) -> None:
        if self.node is not None and queue not in self.rows:
            self.world.fault("queue.made_again")
            self.configs[queue] = draw_annex(self.world.rng, self.configs["q"])
            self.create(queue)
            self.node.guarded(self.node.open)(queue)

    # Nodes

    def start(self) -> None:
        for queue in self.configs:
            self.create(queue)
        self.open()
        for client in self.clients:
            client.connect()

    def open(self) -> None:
        """A new owner: claim, recover, seal, serve."""
        self.epoch += 1
        self._stock.clear()  # what was about to go may be back
        self.tables.reopen()
        if self.world.skew in LARGE_STEPS:  # an embedded store can't know what time it is
            self.world.skew = 0
        node = Node(self, f"n{self.epoch}", self.epoch)
        self.nodes.append(node)
        self.world.record(history.Open(self.world.now, node.name, node.epoch))
        try:
            for name, row in list(self.rows.items()):
                if row.deleting:
                    self._remove(node, name)
                else:
                    node.open(name)
        except Crashed:
            return
        self.node = node

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
                client.lose_connection(broken=False)
            self.world.after(self.world.rng.randrange(1, 400), self._reopen, self.epoch)

    def close(self) -> None:
        for node in self.nodes:
            for runner in node.every:
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
            client.lose_connection(broken=False)
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

    def set_paused(self, paused: bool) -> None:
        self.configure("q", paused=paused)

    def squeeze(self) -> None:
        """For a while dead letters find no room, or are too large."""
        if self.node is None:
            return
        if self.configs["q.dead"].shards == 1 and self.world.rng.random() < 0.5:
            self.configure("q.dead", max_messages=1)
        else:
            self.configure("q.dead", max_message_bytes=3)
            self.send("q", "q.dead")
        self.world.after(self.world.rng.randrange(500, 5_000), self.relax)

    def relax(self) -> None:
        self.configure("q.dead", max_messages=1_000, max_message_bytes=1_000)

    def configure(self, queue: str, **changes: Any) -> None:
        if self.node is not None and queue in self.node.runners:
            self._sample_stock(self.node, queue)
        else:
            self._stock.pop(queue, None)
        self.configs[queue] = msgspec.structs.replace(self.configs[queue], **changes)
        if self.node is not None:
            self.node.configure(queue)

    def manage(self, queue: str, action: Callable[[Shard, int], object]) -> None:
        """All shards of a queue."""
        node = self.node
        for runner in node.runners.get(queue, ()) if node is not None else ():
            assert node is not None
            if node.alive:
                action(runner.shard, node.now)
                node.guarded(runner.turn)()

    # History

    def record_rows(
        self, queue: str, key: ShardKey, rows: list[Settlement], purged: list[str]
    ) -> None:
        """A flush is durable and counts."""
        for row in rows:
            self._rows.add((key, row.owner, row.n))
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
                    max(1, void.not_before - self.world.time) if void.not_before else 0,
                )
            )
        for leaving in row.leaving:
            message_id = make_id(*key, lane, leaving.seq)
            to = self.labels.get(leaving.to, leaving.to)
            self.leaving[message_id] = leaving.cause, to
            left = self.leaving[message_id]
            record(history.Leaving(now, queue, message_id, *left, leaving.number))
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
            queue = self.names[parse_id(old).queue_id]
            cause, decided = self.leaving[old]
            if decided != to:  # meanwhile another queue has the name
                self.world.record(history.Leaving(self.world.now, queue, old, cause, to))
            self.world.record(
                history.Moved(self.world.now, queue, old, to, new_id=new, uid=uid, seq=seq)
            )

    def record_found(self, queue: str, key: ShardKey, rows: ShardRows, seal: Seal) -> None:
        """What a new owner found that its predecessor did not live to tell."""
        _, recovered = recover(rows, seal.owner)
        flushes = dict(seal.flushes)
        for found in recovered.buckets:
            for mark in existing_marks(found.row, rows.heads.get(found.row.key, ())):
                if mark.producer is not None and mark.producer.startswith(TRANSFER):
                    seqs = range(mark.seq, mark.seq + mark.count)
                    for seq, message in self.tables.messages(key, found.row.key, seqs).items():
                        assert message.dedup is not None
                        old = message.dedup.removeprefix(TRANSFER)
                        new = make_id(*key, found.row.key.lane, seq)
                        self.record_moved(old, queue, new, message.body.decode(), seq)
        news = [
            row
            for partition in rows.settlements.values()
            for row in partition
            if row.n < flushes.get(row.owner, 0) and (key, row.owner, row.n) not in self._rows
        ]
        for row in sorted(news, key=lambda row: (row.owner, row.n)):
            self._record_row(queue, key, row)
        self._rows.update((key, row.owner, row.n) for row in news)
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
        for queue in self.node.runners:
            self._sample_stock(self.node, queue)
        for runner in self.node.every:
            self.look_at(runner)
            if runner.turned and not runner.waking:
                audit_window(runner.shard)

    def _sample_stock(self, node: Node, queue: str) -> None:
        """What is stored is within the limit, or was there before the limit was lowered."""
        config = self.configs[queue]
        if config.overflow == "reject":
            used = sum(runner.use.messages for runner in node.runners[queue])
            most = max(config.max_messages, self._stock.get(queue, used))
            self.world.record(
                history.Bound(self.world.now, f"{self.labels[queue]}.stock", used, most)
            )
            shards = [runner.shard for runner in node.runners[queue]]
            # With what is about to go: a crash may bring it back.
            self._stock[queue] = sum(
                shard.overflow.messages + shard.journal.pending_messages for shard in shards
            )

    def left(self, queue: str) -> dict[str, str]:
        """What is still stored: message id → body."""
        assert self.node is not None
        return {
            runner.id(lane.number, seq): message.body.decode()
            for runner in self.node.runners[queue]
            for lane in runner.shard.window.order
            for bucket in lane.buckets
            for low, high in bucket.state.settled.gaps(bucket.first, bucket.last)
            for seq, message in self.tables.messages(
                runner.key, bucket.key, range(low, high + 1)
            ).items()
        }
