"""Requests: what a client may ask once it was welcomed, and the answers that are due.

Every handler is a plain call, and frames are taken in the order in which they were sent. Only what
must wait for its queue, which is not open yet or has no room, is parked: what comes behind it for
the same queue waits with it, the rest goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from pushlane.wire.errors import BadFrame, BadRequest, PushlaneError, Unavailable
from pushlane.wire.frames import (
    Ack,
    ClientFrame,
    Credit,
    Done,
    Extend,
    Hello,
    LeaseLostFrame,
    Nack,
    Publish,
    ServerFrame,
    Start,
    Subscribe,
    Subscribed,
    Unsubscribe,
    error_frame,
)
from pushlane.wire.receipts import ReceiptRun, count, render_all
from pushlane.wire.validate import (
    check_credit,
    check_extend,
    check_nack,
    check_publish,
    check_receipts,
    check_subscribe,
)
from pushlane_dispatcher.port import ACK, START, Act, Caller, Feed, Gather, Publication
from pushlane_gateway.session.publishing import Batch
from pushlane_gateway.session.session import Session, Sub

if TYPE_CHECKING:
    from pushlane_gateway.session.connection import Connection


class Requests:
    def __init__(self, connection: Connection, session: Session) -> None:
        self._connection = connection
        self._session = session
        self._context = context = session.context
        self._limits = context.limits
        self._metrics = context.metrics
        self._wall = context.clock.wall
        self._unanswered: set[int] = set()
        self._inflight = 0
        """Published bytes that wait for their answer."""
        self._room: trio.Event | None = None
        template = context.template if context.auto_create else None
        caller = Caller(session.identity.tenant, session.claims, template)
        self._door = context.dispatcher.door(caller, connection.failed)
        self._take: dict[type[Any], Callable[[Any], None]] = {
            Hello: self._hello,
            Publish: self._publish,
            Subscribe: self._subscribe,
            Start: self._start,
            Ack: self._ack,
            Nack: self._nack,
            Extend: self._extend,
            Credit: self._credit,
            Unsubscribe: self._unsubscribe,
        }

    @property
    def unanswered(self) -> int:
        return len(self._unanswered)

    def take(self, frame: ClientFrame) -> None:
        """Do what a frame asks for, or park it."""
        id: int | None = getattr(frame, "id", None)
        if id is not None:
            if id in self._unanswered:
                self._repeated(frame, id)
                return
            self._unanswered.add(id)
        try:
            self._take[type(frame)](frame)
        except PushlaneError as error:
            self._refuse(frame, error)

    async def taken(self) -> None:
        """Until nothing is parked any more."""
        await self._door.done()

    def _repeated(self, frame: ClientFrame, id: int) -> None:
        """Its own answer would be taken for the first one's."""
        self._connection.send_error(BadRequest(f"id {id} is not answered yet"), request=_op(frame))

    def bad_frame(self, error: BadFrame) -> None:
        if error.id in self._unanswered:
            error.id = None
        self._connection.send_error(error)

    def _refuse(self, frame: ClientFrame, error: PushlaneError) -> None:
        id: int | None = getattr(frame, "id", None)
        sub: int | None = getattr(frame, "sub", None) if id is None else None
        self._metrics.refused(error)
        answer = error_frame(error, id=id, request=_op(frame), sub=sub)
        if id is None:
            self._connection.send(answer)
        else:
            self._answer(id, answer)

    # Answers, and how many of them may be due

    def _answer(self, id: int, frame: ServerFrame) -> None:
        self._connection.send(frame)
        self._unanswered.discard(id)
        if self._room is not None and not self.crowded:
            self._room.set()
            self._room = None

    @property
    def crowded(self) -> bool:
        """Too much waits for its answer: read no more until there is `room`."""
        return (
            len(self._unanswered) >= self._limits.unanswered
            or self._inflight >= self._limits.inflight_bytes
        )

    async def room(self) -> None:
        many = len(self._unanswered) >= self._limits.unanswered
        self._metrics.limits.add("unanswered" if many else "inflight_bytes")
        self._room = trio.Event()
        await self._room.wait()

    # Hello

    def _hello(self, frame: Hello) -> None:
        raise BadRequest("hello may be sent only once")

    def close(self) -> None:
        """Its connection is over: what is parked no longer counts."""
        self._door.closed = True

    @staticmethod
    def _going_away() -> Unavailable:
        return Unavailable("the server asked this session to go away", retry_ms=0)

    # Publishing

    def _publish(self, frame: Publish) -> None:
        if self._connection.going:
            raise self._going_away()
        session = self._session
        name = session.allowed("publish", frame.to)
        failed = check_publish(frame, self._limits, has_producer=session.producer is not None)
        if failed:
            self._metrics.limits.add("message_bytes", len(failed))
        batch = Batch(frame, failed, session.producer, self._wall())
        self._inflight += batch.size
        # Not the frame: its messages are in the batch, and what is kept must not keep it.
        answer = partial(self._published, frame.id, batch, trio.current_time())
        self._door.publish(name, batch.messages, batch.lanes, answer)

    def _published(
        self,
        id: int,
        batch: Batch,
        since: float,
        publication: Publication | None,
        error: PushlaneError | None = None,
    ) -> None:
        self._inflight -= batch.size
        metrics = self._metrics
        if error is not None:
            metrics.refused(error)
            self._answer(id, error_frame(error, id=id, request="publish"))
            return
        metrics.publish_seconds.observe(trio.current_time() - since)
        if publication is not None:
            failed = publication.failed
            metrics.published += len(batch.messages) - len(failed) - len(publication.duplicates)
            for fault in failed.values():
                metrics.refused(fault)
        self._answer(id, batch.answer(id, publication))

    # Subscribing

    def _subscribe(self, frame: Subscribe) -> None:
        if self._connection.going:
            raise self._going_away()
        check_subscribe(frame, self._limits)
        name = self._session.allowed("consume", frame.from_)
        self._session.check_room()
        spec = self._session.spec(
            name,
            frame.credit,
            frame.lease_ms,
            explicit=frame.start == "explicit",
            ack_none=frame.ack == "none",
        )
        sub = Sub(self._session, name)
        self._door.subscribe(spec, sub, partial(self._subscribed, frame, sub))

    def _subscribed(
        self, frame: Subscribe, sub: Sub, feed: Feed | None, error: PushlaneError | None
    ) -> None:
        if feed is None:
            assert error is not None
            self._refuse(frame, error)
            return
        if self._connection.over:  # a shard far away was slow: nobody hears of it any more
            feed.end()
            return
        try:
            self._session.check_room()  # others may have come first
        except PushlaneError as full:
            feed.end()
            self._refuse(frame, full)
            return
        self._session.subscribed(sub, feed)
        self._answer(frame.id, Subscribed(frame.id, sub.number))

    def _credit(self, frame: Credit) -> None:
        check_credit(frame, self._limits)
        sub = self._session.sub(frame.sub)
        if sub is not None:
            sub.feed.set_credit(frame.credit)
            self._session.changed()

    def _unsubscribe(self, frame: Unsubscribe) -> None:
        sub = self._session.sub(frame.sub)
        if sub is not None and not sub.feed.closed:
            sub.feed.unsubscribe()
            self._session.changed()
        self._answer(frame.id, Done(frame.id))

    # Settling

    def _start(self, frame: Start) -> None:
        self._settle(frame, START, check_receipts(frame, self._limits))

    def _ack(self, frame: Ack) -> None:
        self._settle(frame, ACK, check_receipts(frame, self._limits))

    def _nack(self, frame: Nack) -> None:
        receipts = check_nack(frame, self._limits)
        act = Act("nack", delay_ms=frame.delay_ms, error=frame.error, dead=frame.dead)
        self._settle(frame, act, receipts)

    def _extend(self, frame: Extend) -> None:
        receipts = check_extend(frame, self._limits)
        self._settle(frame, Act("extend", lease_ms=frame.lease_ms), receipts)

    def _settle(
        self, frame: Start | Ack | Nack | Extend, act: Act, receipts: list[ReceiptRun]
    ) -> None:
        sub = self._session.sub(frame.sub)
        silently = frame.id is None
        answer = partial(self._told if silently else self._settled, frame, count(receipts))
        if sub is None:
            answer(Gather.all_lost(receipts))
        else:
            sub.feed.settle(act, receipts, answer, silently=silently)

    def _told(self, frame: Start | Ack | Nack | Extend, total: int, gather: Gather) -> None:
        """Of a frame without an id only what is lost is told, and what went wrong."""
        if gather.lost:
            self._connection.send(LeaseLostFrame(frame.sub, render_all(gather.lost)))
        if gather.error is not None:
            self._refuse(frame, gather.error)
        else:
            self._metrics.settled.add(_op(frame), total - count(gather.lost))

    def _settled(self, frame: Start | Ack | Nack | Extend, total: int, gather: Gather) -> None:
        id = frame.id
        assert id is not None
        if gather.error is not None:
            self._refuse(frame, gather.error)
            return
        refused = count(gather.lost) + count(gather.duplicate)
        self._metrics.settled.counts[_op(frame)] += total - refused
        self._answer(id, Done(id, render_all(gather.lost), render_all(gather.duplicate)))


def _op(frame: ClientFrame) -> str:
    op = frame.__struct_config__.tag
    assert isinstance(op, str)
    return op
