"""A node: the owner of a queue and of its dead letters, on a store that can fail in every way.

It does what the trio shell does, without trio: it hands events to the shards and carries out
their effects, each after a delay of its own, with faults in between. A node that crashes is
forgotten at once, in the middle of any effect; what it had sent to the store may still land.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pushlane.wire.errors import NotFound, PushlaneError, Unavailable
from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.core.effects import (
    Append,
    Confirm,
    Deliver,
    Done,
    Drop,
    DropPurges,
    Effect,
    Fetch,
    Forget,
    Hungry,
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
    WriteNote,
)
from pushlane_dispatcher.core.ident import make_id
from pushlane_dispatcher.core.opening import ClaimLeases, WriteSeal, open_shard
from pushlane_dispatcher.core.overflow import Use
from pushlane_dispatcher.core.shard import Moment, Setup, Shard
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.queues.route import shard_of
from pushlane_dispatcher.shard.shares import Shares
from pushlane_history import event as history
from pushlane_leases.interface import LeaseRun, StaleEpoch
from pushlane_storage.bucket import CONTROL, ShardKey
from pushlane_storage.message import Message
from tests.opened import carry_out, reading, rows_of
from tests.simulation.fan import Part, label_of

if TYPE_CHECKING:
    from tests.simulation.clients import PublishPart
    from tests.simulation.cluster import Cluster
    from tests.simulation.consumers import SettleRequest

RETRY_MS = 20

WEIGHTS = {
    "schedule.before": 120,
    "schedule.after": 280,
    "done.before": 2,
    "lost.before": 18,
    "transfer.before": 8,
    "transfer.after": 8,
    "open.before_seal": 6,
    "open.after_seal": 6,
    "fetch.before": 4,
    "fetch.after": 4,
    "mark.before": 3,
    "mark.after": 3,
    "drop.before": 20,
    "drop.after": 70,
    "delete.marked": 400,
    "delete.after": 400,
    "settle.before": 2,
    "settle.after": 2,
    "forget.before": 3,
    "hungry.before": 6,
    "writenote.before": 20,
    "writenote.after": 90,
}
"""Crashes at effects that are rare are likelier, so that all of them happen often enough."""


class Carried:
    """Messages on their way to several shards of another queue."""

    def __init__(self, source: Runner, effect: Transfer, parts: int) -> None:
        self.source = source
        self.effect = effect
        self.parts = parts
        self.errors: list[PushlaneError | None] = [None] * len(effect.messages)

    def answered(self) -> None:
        """One shard has, or never will."""
        self.parts -= 1
        if not self.parts:
            self.source.moved(self.effect, self.errors)


class Runner:
    """One shard on one node."""

    def __init__(self, node: Node, queue: str, number: int) -> None:
        self.node = node
        self.world = node.world
        self.queue = queue
        self.cluster = node.cluster
        self.label = node.cluster.labels[queue]
        self.key = ShardKey(node.cluster.queue_ids[queue], number)
        self.closed = False
        """Its queue was deleted."""
        self.shares: Shares | None = None
        self.incoming: list[tuple[Carried, list[int]]] = []
        """Messages on their way from other queues."""
        self.chores: list[Mark | Drop | DropPurges | WriteNote] = []
        self.doubted: set[Effect] = set()
        """Writes of which a try had an unknown outcome."""
        self.wake_order = 0
        self.waking = False
        self.turned = False
        """It has begun to serve."""
        self.shard = self._open()

    def id(self, lane: int, seq: int) -> str:
        return make_id(*self.key, lane, seq)

    def take(self, messages: list[Message], lanes: list[int] | None, token: object) -> None:
        """Publish, with the room that the queue's limits leave to this shard."""
        if self.shares is not None:
            self.shares.before(self.key.shard, messages)
        ticket = self.shard.publish(messages, self.node.now, lanes, token)
        if self.shares is not None:
            self.shares.after()
        if any(error.code == "queue_full" for error in ticket.failed.values()):
            self._full(len(messages))
        self.turn()

    def _full(self, wanted: int) -> None:
        """A queue is refused its room at the earliest when it is nine tenths full."""
        config = self.shard.config  # a node that lost its slot may know an older one
        if config.overflow == "reject":
            used = sum(runner.use.messages for runner in self.node.runners[self.queue])
            spare = config.max_messages * 9 // 10 - used - wanted
            self.world.record(history.Bound(self.world.now, f"{self.label}.refused", spare, 0))

    @property
    def use(self) -> Use:
        return self.shard.overflow.use

    def allot(self, messages: int, size: int | None) -> None:
        if self.shard.allot(messages, size, self.node.now):
            self.wake()

    # What clients hand in

    def publish(self, part: PublishPart) -> None:
        self.take(part.messages(self.node.wall), part.lanes, part)

    def settle_token(self, request: SettleRequest) -> object:
        return request.answered

    def sink(self, part: Part) -> object:
        return part

    def started(self, receipt: str) -> None:
        self.world.record(history.Start(self.world.now, receipt))

    # Opening

    def _open(self) -> Shard:
        node, cluster = self.node, self.cluster
        setup = Setup(
            self.key, self.queue, cluster.configs[self.queue], cluster.dead_letters[self.queue],
            node.epoch, self.world.rng.random, cluster.bounds, cached=True,
        )  # fmt: skip
        steps = reading(cluster.tables, self.key, lambda: node.moment)
        rows = rows_of(steps)

        def write_seal(step: WriteSeal) -> None:
            node.maybe_crash("open.before_seal")
            cluster.tables.write_seal(self.key, step.seal)
            node.maybe_crash("open.after_seal")
            cluster.record_found(self.label, self.key, rows, step.seal)

        steps |= {WriteSeal: write_seal, ClaimLeases: self._claim_leases}
        shard = carry_out(open_shard(setup), steps)
        assert shard is not None
        return shard

    def _claim_leases(self, _: ClaimLeases) -> list[LeaseRun]:
        if self.node.cache_fails():
            return []
        return self.cluster.leases.claim(self._cache_key, self.node.epoch, self.node.clock.wall())

    @property
    def _cache_key(self) -> str:
        return f"{self.key.queue_id}/{self.key.shard}"

    # Effects

    def turn(self) -> None:
        """Carry out what the shard wants now, then see when it wants to be woken."""
        self.turned, self.waking = True, False
        if self.closed:
            return
        for effect in self.shard.effects(self.node.now):
            self.node.maybe_crash(f"{_name(effect)}.before")
            self._begin(effect)
        self._set_alarm()

    def wake(self) -> None:
        """Have a turn soon; one serves all who ask for it."""
        if not self.waking:
            self.waking = True
            self.world.after(0, self.node.guarded(self.turn))

    def _set_alarm(self) -> None:
        at = self.shard.wake_at()
        self.wake_order += 1
        if at is not None:
            delay = self.node.world_delay(at)
            self.world.after(delay, self.node.guarded(self._alarm), self.wake_order)

    def _alarm(self, order: int) -> None:
        if order == self.wake_order and not self.closed:
            self.node.clock.look()
            self.shard.tick(self.node.now, self.node.offset, self.node.clock.doubted)
            self.turn()

    def _begin(self, effect: Effect) -> None:
        if type(effect) is Deliver:
            self._deliver(effect)
        elif type(effect) is Lost:
            self._lost(effect)
        elif type(effect) is Hungry:
            self._hungry(effect)
        elif type(effect) is Published:
            self._published(effect.ticket)
        elif type(effect) is Done or type(effect) is Confirm:
            self._done(effect)
        elif type(effect) is Remember:
            runs = self._lease_runs(effect.subscription, effect.runs)
            self._cache(lambda: self.cluster.leases.grant(self._cache_key, self.node.epoch, runs))
        elif type(effect) is Forget:
            receipts = list(effect.receipts)
            self._cache(
                lambda: self.cluster.leases.release(self._cache_key, self.node.epoch, receipts)
            )
        elif type(effect) is WriteNote and effect.holding:
            self._later(self._note, effect)
        elif isinstance(effect, Mark | Drop | DropPurges | WriteNote):
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

    def close(self) -> None:
        """Its queue was deleted: what is under way is answered no more."""
        self.closed = True
        self.node.flying = [item for item in self.node.flying if item[0] is not self]
        for carried, indexes in self.incoming:
            for index in indexes:
                carried.errors[index] = Unavailable("it is being deleted")
            carried.answered()

    def _land(self, effect: Effect) -> None:
        """A request arrives at the store."""
        if self.closed:
            return
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
        elif draw < 0.9 and isinstance(effect, Settle) and len(effect.rows) > 1:
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
            self.cluster.record_rows(self.label, self.key, effect.rows, self.purged_by(effect))
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

    def _note(self, write: WriteNote) -> None:
        """One that publishes and settles wait for: before or after any chore."""
        if self.closed:
            return
        self.cluster.tables.write_note(self.key, write.note)
        self.shard.noted(write)
        self.node.maybe_crash(f"{_name(write)}.after")
        self.turn()

    def _chore(self) -> None:
        if self.closed:
            return
        chore = self.chores.pop(0)
        if isinstance(chore, Mark):
            self.cluster.tables.mark_bucket(self.key, chore.bucket)
        elif isinstance(chore, WriteNote):
            self.cluster.tables.write_note(self.key, chore.note)
            self.shard.noted(chore)
        elif isinstance(chore, Drop):
            self.cluster.tables.drop(self.key, chore.key)
        else:
            self.cluster.tables.drop(self.key, CONTROL, chore.flushes)
        self.node.maybe_crash(f"{_name(chore)}.after")
        if self.chores:
            self._later(self._chore)

    def _transfer(self, effect: Transfer) -> None:
        """Publish to the other queue, on this node."""
        if self.closed:
            return
        runners = self.node.runners.get(effect.to)
        if runners is None:
            self.moved(effect, [NotFound("it is gone")] * len(effect.messages))
            return
        shares: dict[Runner, list[int]] = {}
        for index, message in enumerate(effect.messages):
            target = runners[shard_of(message, len(runners), self.world.rng.random)]
            shares.setdefault(target, []).append(index)
        carried = Carried(self, effect, len(shares))
        for target, indexes in shares.items():
            target.incoming.append((carried, indexes))
            messages = [effect.messages[index] for index in indexes]
            target.take(messages, None, (carried, indexes))

    def _published(self, ticket: PublishTicket) -> None:
        if isinstance(ticket.token, tuple):
            carried, indexes = ticket.token
            self._moved(carried, indexes, ticket)
        else:
            self.cluster.answer(self.node, ticket.token.answered, self, ticket)

    def _moved(self, carried: Carried, indexes: list[int], ticket: PublishTicket) -> None:
        for n, index in enumerate(indexes):
            carried.errors[index] = error = ticket.failed.get(n)
            place = ticket.duplicates.get(n, (4, ticket.seqs[n]))
            if error is None and place is not None:  # else it was told when it was stored
                entry, message = carried.effect.entries[index], carried.effect.messages[index]
                old, uid = carried.source.id(*entry.order), message.body.decode()
                self.cluster.record_moved(old, self.label, self.id(*place), uid, place[1])
        self.node.maybe_crash("transfer.after")
        self.incoming.remove((carried, indexes))
        carried.answered()

    def moved(self, effect: Transfer, errors: list[PushlaneError | None]) -> None:
        """The other queue has answered."""
        if not self.closed:
            self.cluster.refused(effect, errors)
            self.shard.transferred(effect, errors, self.node.now)
            self.turn()

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
        part: Part | None = subscription.token
        if part is not None:
            self.cluster.answer(self.node, part.fan.consumer.delivered, self, effect)
            if not effect.again:
                part.fan.delivered(part)

    def _record_grants(self, effect: Deliver) -> None:
        sub = effect.subscription
        for run in effect.runs:
            for index, message in enumerate(run.messages):
                self.world.record(
                    history.Grant(
                        self.world.now,
                        self.label,
                        self.id(run.lane, run.seq + index),
                        message.body.decode(),
                        label_of(sub.prefix),
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
        part: Part | None = effect.subscription.token
        if part is not None:
            self.cluster.answer(self.node, part.fan.consumer.told_lost, effect.receipts)
            part.fan.lost()

    def _hungry(self, effect: Hungry) -> None:
        part: Part | None = effect.subscription.token
        if part is not None:
            part.fan.hungry(part, effect.hungry)


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
        self.clock = Clock(lambda: self.world.wall / 1000, lambda: self.now / 1000)
        self.flying: list[tuple[Runner, Effect]] = []
        self.runners: dict[str, list[Runner]] = {}
        """By the name of a queue: its shards."""
        self.shares: dict[str, Shares] = {}
        """… and how they share its limits."""

    @property
    def every(self) -> list[Runner]:
        """Of all queues."""
        return [runner for runners in self.runners.values() for runner in runners]

    def open(self, queue: str) -> None:
        """Open all shards of a queue."""
        count = self.cluster.configs[queue].shards
        runners = self.runners[queue] = [Runner(self, queue, number) for number in range(count)]
        config, most = self.cluster.configs[queue], self.cluster.bounds.max_limit
        self.shares[queue] = Shares(config, most)
        for runner in runners:
            self.shares[queue].join(runner.key.shard, runner)
            runner.wake()

    def configure(self, queue: str) -> None:
        """Its configuration has changed."""
        config = self.cluster.configs[queue]
        for runner in self.runners.get(queue, ()):
            runner.shard.configure(config, self.cluster.dead_letters[queue])
            runner.wake()
        if queue in self.runners:
            self.shares[queue].configure(config)

    @property
    def now(self) -> int:
        """Its monotonic clock, which may drift."""
        return 1_000 + int((self.world.now - self.born) * self.rate)

    @property
    def wall(self) -> int:
        return self.clock.wall()

    @property
    def offset(self) -> int:
        return self.wall - self.now

    @property
    def moment(self) -> Moment:
        return Moment(self.now, self.offset, self.clock.doubted)

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
