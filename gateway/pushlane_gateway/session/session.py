"""A session: what a client has here, and keeps when its connection drops for a while.

A session has at most one connection. Everything that is sent goes to it; without one it is dropped,
because a client that resumes is told what it missed: what it lost by `welcome.lost`, what it was
sent by redelivery, what ended by the frames kept here.

A sub is one of its subscriptions: it writes what its feed says as frames.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from pushlane.wire.errors import BadRequest, Forbidden
from pushlane.wire.frames import Ended, LeaseLostFrame, ServerFrame
from pushlane.wire.names import parse_target
from pushlane.wire.receipts import ReceiptRun, render_all
from pushlane_dispatcher.port import Feed, Kept, Run, Spec
from pushlane_gateway.auth.admission import Claims, Permit
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.auth.rule import Action
from pushlane_gateway.session.context import SessionContext
from pushlane_gateway.session.delivery import deliver_frames

if TYPE_CHECKING:
    from pushlane_gateway.session.connection import Connection

UNWRITTEN = "the server that had it died before others could know of it: subscribe again"
NO_TOPICS = "topics are not supported yet: use a queue"


class Sub:
    """One subscription of a session."""

    feed: Feed
    """There as soon as the session has it."""
    number: int

    def __init__(self, session: Session, queue: str) -> None:
        self.session = session
        self.queue = queue
        self.forgetting = False
        """Somebody will look whether it can be forgotten."""

    def deliver(
        self,
        runs: list[Run],
        place: str,
        prefix: str | None,
        lease_ms: int | None,
        again: bool,
    ) -> None:
        connection = self.session.connection
        if connection is None:  # a resume sends again what was not listed
            return
        context = self.session.context
        most = min(context.settings.deliver_bytes, context.limits.frame_bytes // 2)
        codec = connection.socket.codec
        count = sum([len(run.messages) for run in runs])
        if count >= context.settings.hurry_messages:
            connection.socket.hurry()
        for frame in deliver_frames(codec, self.number, runs, place, prefix, lease_ms, most):
            connection.send_encoded("deliver", frame)
        if again:
            context.metrics.redelivered += count
        else:
            context.metrics.delivered += count
        connection.watch_outbox()

    def lost(self, receipts: list[ReceiptRun]) -> None:
        self.session.send(LeaseLostFrame(self.number, render_all(receipts)))

    def quiet(self) -> None:
        """It waits for what comes."""

    def settled(self) -> None:
        if self.feed.closed:
            self.session.forget_later(self)

    def ended(self, code: str, message: str) -> None:
        self.session.sub_over(self, Ended(self.number, code, message))

    def elsewhere(self) -> None:
        self.session.send_away()

    def reattached(self) -> None:
        self.session.changed()

    def superseded(self) -> None:
        if self.session.keeper is not None:
            self.session.keeper.superseded(self.session)


def reference(id: str) -> str:
    """The name of a session in consumers, explain, logs and the lease cache.

    Its client can work it out, and nobody else can get back to the id.
    """
    return "s-" + hashlib.blake2b(id.encode(), digest_size=8).hexdigest()


class SessionKeeper(Protocol):
    """Sees to it that a session can go on at another server."""

    def changed(self, session: Session) -> None:
        """What another one would have to know of it."""
        ...

    def superseded(self, session: Session) -> None:
        """It goes on at another one."""
        ...


class Session:
    def __init__(
        self,
        id: str,
        identity: Identity,
        context: SessionContext,
        term: int = 1,
        keeper: SessionKeeper | None = None,
    ) -> None:
        self.id = id
        """A secret between us and the client: with it, a session is resumed."""
        self.ref = reference(id)
        """What others may see of it."""
        self.identity = identity
        self.context = context
        self.client: str | None = None
        self.producer: str | None = None
        self.connection: Connection | None = None
        self.away_until: float | None = None
        """Trio's time until which it can be resumed, while it has no connection."""
        self.permit: Permit | None = None
        """Its place among all sessions."""
        self.waits_for: Claims = ()
        """Who has a place among those that wait for their clients, while it is one of them."""
        self.paused = False
        """It gets no deliveries: its client reads too slowly, or is to go away."""
        self.subs: dict[int, Sub] = {}
        self.next_sub = 1
        self.term = term
        """One more with every server that takes it over."""
        self.keeper = keeper
        """None: it can't go on elsewhere."""
        self.unsure = False
        """It was resumed here while nobody could say whether another server has it."""
        self._taken_over = False
        """From another server; no client has resumed it here yet."""
        self.over = False
        """It has ended, or is another server's."""
        self.missed: list[Ended] = []
        """What ended while it had no connection."""
        self._told: dict[int, Ended] = {}
        """Subs that ended, as their client was told. One that still lists such a sub when it comes
        back has not heard of it: the frame was lost with its connection."""
        self._known: dict[tuple[Action, str], str] = {}

    @property
    def claims(self) -> Claims:
        """Of whose shares it takes what it asks for."""
        return self.context.admission.claims(self.identity)

    @property
    def held(self) -> int:
        """Unsettled messages."""
        return sum(sub.feed.held for sub in self.subs.values())

    def send(self, frame: ServerFrame) -> None:
        if self.connection is not None:
            self.connection.send(frame)

    # Names and rights

    def allowed(self, action: Action, target: str) -> str:
        """The queue that `to` or `from` names, if the session may do this there."""
        name = self._known.get((action, target))
        if name is None:
            name = self._check(action, target)
            if len(self._known) >= self.context.settings.known_names:
                self._known.clear()
            self._known[action, target] = name
        return name

    def _check(self, action: Action, target: str) -> str:
        found = parse_target(target)
        if not self.identity.allows(action, str(found)):
            raise Forbidden(f"{self.identity.name} may not {action} {found}")
        if found.is_topic:
            raise BadRequest(NO_TOPICS)
        return found.name

    # Subscriptions

    def check_room(self) -> None:
        """Raise unless there may be one more sub."""
        most = self.context.limits.subs
        if len(self.subs) >= most:
            for sub in list(self.subs.values()):
                if sub.feed.closed and not sub.feed.held:
                    self._forget(sub)
        if len(self.subs) >= most:
            raise BadRequest(f"a session has at most {most} subscriptions", limit="subs")

    def subscribed(self, sub: Sub, feed: Feed) -> None:
        """It has one more sub, and deliveries may come."""
        sub.number, sub.feed = self.next_sub, feed
        self.next_sub += 1
        self.subs[sub.number] = sub
        feed.pause(self.paused)
        self.changed()

    def take_over(self, subs: Mapping[int, Kept], missed: list[Ended]) -> None:
        """Have these, which were another server's; a `resume` goes on with them."""
        self.missed = missed
        self._taken_over = True
        for number, kept in subs.items():
            sub = Sub(self, kept.queue)
            sub.number = number
            spec = self.spec(
                kept.queue, kept.credit, kept.lease_ms,
                explicit=kept.explicit, ack_none=kept.ack_none,
            )  # fmt: skip
            sub.feed = Feed.of_kept(self.context.dispatcher, kept, spec, sub, self.claims)
            self.subs[number] = sub

    def spec(
        self, queue: str, credit: int, lease_ms: int | None, *, explicit: bool, ack_none: bool
    ) -> Spec:
        """How it subscribes."""
        settings = self.context.settings
        return Spec(
            self.identity.tenant,
            queue,
            self.ref,
            self.client or "",
            credit,
            lease_ms,
            explicit=explicit,
            ack_none=ack_none,
            term=self.term,
            reattach_base_ms=settings.reattach_base_ms,
            reattach_max_ms=settings.reattach_max_ms,
        )

    def changed(self) -> None:
        """What another server would have to know of it."""
        if self.keeper is not None and not self.over:
            self.keeper.changed(self)

    def sub(self, number: int) -> Sub | None:
        """None: it is over and forgotten. There never was one: BadRequest."""
        if number >= self.next_sub:
            raise BadRequest(f"there is no sub {number}")
        return self.subs.get(number)

    def sub_over(self, sub: Sub, frame: Ended) -> None:
        """A sub ended without the client's asking."""
        del self.subs[sub.number]
        self.changed()
        if self.connection is not None:
            self._tell(frame)
        else:
            self.missed.append(frame)

    def _tell(self, frame: Ended) -> None:
        self._told[frame.sub] = frame
        if len(self._told) > self.context.limits.subs:
            del self._told[next(iter(self._told))]
        self.send(frame)

    def forget_later(self, sub: Sub) -> None:
        """Once nothing is held by a closed sub; a repeated settle is a duplicate until then."""
        if not sub.forgetting and not sub.feed.held:
            sub.forgetting = True
            later = trio.current_time() + self.context.limits.resume_ms / 1000
            self.context.timers.at(later, partial(self._forget, sub))

    def _forget(self, sub: Sub) -> None:
        sub.forgetting = False
        if sub.feed.held:  # it was on its way
            return
        if self.subs.get(sub.number) is sub:
            del self.subs[sub.number]
            sub.feed.end()
            self.changed()

    # Connections

    def pause(self, paused: bool) -> None:
        self.paused = paused
        for sub in self.subs.values():
            sub.feed.pause(paused)

    def send_away(self) -> None:
        """What it needs is on another server: its client is to look for that one."""
        if self.connection is not None:
            self.connection.send_away()

    def detach(self) -> None:
        """Its connection is gone; it can be resumed for a while."""
        resume_ms = self.context.limits.resume_ms
        self.connection = None
        self.away_until = trio.current_time() + resume_ms / 1000
        for sub in self.subs.values():
            sub.feed.detach(resume_ms)

    def resume(
        self,
        connection: Connection,
        identity: Identity,
        held: dict[int, list[ReceiptRun]],
        answer: Callable[[dict[int, list[ReceiptRun]]], None],
    ) -> None:
        """It goes on with another connection. Answers what its client lists and has no longer."""
        self.connection = connection
        self.away_until = None
        if identity.rules != self.identity.rules:
            self._known.clear()
        self.identity = identity
        self.paused = False
        lost = {number: receipts for number, receipts in held.items() if number not in self.subs}
        unheard, self._told = self._told, {}
        self.missed += [frame for number, frame in unheard.items() if number in held]
        if self._taken_over:
            self._taken_over = False
            self._miss(lost)
        for number, sub in list(self.subs.items()):
            if not identity.allows("consume", sub.queue):
                lost[number] = held.get(number, [])
                self._withdraw(sub)
        waits_for = dict(self.subs)

        def told(number: int, receipts: list[ReceiptRun]) -> None:
            if self.connection is not connection:  # who resumed since hears of it
                return
            lost[number] = receipts
            del waits_for[number]
            if not waits_for:
                welcome()

        def welcome() -> None:
            answer({number: receipts for number, receipts in lost.items() if receipts})

        def enough() -> None:
            """What is not told yet comes later."""
            if self.connection is connection:
                for sub in list(waits_for.values()):
                    sub.feed.answer_now()

        if not self.subs:
            welcome()
        for number, sub in list(self.subs.items()):
            sub.feed.pause(False)
            sub.feed.resume(held.get(number, []), self.claims, partial(told, number))
        if waits_for:
            patience = self.context.settings.takeover_ms / 1000
            self.context.timers.at(trio.current_time() + patience, enough)

    def _miss(self, numbers: Iterable[int]) -> None:
        """Its client has subs that its server did not live to write down."""
        told = {frame.sub for frame in self.missed}
        for number in numbers:
            self.next_sub = max(self.next_sub, number + 1)
            if number not in told:
                self.missed.append(Ended(number, "unavailable", UNWRITTEN))

    def resumed(self) -> None:
        """The client was welcomed: what else happened while it was away."""
        missed, self.missed = self.missed, []
        for frame in missed:
            self._tell(frame)

    def _withdraw(self, sub: Sub) -> None:
        """Its right is gone; the client hears of it after the welcome."""
        del self.subs[sub.number]
        sub.feed.end()
        message = f"{self.identity.name} may no longer consume {sub.queue}"
        self.missed.append(Ended(sub.number, "forbidden", message))

    def abandon(self) -> None:
        """Its client did not come back: what it holds has failed."""
        self.over = True
        for sub in self.subs.values():
            sub.feed.abandon()
        self.subs.clear()

    def end(self) -> None:
        """For good: everything goes back at once."""
        self.over = True
        self.connection = None
        for sub in self.subs.values():
            sub.feed.end()
        self.subs.clear()

    def leave(self) -> None:
        """It goes on elsewhere: what it has waits for that."""
        self.over = True
        self.connection = None
        for sub in self.subs.values():
            sub.feed.leave(self.context.limits.resume_ms)
        self.subs.clear()
