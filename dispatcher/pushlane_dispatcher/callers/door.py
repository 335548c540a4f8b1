"""A door: what one caller asks of queues, by name.

A queue that is open and has room answers within the call. Otherwise the request is parked until it
has: what the same caller asks of the same queue meanwhile waits behind it, the rest goes on. Every
answer comes by a callback, once, perhaps before the call returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from pushlane.wire.errors import PushlaneError, Unavailable
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.callers.feed import Feed, FeedSink, Spec
from pushlane_dispatcher.callers.gather import Gather
from pushlane_dispatcher.callers.parking import Parking
from pushlane_dispatcher.callers.publication import Publication
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.core.places import Claims
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueConfig

if TYPE_CHECKING:
    from pushlane_dispatcher.dispatcher import Dispatcher


class Published(Protocol):
    """What became of a publish: of each message, or of all. None of both: nothing to store."""

    def __call__(
        self, publication: Publication | None, error: PushlaneError | None = None, /
    ) -> None: ...


Subscribed = Callable[[Feed | None, PushlaneError | None], None]

CLOSED = Unavailable("its caller has gone", retry_ms=0)


class Caller(msgspec.Struct, frozen=True):
    """Who asks."""

    tenant: str
    claims: Claims = ()
    """Of whose shares they take what they ask for."""
    template: QueueConfig | None = None
    """What a queue is made with that is not there. None: then it is `not_found`."""


class Door:
    def __init__(
        self, dispatcher: Dispatcher, caller: Caller, failed: Callable[[Exception], None]
    ) -> None:
        """`failed` is told of bugs of ours."""
        self._dispatcher = dispatcher
        self._caller = caller
        self._parking = Parking(dispatcher.start_soon, failed)
        self.closed = False
        """What is parked is refused when its turn comes."""

    async def done(self) -> None:
        """Until nothing is parked any more."""
        await self._parking.done()

    def publish(
        self, name: str, messages: list[Message], lanes: Sequence[int] | None, answer: Published
    ) -> None:
        queue = self._dispatcher.opened(self._caller.tenant, name)
        if queue is None or queue.congested or name in self._parking.lines:
            self._parking.add(name, partial(self._publish_later, name, messages, lanes, answer))
        elif messages:
            queue.publish_soon(messages, answer, lanes)
        else:
            answer(None)

    async def _publish_later(
        self, name: str, messages: list[Message], lanes: Sequence[int] | None, answer: Published
    ) -> None:
        try:
            queue = await self._open_with_room(name)
            if self.closed:
                raise CLOSED
        except PushlaneError as error:
            answer(None, error)
            return
        if messages:
            queue.publish_soon(messages, answer, lanes)
        else:
            answer(None)

    def subscribe(self, spec: Spec, sink: FeedSink, answer: Subscribed) -> None:
        """Nothing is delivered before the answer."""
        queue = self._dispatcher.opened(self._caller.tenant, spec.queue)
        if queue is None or spec.queue in self._parking.lines:
            self._parking.add(spec.queue, partial(self._subscribe_later, spec, sink, answer))
        else:
            self._attach(queue, spec, sink, answer)

    async def _subscribe_later(self, spec: Spec, sink: FeedSink, answer: Subscribed) -> None:
        try:
            queue = await self._dispatcher.open_for(self._caller, spec.queue)
            if self.closed:
                raise CLOSED
        except PushlaneError as error:
            answer(None, error)
        else:
            self._attach(queue, spec, sink, answer)

    def _attach(self, queue: OpenQueue, spec: Spec, sink: FeedSink, answer: Subscribed) -> None:
        feed = Feed(
            self._dispatcher, queue.row.id, len(queue.shards), spec, sink, self._caller.claims
        )
        feed.attach(queue.shards, answer)

    def settle(
        self, name: str, act: Act, receipts: list[ReceiptRun], answer: Callable[[Gather], None]
    ) -> None:
        """For whoever has receipts; a feed's own go through the feed."""
        queue = self._dispatcher.opened(self._caller.tenant, name)
        if queue is None or name in self._parking.lines:
            self._parking.add(name, partial(self._settle_later, name, act, receipts, answer))
        else:
            queue.settle(act, receipts, answer)

    async def _settle_later(
        self, name: str, act: Act, receipts: list[ReceiptRun], answer: Callable[[Gather], None]
    ) -> None:
        try:
            queue = await self._dispatcher.open_for(self._caller, name)
        except PushlaneError as error:
            answer(Gather.failed(error))
        else:
            queue.settle(act, receipts, answer)

    async def _open_with_room(self, name: str) -> OpenQueue:
        while True:
            queue = await self._dispatcher.open_for(self._caller, name)
            if not queue.congested:
                return queue
            await queue.room(self._caller.claims)
            if queue.running:  # now it is our turn
                return queue
