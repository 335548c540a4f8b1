"""A node: the owner of a queue and of its dead letters, on a store that can fail in every way.

It does what the trio shell does, without trio: it hands events to the shards and carries out
their effects, each after a delay of its own, with faults in between. A node that crashes is
forgotten at once, in the middle of any effect; what it had sent to the store may still land.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pushlane_dispatcher.core.effects import (
    Append,
    Confirm,
    Deliver,
    Done,
    Drop,
    Effect,
    Fetch,
    Forget,
    Lost,
    Mark,
    Page,
    Published,
    PublishTicket,
    Remember,
    Run,
    Schedule,
    Settle,
    Transfer,
)
from pushlane_dispatcher.core.ident import make_id
from pushlane_dispatcher.core.recovery import recover, remember
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.core.wanted_marks import wanted_marks
from pushlane_dispatcher.recover import lease_of
from pushlane_leases.interface import LeaseRun, ReceiptRun, StaleEpoch
from pushlane_storage.bucket import CONTROL, ShardKey
from pushlane_storage.existing import ShardRows, needs_heads, needs_settlements
from pushlane_storage.history import event as history

if TYPE_CHECKING:
    from tests.simulation.clients import Consumer, PublishRequest, SettleRequest
    from tests.simulation.cluster import Cluster

RETRY_MS = 20

WEIGHTS = {
    "schedule.before": 60,
    "schedule.after": 60,
    "lost.before": 12,
    "transfer.before": 6,
    "transfer.after": 6,
    "open.before_seal": 6,
    "open.after_seal": 6,
    "fetch.before": 4,
    "fetch.after": 4,
    "mark.before": 3,
    "mark.after": 3,
    "drop.before": 20,
    "drop.after": 40,
}
"""Crashes at effects that are rare are likelier, so that all of them happen often enough."""


class Runner:
    """One shard on one node."""

    def __init__(self, node: Node, queue: str) -> None:
        self.node = node
        self.world = node.world
        self.queue = queue
        self.cluster = node.cluster
        self.key = ShardKey(node.cluster.queue_ids[queue], 0)
        self.chores: list[Mark | Drop] = []
        self.doubted: set[Effect] = set()
        """Writes of which a try had an unknown outcome."""
        self.wake_order = 0
        self.shard = self._open()

    def id(self, lane: int, seq: int) -> str:
        return make_id(*self.key, lane, seq)

    # What clients hand in

    def publish_token(self, request: PublishRequest) -> object:
        return request

    def settle_token(self, request: SettleRequest) -> object:
        return request.answered

    def sink(self, consumer: Consumer, subscription: Subscription) -> object:
        return consumer

    def started(self, receipt: str) -> None:
        self.world.record(history.Start(self.world.now, receipt))

    # Opening

    def _open(self) -> Shard:
        node, cluster = self.node, self.cluster
        config = cluster.configs[self.queue]
        tables = cluster.tables
        buckets = tables.buckets(self.key)
        rows = ShardRows(
            tables.seals(self.key),
            buckets,
            {
                bucket.key: tables.heads(self.key, bucket.key)
                for bucket in buckets
                if needs_heads(bucket)
            },
            {
                key: tables.settlements(self.key, key)
                for key in [*(b.key for b in buckets if needs_settlements(b)), CONTROL]
            },
        )
        seal, recovered = recover(rows, node.epoch)
        node.maybe_crash("open.before_seal")
        tables.write_seal(self.key, seal)
        node.maybe_crash("open.after_seal")
        for row in wanted_marks(
            recovered, config.dedup_window_ms, self.world.wall, cluster.bounds.producer_seqs
        ):
            remember(recovered, row, tables.heads(self.key, row.key))
        cluster.record_found(self.queue, self.key, rows, dict(seal.flushes), recovered)
        for run in self._outstanding():
            for index in range(run.count):
                bucket = next(
                    (
                        b.row.key
                        for b in recovered.buckets
                        if b.row.key.lane == run.lane
                        and b.row.first <= run.seq + index < b.row.first + b.row.count
                    ),
                    None,
                )
                if bucket is None:
                    continue
                seq = run.seq + index
                message = tables.messages(self.key, bucket, [seq])[seq]
                recovered.leases.append(lease_of(run, run.n + index, seq, message))
        return Shard(
            self.key, self.queue, config, cluster.dead_letters[self.queue], node.epoch,
            recovered, node.now, node.offset, self.world.rng.random, cluster.bounds, cached=True,
        )  # fmt: skip

    def _outstanding(self) -> list[LeaseRun]:
        if self.node.cache_fails():
            return []
        return self.cluster.leases.claim(self._cache_key, self.node.epoch, self.world.wall)

    @property
    def _cache_key(self) -> str:
        return f"{self.key.queue_id}/{self.key.shard}"

    # Effects

    def turn(self) -> None:
        """Carry out what the shard wants now, then see when it wants to be woken."""
        for effect in self.shard.effects(self.node.now):
            self.node.maybe_crash(f"{_name(effect)}.before")
            self._begin(effect)
        self._set_alarm()

    def _set_alarm(self) -> None:
        at = self.shard.wake_at()
        self.wake_order += 1
        if at is not None:
            delay = self.node.world_delay(at)
            self.world.after(delay, self.node.guarded(self._alarm), self.wake_order)

    def _alarm(self, order: int) -> None:
        if order == self.wake_order:
            self.shard.tick(self.node.now, self.node.offset)
            self.turn()

    def _begin(self, effect: Effect) -> None:
        if type(effect) is Deliver:
            self._deliver(effect)
        elif type(effect) is Lost:
            self._lost(effect)
        elif type(effect) is Published:
            self._published(effect.ticket)
        elif type(effect) is Done or type(effect) is Confirm:
            self._done(effect)
        elif type(effect) is Remember:
            runs = self._lease_runs(effect.subscription, effect.runs)
            self._cache(lambda: self.cluster.leases.grant(self._cache_key, self.node.epoch, runs))
        elif type(effect) is Forget:
            receipts = [ReceiptRun(*run) for run in effect.receipts]
            self._cache(
                lambda: self.cluster.leases.release(self._cache_key, self.node.epoch, receipts)
            )
        elif isinstance(effect, Mark | Drop):
            self.chores.append(effect)
            if len(self.chores) == 1:
                self._later(self._chore)
        elif type(effect) is Transfer:
            self._later(self._transfer, effect)
        else:
            self.node.flying.append((self, effect))
            self._later(self._land, effect)

    def _later(self, action: Callable[..., None], *args: Any) -> None:
        self.world.after(self.world.latency(), self.node.guarded(action), *args)

    def _land(self, effect: Effect) -> None:
        """A request arrives at the store."""
        world, chances = self.world, self.world.chances
        writes = isinstance(effect, Append | Settle)
        if isinstance(effect, Append) and world.happens(chances.refused):
            world.fault("store.refused")
            # After an unknown outcome a refusal is no proof: an earlier try may have landed.
            if effect not in self.doubted and self.shard.append_refused(effect, self.node.now):
                self.node.flying.remove((self, effect))
                self.turn()
            else:
                self._retry(effect)
            return
        if writes and world.happens(chances.unknown):
            self._unknown(effect)
            return
        if not writes and world.happens(chances.read_error):
            world.fault("store.read_error")
            self._retry(effect)
            return
        answer = self.perform(effect)
        if self.node.fenced:
            self.node.die("fenced")
            return
        self.node.maybe_crash(f"{_name(effect)}.after")
        self.node.flying.remove((self, effect))
        self._answer(effect, answer)
        self.turn()

    def _unknown(self, effect: Effect) -> None:
        self.doubted.add(effect)
        draw = self.world.rng.random()
        if draw < 0.4:
            self.world.fault("store.unknown_applied")
            self.perform(effect)
        elif draw < 0.6 and isinstance(effect, Settle) and len(effect.rows) > 1:
            self.world.fault("store.partial")
            self.cluster.tables.settle_rows(self.key, effect.rows[: len(effect.rows) // 2])
        else:
            self.world.fault("store.unknown_lost")
        self._retry(effect)

    def _retry(self, effect: Effect) -> None:
        self.world.after(RETRY_MS, self.node.guarded(self._land), effect)

    def perform(self, effect: Effect) -> Any:
        """What the store does for an effect."""
        tables = self.cluster.tables
        if isinstance(effect, Append):
            tables.append(self.key, effect.segment, effect.opens)
        elif isinstance(effect, Settle):
            tables.settle(self.key, effect.rows)
        elif isinstance(effect, Page):
            return tables.segments(self.key, effect.bucket, effect.start, effect.limit)
        elif isinstance(effect, Fetch):
            return tables.messages(self.key, effect.bucket, [e.seq for e in effect.entries])
        else:
            assert isinstance(effect, Schedule)
            return tables.due(self.key, effect.start, effect.end, effect.limit)
        return None

    def _answer(self, effect: Effect, answer: Any) -> None:
        now = self.node.now
        if isinstance(effect, Append):
            self.shard.appended(effect, now)
        elif isinstance(effect, Settle):
            self.cluster.record_rows(self.queue, self.key, effect.rows, self.purged_by(effect))
            self.shard.settled(effect, now)
        elif isinstance(effect, Page):
            self.shard.paged(effect, answer, now)
        elif isinstance(effect, Fetch):
            self.shard.fetched(effect, answer, now)
        else:
            assert isinstance(effect, Schedule)
            self.shard.scheduled(effect, answer, now)

    def purged_by(self, settle: Settle) -> list[str]:
        """The messages that a purge ends: those below it that are unsettled and not spared."""
        ids = []
        for row in settle.rows:
            for purge in row.purges:
                spared = set(purge.spared)
                for bucket in self.shard.window.lane(purge.lane).buckets:
                    top = min(purge.upto, bucket.last)
                    for low, high in bucket.state.settled.gaps(bucket.first, top):
                        seqs = [seq for seq in range(low, high + 1) if seq not in spared]
                        ids += [self.id(purge.lane, seq) for seq in seqs]
        return ids

    def _chore(self) -> None:
        chore = self.chores.pop(0)
        if isinstance(chore, Mark):
            self.cluster.tables.mark_bucket(self.key, chore.bucket)
        else:
            self.cluster.tables.drop_bucket(self.key, chore.key)
        self.node.maybe_crash(f"{_name(chore)}.after")
        if self.chores:
            self._later(self._chore)

    def _transfer(self, effect: Transfer) -> None:
        """Publish to the other queue, on this node."""
        target = self.node.runners[effect.to]
        target.shard.publish([effect.message], self.node.now, token=(self, effect))
        target.turn()

    def _published(self, ticket: PublishTicket) -> None:
        if isinstance(ticket.token, tuple):
            source, effect = ticket.token
            self._moved(source, effect, ticket)
        else:
            self.cluster.answer(self.node, ticket.token.answered, self, ticket)

    def _moved(self, source: Runner, effect: Transfer, ticket: PublishTicket) -> None:
        stored = not ticket.failed
        if stored:
            lane, seq = ticket.duplicates.get(0, (4, ticket.seqs[0]))
            old = source.id(effect.entry.lane.number, effect.entry.seq)
            uid = effect.message.body.decode()
            self.cluster.record_moved(old, self.queue, self.id(lane, seq), uid, seq)
        self.node.maybe_crash("transfer.after")
        source.shard.transferred(effect, stored, self.node.now)
        source.turn()

    def _done(self, effect: Confirm | Done) -> None:
        if effect.ticket.token is not None:
            self.cluster.answer(self.node, effect.ticket.token, effect.ticket)

    # Deliveries

    def _deliver(self, effect: Deliver) -> None:
        subscription = effect.subscription
        if not effect.again and not subscription.ack_none:
            runs = self._lease_runs(subscription, effect.runs)
            self._record_grants(effect)
            self._cache(lambda: self.cluster.leases.grant(self._cache_key, self.node.epoch, runs))
        else:
            self._record_grants(effect)
        self.node.maybe_crash("deliver.after")
        consumer = subscription.token
        if consumer is not None:
            self.cluster.answer(self.node, consumer.delivered, self, effect)

    def _record_grants(self, effect: Deliver) -> None:
        sub = effect.subscription
        for run in effect.runs:
            for index, message in enumerate(run.messages):
                self.world.record(
                    history.Grant(
                        self.world.now,
                        self.queue,
                        self.id(run.lane, run.seq + index),
                        message.body.decode(),
                        sub.prefix,
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

    def _lease_runs(self, sub: Subscription, runs: list[Run]) -> list[LeaseRun]:
        return [
            LeaseRun(
                sub.prefix, run.n, len(run.messages), run.lane, run.seq, run.fence, sub.session,
                run.attempt - 1, run.deliveries, run.started, sub.lease_ms,
                run.deadline + self.node.offset, self.node.epoch,
            )
            for run in runs
        ]  # fmt: skip

    def _cache(self, call: Callable[[], None]) -> None:
        """Tell the lease cache; when it fails, go on without it."""
        if self.node.cache_fails():
            return
        try:
            call()
        except StaleEpoch:
            self.node.die("stale_epoch")

    def _lost(self, effect: Lost) -> None:
        for prefix, low, high in effect.receipts:
            for n in range(low, high + 1):
                if self.node.fenced:  # a zombie's word: the new owner may know better
                    continue
                self.world.record(history.LeaseLost(self.world.now, f"{prefix}.{n}"))
        consumer = effect.subscription.token
        if consumer is not None:
            self.cluster.answer(self.node, consumer.told_lost, effect.receipts)


class Crashed(Exception):
    """The node is over; whatever it was doing ends here."""


class Node:
    def __init__(self, cluster: Cluster, name: str, epoch: int) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.name = name
        self.epoch = epoch
        self.alive = True
        self.fenced = False
        """Somebody else owns its shards, and it does not know."""
        self.born = self.world.now
        self.rate = 1.0
        if self.world.happens(self.world.chances.drift):
            self.world.fault("clock.drift")
            self.rate = self.world.rng.choice((0.95, 0.99, 1.01, 1.05))
        self.flying: list[tuple[Runner, Effect]] = []
        self.runners: dict[str, Runner] = {}

    @property
    def now(self) -> int:
        """Its monotonic clock, which may drift."""
        return 1_000 + int((self.world.now - self.born) * self.rate)

    @property
    def offset(self) -> int:
        return self.world.wall - self.now

    def world_delay(self, at: int) -> int:
        return max(1, int((at - self.now) / self.rate) + 1)

    def guarded(self, action: Callable[..., None]) -> Callable[..., None]:
        """The action, unless the node is over by then; a crash in it ends it."""

        def run(*args: Any) -> None:
            if self.alive:
                with suppress(Crashed):
                    action(*args)

        return run

    def maybe_crash(self, where: str) -> None:
        if self.world.happens(self.world.chances.crash * WEIGHTS.get(where, 1)):
            self.world.fault(f"crash.{where}")
            self.die(where)

    def die(self, why: str) -> None:
        if self.alive:
            self.alive = False
            self.cluster.died(self, why)
        raise Crashed(why)

    def cache_fails(self) -> bool:
        if self.world.happens(self.world.chances.cache_wipe):
            self.world.fault("cache.wiped")
            self.cluster.wipe_leases()
        if self.world.happens(self.world.chances.cache_error):
            self.world.fault("cache.error")
            return True
        return False


def _name(effect: Effect) -> str:
    return type(effect).__name__.lower()
