"""The life of subscriptions: wanted, asked for, live, leaving, over.

A subscribe whose answer was lost may have happened. It is asked again; what to do with messages for
a number that we don't know is the consumer's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pushlane.wire import frames
from pushlane.wire.errors import ConnectionLost, PushlaneError
from pushlane.wire.names import parse_target
from pushlane.wire.validate import check_subscribe

from .effects import AnyEffect, Ended, Resolve
from .lease import Phase
from .link import backoff_ms
from .producer import RETRIED
from .requests import Requests, SubscribeRequest, UnsubscribeRequest
from .settings import Settings
from .settle import GIVE_BACK
from .settler import Settler
from .subscription import AckMode, Standing, Subscription


class Subscriber:
    """All subscriptions of a client."""

    def __init__(
        self,
        settings: Settings,
        effects: list[AnyEffect],
        random: Callable[[], float],
        settler: Settler,
    ) -> None:
        self._settings = settings
        self._effects = effects
        self._random = random
        self._settler = settler
        self._dirty = settler.dirty
        self.all: dict[Subscription, None] = {}
        self.by_number: dict[int, Subscription] = {}

    # What users want

    def subscribe(
        self, queue: str, credit: int, ack: AckMode, lease_ms: int | None, ticket: Any
    ) -> Subscription:
        """Ask for messages; raises BadRequest for options outside the server's limits."""
        parse_target(queue)
        frame = frames.Subscribe(1, queue, credit, ack, lease_ms=lease_ms)
        check_subscribe(frame, self._settler.limits)
        subscription = Subscription(queue, credit, ack, lease_ms, ticket)
        self.all[subscription] = None
        self._dirty[subscription] = None
        return subscription

    def unsubscribe(self, subscription: Subscription, ticket: Any = None) -> None:
        """No more messages; what nobody has taken goes back, what was taken stays ours."""
        if subscription.standing in (Standing.LEAVING, Standing.OVER):
            self._resolve(ticket)
            return
        self._settler.reject(subscription.ticket, ConnectionLost("the subscription was closed"))
        subscription.ticket = None
        for lease in subscription.ready:
            if lease.phase is Phase.RESERVED and lease.prefix:
                self._settler.add(lease, GIVE_BACK, None)
        subscription.ready.clear()
        subscription.end_ticket = ticket
        if subscription.standing is Standing.WANTED:
            self.end(subscription, None)
            return
        subscription.standing = Standing.LEAVING
        self._dirty[subscription] = None

    # Frames to send

    def asks(self, subscription: Subscription, requests: Requests) -> Iterator[frames.Subscribe]:
        """The request for one that is wanted."""
        if subscription.standing is Standing.WANTED:
            subscription.standing = Standing.ASKED
            yield frames.Subscribe(
                requests.add(SubscribeRequest(subscription)), subscription.queue,
                subscription.credit, subscription.ack, "explicit", subscription.lease_ms,
            )  # fmt: skip

    def leaves(
        self, subscription: Subscription, number: int, requests: Requests
    ) -> Iterator[frames.Unsubscribe]:
        """The request to end one."""
        if subscription.standing is Standing.LEAVING and not subscription.is_leaving_said:
            subscription.is_leaving_said = True
            yield frames.Unsubscribe(requests.add(UnsubscribeRequest(subscription)), number)

    # Answers

    def subscribed(self, request: SubscribeRequest, frame: frames.Subscribed) -> None:
        """A subscription has begun."""
        subscription = request.subscription
        subscription.number = frame.sub
        self.calm(subscription)
        self.by_number[frame.sub] = subscription
        if subscription.standing is Standing.ASKED:
            subscription.standing = Standing.LIVE
            self._resolve(subscription.ticket)
            subscription.ticket = None
        else:
            self._dirty[subscription] = None

    def refused(self, request: SubscribeRequest, error: PushlaneError, now: float) -> None:
        """Ask again if that makes sense, else it is over."""
        subscription = request.subscription
        if subscription.standing is not Standing.ASKED:
            self.end(subscription, None)
        elif self.retry(subscription, error, now):
            subscription.standing = Standing.WANTED
            self._dirty[subscription] = None
        else:
            self._settler.reject(subscription.ticket, error)
            subscription.ticket = None
            self.end(subscription, error)

    def unsubscribed(self, request: UnsubscribeRequest) -> None:
        """The server knows, or never heard of it: the same to us."""
        subscription = request.subscription
        if subscription is not None and subscription.standing is Standing.LEAVING:
            self.end(subscription, None)

    def ended(self, number: int, error: PushlaneError) -> None:
        """The server ended a subscription."""
        subscription = self.by_number.get(number)
        if subscription is None or subscription.standing is Standing.OVER:
            return
        for lease in list(subscription.held.values()):
            if lease.phase is Phase.RESERVED:
                self._settler.lose(lease)
        self.end(subscription, None if subscription.standing is Standing.LEAVING else error)

    def unanswered(self, request: SubscribeRequest | UnsubscribeRequest) -> None:
        """The connection is gone, and with it the answer: ask again."""
        subscription = request.subscription
        if subscription is None:
            return
        if isinstance(request, UnsubscribeRequest):
            subscription.is_leaving_said = False
        elif subscription.standing is Standing.ASKED:
            subscription.standing = Standing.WANTED
        else:  # closed meanwhile
            self.end(subscription, None)
            return
        self._dirty[subscription] = None

    # Trying again

    def calm(self, subscription: Subscription) -> None:
        """It works."""
        subscription.failing_since = None
        subscription.failures = 0

    def retry(self, subscription: Subscription, error: PushlaneError, now: float) -> bool:
        """Whether to try again, at its `retry_at`."""
        settings = self._settings
        if error.info.code not in RETRIED:
            return False
        if subscription.failing_since is None:
            subscription.failing_since = now
        wait: float | None = error.retry_ms
        if wait is None:
            base, most = settings.retry_base_ms, settings.retry_max_ms
            wait = backoff_ms(base, most, subscription.failures, self._random())
        subscription.failures += 1
        if now + wait > subscription.failing_since + settings.retry_ms:
            self.calm(subscription)
            return False
        subscription.retry_at = now + wait
        return True

    # The end

    def restart(self, subscription: Subscription) -> None:
        """Its session is gone: begin again, if somebody still wants it."""
        subscription.number = None
        subscription.retry_at = 0.0
        if subscription.ack == "explicit":
            subscription.ready.clear()
        if subscription.standing is Standing.LEAVING:
            self.end(subscription, None)
        elif subscription.standing is Standing.OVER:
            self.forget_if_done(subscription)
        else:
            subscription.standing = Standing.WANTED
            self._dirty[subscription] = None

    def end(self, subscription: Subscription, error: PushlaneError | None) -> None:
        """It is over; what somebody works on can still be settled."""
        subscription.standing = Standing.OVER
        subscription.ready.clear()
        self._resolve(subscription.end_ticket)
        subscription.end_ticket = None
        self._effects.append(Ended(subscription, error))
        self.forget_if_done(subscription)

    def forget_if_done(self, subscription: Subscription) -> None:
        """One that is over and has nothing left to settle."""
        is_busy = subscription.held or subscription.settles
        if subscription.standing is not Standing.OVER or is_busy:
            return
        self.all.pop(subscription, None)
        self._dirty.pop(subscription, None)
        if subscription.number is not None:
            self.by_number.pop(subscription.number, None)

    def fail(self, subscription: Subscription, error: PushlaneError) -> None:
        """No connection will come any more."""
        self._settler.reject(subscription.ticket, error)
        subscription.ticket = None
        if subscription.standing is not Standing.OVER:
            was_closed = subscription.standing is Standing.LEAVING
            self.end(subscription, None if was_closed else error)

    def clear(self) -> None:
        self.all.clear()
        self._dirty.clear()
        self.by_number.clear()

    def _resolve(self, ticket: Any) -> None:
        if ticket is not None:
            self._effects.append(Resolve(ticket))
