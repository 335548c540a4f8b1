"""A shard runner: what callers may ask of an open shard.

Callers know a `ShardPort` only, which may also be a shard far away: what they publish and consume
is answered by callback, everything else by `ask`, with values only. The rest is for who serves the
shard. Most are plain calls that change the core on the spot, in the caller's task, and the shard's
own task (`Engine`) sees to the rest. They raise `Unavailable` once the shard has stopped, or takes
nothing more on: ask the dispatcher for it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence, Set
from typing import Any, TypeVar

from pushlane.wire.errors import Conflict, NotFound, PushlaneError, Throttled, Unavailable
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.browsing.answers import answer_look
from pushlane_dispatcher.browsing.question import Look, Question
from pushlane_dispatcher.context import Context
from pushlane_dispatcher.core.act import START, Act
from pushlane_dispatcher.core.bodies import Budget
from pushlane_dispatcher.core.effects import PublishTicket, SettleTicket
from pushlane_dispatcher.core.explain import Explanation, Stats
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.looking import ConsumerInfo, Located, Stretch
from pushlane_dispatcher.core.overflow import Use
from pushlane_dispatcher.core.places import Claims, Places
from pushlane_dispatcher.core.retention import too_long
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.snapshot import Snapshot
from pushlane_dispatcher.core.subscription import ANYBODY, Subscription
from pushlane_dispatcher.queues.route import mark_prefix
from pushlane_dispatcher.queues.transfers import Send
from pushlane_dispatcher.recording.notes import Notes
from pushlane_dispatcher.shard.engine import Engine
from pushlane_dispatcher.shard.orders import Flush, Orders
from pushlane_dispatcher.shard.shares import Shares
from pushlane_dispatcher.shard.sink import (
    Attach,
    AttachAnswer,
    Attached,
    CreditAnswer,
    PublishAnswer,
    ResumeAnswer,
    SettleAnswer,
    Sink,
)
from pushlane_dispatcher.shard.stop import Stop
from pushlane_dispatcher.usage.counters import ShardCounters, Uncounted
from pushlane_dispatcher.waiter import Waiter
from pushlane_storage.bucket import ShardKey
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueConfig

A = TypeVar("A")

MOVED_RETRY_MS = 100


class ShardRunner:
    def __init__(
        self,
        shard: Shard,
        context: Context,
        send: Send,
        counters: ShardCounters | Uncounted,
        flush: Flush,
        notes: Notes | None = None,
    ) -> None:
        """`flush` writes the counters; `notes` are told what is asked and answered, where that is
        recorded."""
        self._shard = shard
        self.key: ShardKey = shard.key
        self._notes = notes
        self._context = context
        shard.verdicts.endings = context.endings
        shard.consumers.settled = context.settled
        self._now = context.clock.now
        self._engine = Engine(shard, context, send, counters, notes)
        shard.window.bodies.join(context.budget)
        most = context.settings.waiting_publishers
        self._orders = Orders(self, context, flush)
        self.shares: Shares | None = None
        """Deal out what it may hold, where that changes."""
        self._waiting = Places("waiting_publishers", most, "publishers waiting for this queue")
        self.used_at = self._now()
        """Monotonic: when somebody last asked something of it."""

    @property
    def epoch(self) -> int:
        return self._shard.epoch

    @property
    def counters(self) -> ShardCounters | Uncounted:
        return self._engine.counters

    @property
    def running(self) -> bool:
        """It takes on work."""
        return self._engine.stopped_by is None and self._engine.closing is None

    @property
    def stopped_by(self) -> Stop | None:
        return self._engine.stopped_by

    @property
    def snapshot(self) -> Snapshot | None:
        """Of one that has moved: for its next owner."""
        return self._engine.snapshot

    @property
    def clock_suspect(self) -> bool:
        """Nothing of its predecessors ends for its age."""
        return self._shard.clock_suspect

    @property
    def idle(self) -> bool:
        return self._engine.idle

    @property
    def unused(self) -> bool:
        return self._engine.unused

    @property
    def tenures(self) -> int:
        """How many owners, this one included, stored what has not ended yet."""
        lanes = self._shard.window.order
        return len({bucket.key.epoch for lane in lanes for bucket in lane.buckets})

    def run(self) -> Awaitable[Stop]:
        """The shard's task; `stopped_by` once it is over."""
        return self._engine.run()

    async def close(self, reason: Stop = Stop.CLOSED) -> None:
        """Finish what was accepted, then stop. Settles are taken until then, unless it moves: who
        sends them again finds its next owner."""
        await self._engine.close(reason)

    def stop(self, reason: Stop) -> None:
        """Here and now."""
        self._engine.stop(reason)

    def leave_budget(self) -> None:
        """It is over: what it has in memory goes."""
        self._shard.window.bodies.join(Budget())

    def wake_if_in(self, refused: Set[object]) -> None:
        """Have it look whether it can go on, when its window is one of these."""
        if self._shard.window.bodies in refused:
            self._engine.wake()

    def wake(self) -> None:
        """Have it look whether it can go on."""
        self._engine.wake()

    def catch_up(self) -> bool:
        """Have the lease cache told what it missed. False: it missed nothing."""
        return self._engine.catch_up()

    # Publishing

    @property
    def congested(self) -> bool:
        """Publishers should wait for `room`."""
        return bool(self._engine.waiting_publishers.lot) or self._shard.journal.congested

    async def publish(
        self, messages: list[Message], lanes: Sequence[int] | None = None
    ) -> PublishTicket:
        """Store messages; the ticket says what became of each. Waits for room first."""
        if self.congested:
            await self.room()
        waiter: Waiter[PublishTicket] = Waiter()
        self.publish_soon(messages, waiter, lanes)
        return await waiter.wait()

    def publish_soon(
        self,
        messages: list[Message],
        answer: PublishAnswer | None = None,
        lanes: Sequence[int] | None = None,
    ) -> PublishTicket:
        """The same without waiting. Past the core's bounds messages are `throttled`."""
        now = self._now_if_open()
        shares = self.shares
        if shares is not None:
            shares.before(self.key.shard, messages)
        idle = not self._shard.journal.pending_messages
        ticket = self._shard.publish(messages, now, lanes, answer)
        if self._notes is not None:
            self._notes.published(messages, ticket)
        if answer is not None:
            self._engine.tickets[ticket] = None
        if idle:
            self._engine.begin()
        else:
            self._engine.wake()
        if shares is not None:
            shares.after()
        return ticket

    async def room(self, claims: Claims = ()) -> None:
        """Wait while too much waits to be stored, first come first served.

        Of those who wait, each caller may be a share.
        """
        self._now_if_open()
        if not self.congested:
            return
        publishers, settings = self._engine.waiting_publishers, self._context.settings
        refusal = self._waiting.refusal(claims)
        if refusal is not None:
            raise refusal
        self._waiting.take(claims)
        try:
            called = await publishers.wait(settings.room_ms / 1000)
        finally:
            self._waiting.give_back(claims)
        self._engine.wake()
        if not called:
            raise Throttled(
                "the store is slower than this queue's publishers", retry_ms=1_000, limit="room_ms"
            )

    # Consuming

    def attach(self, sink: Sink, wish: Attach, answer: AttachAnswer) -> None:
        """Subscribe, or go on with what only the lease cache remembered."""
        try:
            self._now_if_open()
            attached = self._adopt(sink, wish) or self._attach(sink, wish)
        except PushlaneError as error:
            answer(None, error)
        else:
            answer(attached, None)

    def _attach(self, sink: Sink, wish: Attach) -> Attached:
        subscription = Subscription(
            mark_prefix(self._context.prefix(), self._shard.key.shard),
            wish.session,
            max(1, wish.credit),
            self._shard.config.lease_ms if wish.lease_ms is None else wish.lease_ms,
            explicit=wish.explicit,
            ack_none=wish.ack_none,
            shared=wish.shared,
            token=sink,
            client=wish.client,
            claims=wish.claims,
        )
        subscription.term = wish.term
        self._shard.attach(subscription)
        if subscription.credit != wish.credit:  # nothing is granted inside these calls
            self._shard.credit(subscription, wish.credit)
        if self._notes is not None:
            self._notes.subscribed(subscription)
        self._engine.wake()
        lease_ms = subscription.lease_ms
        return Attached(subscription.prefix, subscription.generation, lease_ms, wish.held)

    def _adopt(self, sink: Sink, wish: Attach) -> Attached | None:
        """None: nobody knows it, or somebody else has it.

        Who has it may not know yet that the way to its gateway is lost.
        """
        found = self._subscriptions.get(wish.prefix)
        if found is None or (found.token is not None and found.session != wish.session):
            return None
        if wish.term < found.term:
            raise Conflict("the session goes on at another server")
        found.term = wish.term
        found.explicit, found.shared, found.client = wish.explicit, wish.shared, wish.client
        if wish.lease_ms is not None:
            found.lease_ms = wish.lease_ms
        had = list(found.held)
        generation, lost = self._shard.adopt(found, wish.held, self._now())
        if self._notes is not None:
            self._notes.recalled(found, [n for n in had if n not in found.held])
        self._is_back(found, sink)
        self._shard.claim(found, wish.claims)
        self._shard.credit(found, wish.credit)
        if self._notes is not None:
            self._notes.credited(found, wish.credit)
            self._notes.subscribed(found)
        _tell(found)
        return Attached(found.prefix, generation, found.lease_ms, lost)

    def resume(
        self, prefix: str, held: Iterable[ReceiptRun], sink: Sink, answer: ResumeAnswer
    ) -> None:
        """Its client is back, on another connection: from now on `sink` has it."""
        found = self._subscriptions.get(prefix)
        try:
            self._now_if_alive()
            if found is None:
                raise NotFound("nobody knows this subscription any more")
        except PushlaneError as error:
            answer(0, [], error)
            return
        generation, lost = self._shard.resume(found, held)
        self._is_back(found, sink)
        _tell(found)
        answer(generation, lost, None)

    def _is_back(self, found: Subscription, sink: Sink) -> None:
        found.token = sink
        if self._notes is not None:
            self._notes.resumed(found)
        self._engine.wake()

    def detach(self, prefix: str, sink: Sink, resume_ms: int) -> None:
        """Its connection is lost; it may resume for a while."""
        found = self._held_by(prefix, sink)
        if found is not None:
            self._shard.detach(found, resume_ms, self._now())
            if self._notes is not None:
                self._notes.detached(found)

    def cut_off(self, prefix: str, sink: Sink, resume_ms: int) -> None:
        """The way to its gateway is lost: that is no fault of what it has. It may come back.

        A request does not come back: what its client has got stays leased, the rest goes back.
        """
        found = self._held_by(prefix, sink)
        if found is None:
            return
        if found.brief:
            self.unsubscribe(prefix, sink)
            return
        self._shard.detach(found, resume_ms, self._now(), broken=False)
        found.token = None
        if self._notes is not None:
            self._notes.detached(found)

    def unsubscribe(self, prefix: str, sink: Sink) -> None:
        """It gets nothing more; what it has leased stays its own."""
        found = self._held_by(prefix, sink)
        if found is not None:
            self._shard.unsubscribe(found, self._now())
            if self._notes is not None:
                self._notes.unsubscribed(found)
            _tell(found)

    def end(self, prefix: str, sink: Sink) -> None:
        """Its session closed in good order: everything goes back at once."""
        found = self._held_by(prefix, sink)
        if found is not None:
            self._shard.end(found, self._now())
            if self._notes is not None:
                self._notes.unsubscribed(found)

    def credit(
        self, prefix: str, sink: Sink, credit: int, answer: CreditAnswer | None = None
    ) -> None:
        """Answers once the shard goes by it, after it has said what is held."""
        found = self._held_by(prefix, sink)
        if found is not None:
            self._shard.credit(found, credit)
            if self._notes is not None:
                self._notes.credited(found, credit)
            _tell(found)
            if answer is not None:
                answer()

    def _held_by(self, prefix: str, sink: Sink) -> Subscription | None:
        """None: it is over, somebody else has it by now, or the shard has stopped."""
        found = self._subscriptions.get(prefix)
        if found is None or found.token is not sink or self._engine.stopped_by is not None:
            return None
        self.used_at = self._now()
        self._engine.wake()
        return found

    @property
    def _subscriptions(self) -> dict[str, Subscription]:
        return self._shard.consumers.subscriptions

    def settle(
        self, prefix: str, generation: int, act: Act, receipts: Sequence[ReceiptRun],
        answer: SettleAnswer, *, silently: bool = False,
    ) -> None:  # fmt: skip
        """`generation` is what the last attach or resume was told; `ANYBODY`: who has receipts
        that nobody else holds.

        Answers when it is durable; `silently`: as soon as it is known what is lost.
        """
        try:
            if act.delay_ms:
                self._check_delay(act.delay_ms)
            now = self._now_if_alive()
            if self._engine.closing is Stop.MOVED and act.verb != "start":  # that waits for nothing
                raise Unavailable(Stop.MOVED.value, retry_ms=MOVED_RETRY_MS)
        except PushlaneError as error:
            answer(SettleTicket(), error)
            return
        ticket = self._ticket(None if silently else answer)
        found = self._shard.consumers.subscriptions.get(prefix)
        if found is None:
            self._shard.settle_lost(prefix, receipts, ticket, now)
        else:
            if found.brief and not found.closed and act.verb != "start":
                self._start(found, receipts, now)
            self._shard.settle(found, generation, act, receipts, ticket, now)
            if self._notes is not None:
                self._notes.asked(act, receipts, found, ticket)
            _tell(found)
        if silently:
            answer(ticket, None)

    def _start(self, found: Subscription, receipts: Sequence[ReceiptRun], now: int) -> None:
        """Of a request that is not over yet: who has a receipt has the answer."""
        ticket = SettleTicket(silent=True)
        self._shard.settle(found, ANYBODY, START, receipts, ticket, now)
        if self._notes is not None:
            self._notes.asked(START, receipts, found, ticket)

    def _check_delay(self, delay_ms: int) -> None:
        refusal = too_long(delay_ms, self._shard.config.retention_ms)
        if refusal is not None:
            raise refusal

    # Managing

    async def ask(self, question: Question[A]) -> A:
        """What is not asked so often that it must be a plain call."""
        found: Any
        if isinstance(question, Look):
            found = await answer_look(self._context.store, self, question)
        else:
            found = await self._orders.carry_out(question)
        answer: A = found
        return answer

    def purge(self, answer: SettleAnswer | None = None) -> SettleTicket:
        """Everything goes that is stored and not in flight."""
        now = self._now_if_open()
        self._allow("purged")
        ticket = self._ticket(answer)
        self._shard.purge(ticket, now)
        return ticket

    def redrive(self, lane: int, targets: Mapping[int, str]) -> int:
        """Send messages that wait to other queues, by seq; how many are on their way."""
        now = self._now_if_open()
        self._allow("redriven")
        sent = self._shard.redrive(lane, targets, now)
        self._engine.wake()
        return sent

    @property
    def may_leave(self) -> int:
        """How many more may be on their way out at once."""
        return self._shard.departures.room

    @property
    def leaving(self) -> int:
        """Messages on their way to other queues."""
        return self._shard.life.counts[State.LEAVING]

    def cancel(self, lane: int, seq: int, not_before: int, answer: SettleAnswer) -> None:
        """End a delayed message; `NotFound` or `Conflict` when there is none to end."""
        now = self._now_if_open()
        self._allow("purged")
        ticket = SettleTicket(answer)
        self._shard.cancel(lane, seq, not_before, ticket, now)
        self._engine.tickets[ticket] = None
        self._engine.wake()

    def configure(self, config: QueueConfig, dead_letter: str | None) -> None:
        if self.running:
            self._shard.configure(config, dead_letter)
            if self._notes is not None:
                self._notes.configured()
            self._engine.wake()

    def _allow(self, what: str) -> None:
        if self._notes is not None:
            self._notes.allow(what)

    @property
    def oldest_at(self) -> int | None:
        """When the message was published that waits longest, of those in memory."""
        return self._shard.window.oldest_at()

    @property
    def lag_ms(self) -> int:
        """How far what is stored is behind what it knows."""
        return self._engine.lag_ms

    def window_numbers(self) -> dict[str, int]:
        return self._shard.window.numbers()

    @property
    def use(self) -> Use:
        """What it holds, or is about to, of the queue's limits."""
        return self._shard.overflow.use

    def allot(self, messages: int, size: int | None) -> None:
        """Its share of the queue's `max_messages` and `max_bytes`."""
        if self.running and self._shard.allot(messages, size, self._now()):
            self._engine.wake()

    def explain(self, lane: int, seq: int, message: Message | None = None) -> Explanation:
        """`message` is the stored one, where somebody has read it."""
        return self._shard.explain(lane, seq, self._now_to_look(), message)

    def stats(self) -> Stats:
        self._now_to_look()
        return self._shard.stats()

    # Looking

    @property
    def name(self) -> str:
        """Its queue's."""
        return self._shard.name

    @property
    def config(self) -> QueueConfig:
        return self._shard.config

    @property
    def lanes(self) -> list[tuple[int, int]]:
        """The numbers of its lanes, the highest first, and the seq behind each one's last."""
        self._now_to_look()
        return [(lane.number, lane.stored) for lane in self._shard.window.order]

    def stretch(self, lane: int, start: int) -> Stretch | None:
        """The next unsettled messages of a lane from a seq on."""
        self._now_to_look()
        return self._shard.stretch(lane, start)

    def in_line(self, lane: int, seq: int, not_before: int) -> int | None:
        """How often a message was started that waits for a consumer; None: it does not."""
        return self._shard.in_line(lane, seq, not_before, self._now_to_look())

    def locate(self, lane: int, seq: int) -> Located | None:
        self._now_to_look()
        return self._shard.locate(lane, seq)

    def consumers(self) -> list[ConsumerInfo]:
        self._now_to_look()
        return self._shard.roster()

    # Whether it is there at all

    def _now_if_open(self) -> int:
        """The time, for work that is new."""
        reason = self._engine.closing or self._engine.stopped_by
        if reason is not None:
            raise Unavailable(reason.value, retry_ms=1_000)
        self.used_at = self._now()
        return self.used_at

    def _now_if_alive(self) -> int:
        """The time, for work that belongs to what was begun."""
        if self._engine.stopped_by is not None:
            raise Unavailable(self._engine.stopped_by.value, retry_ms=1_000)
        self.used_at = self._now()
        return self.used_at

    def _now_to_look(self) -> int:
        """The time, for who only looks: that keeps nothing open."""
        if self._engine.stopped_by is not None:
            raise Unavailable(self._engine.stopped_by.value, retry_ms=1_000)
        return self._now()

    def _ticket(self, answer: SettleAnswer | None) -> SettleTicket:
        ticket = SettleTicket(answer, silent=answer is None)
        if answer is not None:
            self._engine.tickets[ticket] = None
        self._engine.wake()
        return ticket


def _tell(subscription: Subscription) -> None:
    """Its holder, what it holds."""
    sink: Sink | None = subscription.token
    if sink is not None:
        waiting = subscription.waiting if subscription.penalties else 0
        sink.holds(len(subscription.held) + subscription.untold, waiting)
