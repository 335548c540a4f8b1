"""The core against a model server, over a network that delays, and breaks at any point.

It lets WebSockets through or not as it pleases: the client changes its transport again and again.

Whatever happens: every request is answered exactly once; a queue's messages are stored once each
and in the order of the calls; a repeat carries the number of the first; an ack that was confirmed
counted, and one that was not is never confirmed; nobody works on a message without a lease, and
nobody's message is kept for them once they were cancelled; and at the end nothing is left over.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Raw

from pushlane.core import effects as fx
from pushlane.core.client import ClientCore
from pushlane.core.lease import Lease, Phase
from pushlane.core.settings import Settings
from pushlane.core.settle import ACK, Key
from pushlane.core.subscription import Subscription
from pushlane.wire import JSON, Limits, frames
from pushlane.wire.errors import BadRequest, LeaseLost, PushlaneError, Throttled, Unavailable
from tests.sdk.model_server import Connection, ModelServer

LIMITS = Limits(batch=3, unanswered=8, credit=10, frame_bytes=65_536, message_bytes=1024)
SETTINGS = Settings(
    settle_reserve=2,
    producer_window=5,
    waiting_messages=8,
    retry_ms=5_000,
    connect_ms=10**7,
    probe_base_ms=100,
    probe_max_ms=1_000,
)
QUEUES = ("a", "b")


class ClientMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.random = random.Random(1)
        self.server = ModelServer(LIMITS)
        self.core = ClientCore(
            producer="p", random=self.random.random, settings=SETTINGS, transport="auto"
        )
        self.to_server: deque[bytes] = deque()
        self.connection: Connection | None = None
        self.link = 0
        self.dialing: int | None = None
        self.transport = ""
        self.probing: int | None = None
        self.outcomes: dict[str, Any] = {}
        self.waiting: set[str] = set()
        self.calls = 0
        self.numbers: dict[str, tuple[str, int]] = {}
        self.newest = dict.fromkeys(QUEUES, 0)
        self.refused = False
        self.subscriptions: list[Subscription] = []
        self.taken: list[Lease] = []
        self.acks: dict[str, Lease] = {}
        self.kept: set[Lease] = set()
        self.lost: set[Lease] = set()
        self.ended: set[Subscription] = set()
        self.core.start(self.now, self._ticket("start"))
        self._drain()

    # Tools

    def _ticket(self, kind: str) -> str:
        self.calls += 1
        ticket = f"{kind}{self.calls}"
        self.waiting.add(ticket)
        return ticket

    def _drain(self) -> None:
        effects = self.core.effects.copy()
        self.core.effects.clear()
        for effect in effects:
            match effect:
                case fx.Dial():
                    self.dialing = effect.link
                    self.transport = effect.transport
                case fx.Probe():
                    assert self.core.state == "polling"
                    self.probing = effect.link
                case fx.Send():
                    assert effect.link == self.link
                    self._sent(JSON.decode_client(effect.data))
                    self.to_server.append(effect.data)
                case fx.Hangup():
                    self._cut(effect.link)
                case fx.Resolve():
                    self._answered(effect.ticket, effect.value)
                case fx.Reject():
                    self._answered(effect.ticket, effect.error)
                case fx.Lost():
                    assert effect.lease in self.taken
                    assert effect.lease not in self.lost, "lost twice"
                    self.lost.add(effect.lease)
                case fx.Ended():
                    assert effect.subscription not in self.ended, "ended twice"
                    self.ended.add(effect.subscription)
                case _:
                    pass

    def _answered(self, ticket: str, value: Any) -> None:
        assert ticket in self.waiting, f"{ticket} was answered twice"
        self.waiting.remove(ticket)
        self.outcomes[ticket] = value
        if ticket.startswith("ack") and not isinstance(value, PushlaneError):
            stored = self._stored(self.acks[ticket])
            assert stored.settled == "ack", "an ack was confirmed that never counted"

    def _stored(self, lease: Lease) -> Any:
        messages = [m for queue in self.server.queues.values() for m in queue]
        return next(m for m in messages if m.id == lease.message.id)

    def _sent(self, frame: frames.ClientFrame) -> None:
        if isinstance(frame, frames.Hello):
            self.newest = dict.fromkeys(QUEUES, 0)
        if not isinstance(frame, frames.Publish):
            return
        assert len(frame.messages) <= LIMITS.batch
        for message in frame.messages:
            assert message.seq is not None
            body = bytes(message.body).decode()  # type: ignore[arg-type]
            assert self.numbers.setdefault(body, (frame.to, message.seq)) == (frame.to, message.seq)
            if not self.refused:
                assert message.seq > self.newest[frame.to], "sent out of order"
            self.newest[frame.to] = message.seq

    def _cut(self, link: int) -> None:
        if self.dialing == link:
            self.dialing = None
        if link == self.link:
            self.to_server.clear()
            if self.connection is not None and self.connection.session is not None:
                session = self.connection.session
                if session.connection is self.connection:
                    session.connection = None
            self.connection = None

    # What users do

    @rule(queue=st.sampled_from(QUEUES), count=st.integers(1, 6))
    def publish(self, queue: str, count: int) -> None:
        for _ in range(count):
            if self.core.state != "closed" and self.core.producer.has_room():
                ticket = self._ticket("publish")
                message = frames.PublishMessage(body=Raw(f'"{ticket}"'.encode()))
                self.core.publish(queue, message, ticket, self.now)
        self._drain()

    @rule(queue=st.sampled_from(QUEUES), credit=st.integers(1, 5))
    def subscribe(self, queue: str, credit: int) -> None:
        if len(self.subscriptions) < 4:
            ticket = self._ticket("subscribe")
            self.subscriptions.append(self.core.subscribe(queue, credit, "explicit", None, ticket))
            self._drain()

    @precondition(lambda self: self.subscriptions)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        subscription = data.draw(st.sampled_from(self.subscriptions))
        self.core.unsubscribe(subscription, self._ticket("unsubscribe"))
        self._drain()

    @rule(count=st.integers(1, 5), kept=st.booleans())
    def take(self, count: int, kept: bool) -> None:
        for subscription in self.subscriptions:
            for _ in range(count):
                lease = self.core.take(subscription, self.now)
                if lease is None:
                    break
                assert lease not in self.taken, "handed out twice"
                assert lease.message.receipt in subscription.held
                self.taken.append(lease)
                if kept:
                    self.core.keep(lease, self.now)
                    self.kept.add(lease)
        self.core.flush(self.now)
        self._drain()

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), what=st.sampled_from(["ack", "ack", "ack", "nack", "dead", "extend"]))
    def settle(self, data: st.DataObject, what: str) -> None:
        fresh = [lease for lease in self.taken if lease.phase is Phase.STARTED]
        lease = data.draw(st.sampled_from(fresh or self.taken))
        ticket = self._ticket(what)
        key = {
            "ack": ACK,
            "nack": Key("nack", delay_ms=0),
            "dead": Key("nack", dead=True),
            "extend": Key("extend", lease_ms=10_000),
        }[what]
        if what == "ack":
            self.acks[ticket] = lease
        if what != "extend":
            self.core.release(lease)
            self.kept.discard(lease)
        self.core.settle(lease, key, ticket)
        self._drain()
        if lease in self.lost:
            assert isinstance(self.outcomes[ticket], LeaseLost)
        if data.draw(st.booleans()):
            self.flush()

    @precondition(lambda self: self.subscriptions)
    @rule(data=st.data())
    def cancel_consumer(self, data: st.DataObject) -> None:
        """As a shell does: no more messages, and what was begun goes back."""
        subscription = data.draw(st.sampled_from(self.subscriptions))
        self.core.unsubscribe(subscription)
        for lease in self.taken:
            if lease.subscription is subscription:
                self.core.release(lease)
                self.kept.discard(lease)
                if lease.phase is Phase.STARTED:
                    self.core.settle(lease, Key("nack", delay_ms=0))
        self._drain()
        if data.draw(st.booleans()):
            self.flush()

    @precondition(lambda self: any(name.startswith("publish") for name in self.waiting))
    @rule(data=st.data(), queue=st.sampled_from(QUEUES))
    def cancel_publish(self, data: st.DataObject, queue: str) -> None:
        waiting = sorted(name for name in self.waiting if name.startswith("publish"))
        ticket = data.draw(st.sampled_from(waiting))
        if self.core.producer.withdraw(queue, ticket):
            assert ticket not in self.numbers, "it was sent"
            self.waiting.remove(ticket)

    @rule()
    def flush(self) -> None:
        self.core.flush(self.now)
        self._drain()

    # What the network does

    @precondition(lambda self: self.dialing is not None)
    @rule(succeeds=st.sampled_from([True, True, True, False]))
    def dial(self, succeeds: bool) -> None:
        link, self.dialing = self.dialing, None
        assert link is not None
        if succeeds or not self.server.sessions:
            self.link = link
            self.connection = Connection()
            self.core.connected(link, None, self.now)
        else:
            self.core.lost(link, self.now)
        self._drain()

    @precondition(lambda self: self.dialing is not None and self.transport == "ws")
    @rule(status=st.sampled_from([0, 400, 502]))
    def refuse_upgrade(self, status: int) -> None:
        link, self.dialing = self.dialing, None
        assert link is not None
        self.core.lost(link, self.now, refused=status)
        self._drain()

    @precondition(lambda self: self.probing is not None)
    @rule(is_good=st.booleans())
    def probe(self, is_good: bool) -> None:
        link, self.probing = self.probing, None
        assert link is not None
        self.core.probed(link, self.now, is_good=is_good)
        self._drain()

    @rule()
    def change(self) -> None:
        """No more WebSockets from now on, or there are some again."""
        if self.core.state == "polling":
            self.wait(1_000)
            if self.probing is not None:
                self.probe(True)
        elif self.core.state == "open":
            self.cut(0, 1006)
            while self.transport == "ws":
                while self.dialing is None:
                    self.wait(100)
                self.refuse_upgrade(400)

    @rule(count=st.integers(1, 10))
    def reach_server(self, count: int) -> None:
        for _ in range(count):
            if self.to_server and self.connection is not None:
                self.server.receive(self.connection, self.to_server.popleft())

    @rule(count=st.integers(1, 10), swap=st.booleans())
    def reach_client(self, count: int, swap: bool) -> None:
        connection = self.connection
        if connection is None or not connection.outbox:
            return
        if swap:  # answers may come in any order
            self._swap_answers(connection.outbox)
        data = [JSON.encode(connection.outbox.popleft()) for _ in range(count) if connection.outbox]
        self.core.received(self.link, data, self.now)
        self._drain()

    def _swap_answers(self, outbox: deque[frames.ServerFrame]) -> None:
        published = [i for i, frame in enumerate(outbox) if isinstance(frame, frames.Published)]
        for first, second in zip(published[::2], published[1::2], strict=False):
            outbox[first], outbox[second] = outbox[second], outbox[first]

    @precondition(lambda self: self.connection is not None)
    @rule(arrives=st.integers(0, 3), code=st.sampled_from([1006, 1001, 1011, 4002]))
    def cut(self, arrives: int, code: int) -> None:
        self.flush()
        self.reach_server(arrives)
        link = self.link
        self._cut(link)
        self.core.lost(link, self.now, code=code)
        self.core.lost(link, self.now, code=code)  # a shell may say it twice
        self._drain()

    @rule(ms=st.sampled_from([1, 100, 1_000, 4_000]))
    def wait(self, ms: int) -> None:
        self.now += ms
        self.core.tick(self.now)
        self._drain()

    @rule(rounds=st.integers(1, 3))
    def all_is_well(self, rounds: int) -> None:
        for _ in range(rounds):
            if self.dialing is not None:
                self.dial(True)
            self.core.flush(self.now)
            self._drain()
            self.reach_server(100)
            self.reach_client(100, False)

    @rule(count=st.integers(1, 5))
    def work(self, count: int) -> None:
        for queue in QUEUES:
            self.publish(queue, count)
            self.subscribe(queue, count)
        self.all_is_well(3)
        self.take(count, True)

    # What the server does

    @rule()
    def forget_session(self) -> None:
        away = [name for name, s in self.server.sessions.items() if s.connection is None]
        for name in away:
            self.server.forget(name)

    @rule(error=st.sampled_from([Throttled("slow", 50), Unavailable("later")]))
    def refuse(self, error: PushlaneError) -> None:
        self.server.refuse.append(error)
        self.refused = True

    @rule(error=st.sampled_from([Throttled("slow", 50), Unavailable("later"), BadRequest("no")]))
    def refuse_settle(self, error: PushlaneError) -> None:
        self.server.refuse_settles.append(error)

    @rule()
    def lose_leases(self) -> None:
        for session in self.server.sessions.values():
            for sub in session.subs.values():
                if sub.held and session.connection is not None:
                    self.server.lose(sub, [next(iter(sub.held))])

    @rule()
    def goaway(self) -> None:
        if self.connection is not None and self.connection.session is not None:
            self.connection.outbox.append(frames.Goaway("drain", 50))

    # What must always hold

    @invariant()
    def bounds_hold(self) -> None:
        producer = self.core.producer
        assert producer.waiting <= SETTINGS.waiting_messages
        for outbox in producer.outboxes.values():
            if outbox.unanswered:
                span = outbox.next_seq - next(iter(outbox.unanswered))
                assert span <= SETTINGS.producer_window
        assert producer.waiting == sum(len(box.waiting) for box in producer.outboxes.values())

    @invariant()
    def running_leases_are_ours(self) -> None:
        for lease in self.core.consumer.clocks.running:
            assert lease.phase is Phase.STARTED
            assert not lease.lost

    @invariant()
    def only_what_somebody_works_on_is_kept(self) -> None:
        kept = {le for le in self.core.consumer.clocks.running if le.kept_until is not None}
        assert kept <= self.kept

    @invariant()
    def each_message_is_stored_once_in_order(self) -> None:
        for queue, messages in self.server.queues.items():
            bodies = [bytes(m.message.body).decode() for m in messages]  # type: ignore[arg-type]
            assert len(set(bodies)) == len(bodies), "stored twice"
            if not self.refused:
                calls = [self.numbers[body][1] for body in bodies]
                assert calls == sorted(calls), queue

    # The end: the network works, and everything is answered

    def teardown(self) -> None:
        self.server.refuse.clear()
        self.server.refuse_settles.clear()
        for lease in list(self.kept):
            self.core.release(lease)
        self._settle_down(lambda: self._is_open_and_calm())
        publishes = {ticket for ticket in self.waiting if ticket.startswith("publish")}
        assert not publishes, f"never answered: {publishes}"
        assert not {ticket for ticket in self.waiting if not ticket.startswith("start")}
        self._close()
        assert not self.waiting
        assert not self.core.consumer.clocks.running
        assert not self.core.consumer.subscriptions
        assert set(self.subscriptions) == self.ended
        for lease in self.taken:
            assert lease.phase is Phase.OVER

    def _close(self) -> None:
        """Twice: everybody who asks for it is told."""
        self.core.close(self.now, 30_000, self._ticket("close"))
        self.core.close(self.now, 30_000, self._ticket("close"))
        self._drain()
        self._settle_down(lambda: self.core.state == "closed")
        for queue in QUEUES:
            assert not self.core.producer.withdraw(queue, "publish"), "whoever comes too late"

    def _is_open_and_calm(self) -> bool:
        calm = not self.waiting and not self.to_server
        return self.core.state in ("open", "polling") and calm

    def _settle_down(self, is_done: Any) -> None:
        for _ in range(600):
            if is_done():
                return
            if self.dialing is not None:
                self.dial(True)
            self.core.flush(self.now)
            self._drain()
            self.reach_server(100)
            self.reach_client(100, False)
            self.wait(50)
        raise AssertionError(f"it doesn't settle down: {self.waiting}")


TestClientMachine = ClientMachine.TestCase
TestClientMachine.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)
