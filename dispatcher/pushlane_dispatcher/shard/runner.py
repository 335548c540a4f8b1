"""A shard runner: what callers may ask of an open shard.

Everything but `publish` and `room` is a plain call: it changes the core on the spot, in the
caller's task, and the shard's own task (`Engine`) sees to the rest. Calls for a shard that has
stopped, or takes nothing more on, raise `Unavailable`: ask the dispatcher for it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence, Set

from pushlane.wire.errors import Throttled, Unavailable
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.context import Context
from pushlane_dispatcher.core.act import START, Act
from pushlane_dispatcher.core.bodies import Budget
from pushlane_dispatcher.core.effects import PublishTicket, Resumed, SettleTicket
from pushlane_dispatcher.core.explain import Explanation, Stats
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.looking import ConsumerInfo, Located, Stretch
from pushlane_dispatcher.core.overflow import Use
from pushlane_dispatcher.core.places import Claims, Places
from pushlane_dispatcher.core.retention import too_long
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.subscription import ANYBODY, Subscription
from pushlane_dispatcher.queues.route import mark_prefix
from pushlane_dispatcher.queues.transfers import Send
from pushlane_dispatcher.recording.notes import Notes
from pushlane_dispatcher.shard.engine import Engine
from pushlane_dispatcher.shard.sink import PublishAnswer, SettleAnswer, Sink
from pushlane_dispatcher.shard.stop import Stop
from pushlane_dispatcher.usage.counters import ShardCounters, Uncounted
from pushlane_dispatcher.waiter import Waiter
from pushlane_storage.bucket import ShardKey
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueConfig


class ShardRunner:
    def __init__(
        self,
        shard: Shard,
        context: Context,
        send: Send,
        counters: ShardCounters | Uncounted,
        notes: Notes | None = None,
    ) -> None:
        """`notes` are told what is asked and answered, where that is recorded."""
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
        """Finish what was accepted, then stop. Settles are taken until then."""
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
        idle = not self._shard.journal.pending_messages
        ticket = self._shard.publish(messages, now, lanes, answer)
        if self._notes is not None:
            self._notes.published(messages, ticket)
        if answer is not None:
            self._engine.tickets.add(ticket)
        if idle:
            self._engine.begin()
        else:
            self._engine.wake()
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

    def attach(
        self,
        sink: Sink,
        session: str,
        credit: int,
        *,
        lease_ms: int | None = None,
        explicit: bool = False,
        ack_none: bool = False,
        shared: bool = False,
        client: str = "",
        claims: Claims = (),
    ) -> Subscription:
        """Subscribe. Nothing is delivered before this returned.

        `shared`: its credit is a share of one for several shards (`SharedCredit`). `claims`: who
        asks; of all subscriptions of a shard they get their share.
        """
        self._now_if_open()
        subscription = Subscription(
            mark_prefix(self._context.prefix(), self._shard.key.shard),
            session,
            credit,
            self._shard.config.lease_ms if lease_ms is None else lease_ms,
            explicit=explicit,
            ack_none=ack_none,
            shared=shared,
            token=sink,
            client=client,
            claims=claims,
        )
        self._shard.attach(subscription)
        if self._notes is not None:
            self._notes.subscribed(subscription)
        self._engine.wake()
        return subscription

    def adopt(
        self, prefix: str, held: Iterable[ReceiptRun], sink: Sink, credit: int,
        *, lease_ms: int | None, explicit: bool, shared: bool = False, client: str = "",
        claims: Claims = (),
    ) -> tuple[Subscription, Resumed] | None:  # fmt: skip
        """Resume a subscription that only the lease cache remembered, as `attach` had it.

        None: nobody knows it.
        """
        self._now_if_open()
        found = self.subscription(prefix)
        if found is None or found.token is not None:
            return None
        found.explicit, found.shared, found.client = explicit, shared, client
        if lease_ms is not None:
            found.lease_ms = lease_ms
        resumed = self.resume(found, held, sink)
        self._shard.claim(found, claims)
        self.credit(found, credit)
        if self._notes is not None:
            self._notes.subscribed(found)
        return found, resumed

    def subscription(self, prefix: str) -> Subscription | None:
        """Whose receipts begin like this: attached here, or known to the lease cache."""
        return self._shard.consumers.subscriptions.get(prefix)

    def detach(self, subscription: Subscription, resume_ms: int) -> None:
        """Its connection is lost; it may resume for a while."""
        now = self._now_if_alive()
        self._shard.detach(subscription, resume_ms, now)
        if self._notes is not None:
            self._notes.detached(subscription)
        self._engine.wake()

    def resume(self, subscription: Subscription, held: Iterable[ReceiptRun], sink: Sink) -> Resumed:
        """It is back, on another connection."""
        now = self._now_if_open()
        subscription.token = sink
        resumed = self._shard.resume(subscription, held, now)
        if self._notes is not None:
            self._notes.resumed(subscription)
        self._engine.wake()
        return resumed

    def unsubscribe(self, subscription: Subscription) -> None:
        """It gets nothing more; what it has leased stays its own."""
        now = self._now_if_alive()
        self._shard.unsubscribe(subscription, now)
        if self._notes is not None:
            self._notes.unsubscribed(subscription)
        self._engine.wake()

    def end(self, subscription: Subscription) -> None:
        """Its session closed in good order: everything goes back at once."""
        now = self._now_if_alive()
        self._shard.end(subscription, now)
        if self._notes is not None:
            self._notes.unsubscribed(subscription)
        self._engine.wake()

    def credit(self, subscription: Subscription, credit: int) -> None:
        self._now_if_alive()
        self._shard.credit(subscription, credit)
        if self._notes is not None:
            self._notes.credited(subscription, credit)
        self._engine.wake()

    def settle(
        self, subscription: Subscription, generation: int, act: Act,
        receipts: Sequence[ReceiptRun], answer: SettleAnswer | None = None,
    ) -> SettleTicket:  # fmt: skip
        """`generation` is what the last attach or resume was told. `ticket.lost` is complete when
        this returns.

        `BadRequest` when a delay is longer than the queue keeps messages: nothing changes.
        """
        if act.delay_ms:
            refusal = too_long(act.delay_ms, self._shard.config.retention_ms)
            if refusal is not None:
                raise refusal
        ticket, now = self._ticket(answer)
        self._shard.settle(subscription, generation, act, receipts, ticket, now)
        if self._notes is not None:
            self._notes.asked(act, receipts, subscription, ticket)
        return ticket

    def settle_loose(
        self, prefix: str, act: Act, receipts: Sequence[ReceiptRun],
        answer: SettleAnswer | None = None,
    ) -> SettleTicket:  # fmt: skip
        """The same for whoever has receipts with this prefix, where nobody holds them."""
        found = self.subscription(prefix)
        if found is not None:
            if found.brief and not found.closed:  # who has a receipt has the answer
                self.settle(found, ANYBODY, START, receipts)
            return self.settle(found, ANYBODY, act, receipts, answer)
        ticket, now = self._ticket(answer)
        self._shard.settle_lost(prefix, receipts, ticket, now)
        return ticket

    def knows(self, prefix: str) -> bool:
        """Whether receipts that begin like this are, or were, from here."""
        return self._shard.consumers.knows(prefix, self._now())

    # Managing

    def purge(self, answer: SettleAnswer | None = None) -> SettleTicket:
        """Everything goes that is stored and not in flight."""
        self._now_if_open()
        self._allow("purged")
        ticket, now = self._ticket(answer)
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
        self._engine.tickets.add(ticket)
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

    def _ticket(self, answer: SettleAnswer | None) -> tuple[SettleTicket, int]:
        now = self._now_if_alive()
        ticket = SettleTicket(answer, silent=answer is None)
        if answer is not None:
            self._engine.tickets.add(ticket)
        self._engine.wake()
        return ticket, now
