"""Consuming: subscriptions, and the messages that arrive for them.

A message is handed out only while the connection is open, and its `start` is in the next flush: so
a shell that flushes before it calls a handler never works on what the server doesn't know to be
started.

Leases end by the server's word or by our own clock, whichever is first: cut off from the server, a
handler is cancelled when its lease must be over, since somebody else may have the message then.
When polling there is no `start`: a lease runs from its delivery on.

A subscribe whose answer was lost may have happened. It is asked again, and if the server does send
messages for a number we don't know, they go back at once and that number is unsubscribed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pushlane.wire import frames
from pushlane.wire.errors import ConnectionLost, PushlaneError
from pushlane.wire.limits import Limits
from pushlane.wire.names import parse_target
from pushlane.wire.validate import check_subscribe

from .backoff import backoff_ms
from .clocks import Clocks
from .effects import AnyEffect, Ended, Ready, Resolve
from .lease import Lease, Phase
from .producer import RETRIED
from .requests import Request, Requests, SettleRequest, SubscribeRequest, UnsubscribeRequest
from .settings import Settings
from .settle import GIVE_BACK, Key, runs
from .settler import Settler, gone
from .subscription import AckMode, Standing, Subscription


class Consumer:
    """All subscriptions of a client."""

    def __init__(
        self, settings: Settings, effects: list[AnyEffect], random: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._effects = effects
        self._random = random
        self.is_connected = False
        self.is_polling = False
        self.is_paused = False
        """The client is about to change its transport: no message is taken that can still go back,
        and none is asked for."""
        self.subscriptions: dict[Subscription, None] = {}
        self._by_number: dict[int, Subscription] = {}
        self.clocks = Clocks(settings.extend_for_ms)
        self._settler = Settler(effects, self.clocks)
        self._dirty = self._settler.dirty
        self._strays: list[tuple[int, list[str]]] = []
        """Deliveries for subscriptions we don't know."""

    def set_limits(self, limits: Limits) -> None:
        self._settler.limits = limits

    # Subscribing

    def subscribe(
        self, queue: str, credit: int, ack: AckMode, lease_ms: int | None, ticket: Any
    ) -> Subscription:
        """Ask for messages; raises BadRequest for options outside the server's limits."""
        parse_target(queue)
        frame = frames.Subscribe(1, queue, credit, ack, lease_ms=lease_ms)
        check_subscribe(frame, self._settler.limits)
        subscription = Subscription(queue, credit, ack, lease_ms, ticket)
        self.subscriptions[subscription] = None
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
            self._end(subscription, None)
            return
        subscription.standing = Standing.LEAVING
        self._dirty[subscription] = None

    def _end(self, subscription: Subscription, error: PushlaneError | None) -> None:
        subscription.standing = Standing.OVER
        subscription.ready.clear()
        self._resolve(subscription.end_ticket)
        subscription.end_ticket = None
        self._effects.append(Ended(subscription, error))
        self._forget_if_done(subscription)

    def _forget_if_done(self, subscription: Subscription) -> None:
        is_busy = subscription.held or subscription.settles
        if subscription.standing is not Standing.OVER or is_busy:
            return
        self.subscriptions.pop(subscription, None)
        self._dirty.pop(subscription, None)
        if subscription.number is not None:
            self._by_number.pop(subscription.number, None)

    # Taking and settling

    def take(self, subscription: Subscription, now: float) -> Lease | None:
        """The next message for somebody to work on. Flush before the work begins."""
        ready = subscription.ready
        if subscription.ack == "none":
            return ready.popleft() if ready else None
        if not self.is_connected or (self.is_paused and not self.is_polling):
            return None
        while ready:
            lease = ready.popleft()
            if lease.phase is Phase.RESERVED:
                lease.phase = Phase.STARTED
                if not self.is_polling:
                    self.clocks.start(lease, now)
                    subscription.starts.append(lease)
                    self._dirty[subscription] = None
                return lease
        return None

    def settle(self, lease: Lease, key: Key, ticket: Any) -> None:
        """Ack, nack or extend a message that was taken."""
        self._settler.settle(lease, key, ticket)

    # Frames to send

    def outgoing(self, requests: Requests, now: float) -> Iterator[frames.ClientFrame]:
        """What the server is to be told now."""
        for number, receipts in self._strays:
            yield frames.Nack(number, receipts, delay_ms=0)
            yield frames.Unsubscribe(requests.add(UnsubscribeRequest(None)), number)
        self._strays.clear()
        for subscription in list(self._dirty):
            if subscription.retry_at <= now:
                subscription.retry_at = 0.0
                del self._dirty[subscription]
                yield from self._frames_of(subscription, requests, now)

    def _frames_of(
        self, subscription: Subscription, requests: Requests, now: float
    ) -> Iterator[frames.ClientFrame]:
        if subscription.standing is Standing.WANTED:
            subscription.standing = Standing.ASKED
            yield frames.Subscribe(
                requests.add(SubscribeRequest(subscription)), subscription.queue,
                subscription.credit, subscription.ack,
                "delivery" if self.is_polling else "explicit", subscription.lease_ms,
            )  # fmt: skip
        elif subscription.number is not None:
            number = subscription.number
            yield from self._settler.starts(subscription, number)
            yield from self._settler.settles(subscription, number, requests, now)
            if subscription.standing is Standing.LEAVING and not subscription.is_leaving_said:
                subscription.is_leaving_said = True
                yield frames.Unsubscribe(requests.add(UnsubscribeRequest(subscription)), number)

    # Frames received

    def delivered(self, frame: frames.Deliver, now: float) -> None:
        """Messages arrived."""
        subscription = self._by_number.get(frame.sub)
        if subscription is None:
            receipts = [message.receipt for message in frame.messages if message.receipt]
            if receipts:
                self._strays.append((frame.sub, receipts))
        elif subscription.ack == "none":
            self._delivered_unleased(subscription, frame)
        else:
            self._delivered_leased(subscription, frame.messages, now)

    def _delivered_leased(
        self, subscription: Subscription, messages: list[frames.DeliverMessage], now: float
    ) -> None:
        held, ready = subscription.held, subscription.ready
        is_live = subscription.standing is Standing.LIVE
        for message in messages:
            receipt = message.receipt
            if receipt is None or receipt in held:
                continue
            lease = held[receipt] = Lease(subscription, message)
            if self.is_polling:
                self.clocks.start(lease, now)
            if is_live:
                ready.append(lease)
            else:
                self._settler.add(lease, GIVE_BACK, None)
        if ready:
            self._effects.append(Ready(subscription))

    def _delivered_unleased(self, subscription: Subscription, frame: frames.Deliver) -> None:
        if subscription.standing is not Standing.LIVE:
            return
        room = max(0, self._settings.buffered - len(subscription.ready))
        kept = frame.messages[:room]
        subscription.dropped += frame.dropped + len(frame.messages) - len(kept)
        subscription.ready.extend(Lease(subscription, message) for message in kept)
        if kept:
            self._effects.append(Ready(subscription))

    def subscribed(self, request: SubscribeRequest, frame: frames.Subscribed) -> None:
        """A subscription has begun."""
        subscription = request.subscription
        subscription.number = frame.sub
        self._calm(subscription)
        self._by_number[frame.sub] = subscription
        if subscription.standing is Standing.ASKED:
            subscription.standing = Standing.LIVE
            self._resolve(subscription.ticket)
            subscription.ticket = None
        else:
            self._dirty[subscription] = None

    def subscribe_refused(
        self, request: SubscribeRequest, error: PushlaneError, now: float
    ) -> None:
        """Ask again if that makes sense, else it is over."""
        subscription = request.subscription
        if subscription.standing is not Standing.ASKED:
            self._end(subscription, None)
        elif self._retry(subscription, error, now):
            subscription.standing = Standing.WANTED
            self._dirty[subscription] = None
        else:
            self._settler.reject(subscription.ticket, error)
            subscription.ticket = None
            self._end(subscription, error)

    def unsubscribed(self, request: UnsubscribeRequest) -> None:
        """The server knows, or never heard of it: the same to us."""
        subscription = request.subscription
        if subscription is not None and subscription.standing is Standing.LEAVING:
            self._end(subscription, None)

    def ended(self, number: int, error: PushlaneError) -> None:
        """The server ended a subscription."""
        subscription = self._by_number.get(number)
        if subscription is None or subscription.standing is Standing.OVER:
            return
        for lease in list(subscription.held.values()):
            if lease.phase is Phase.RESERVED:
                self._settler.lose(lease)
        self._end(subscription, None if subscription.standing is Standing.LEAVING else error)

    def leases_lost(self, number: int, receipts: list[str]) -> None:
        """Leases ended under us."""
        subscription = self._by_number.get(number)
        if subscription is not None:
            self._settler.lose_receipts(subscription, receipts)
            self._forget_if_done(subscription)

    def done(self, request: SettleRequest, frame: frames.Done) -> None:
        """The answer to a settle."""
        self._settler.done(request, frame)
        subscription = request.settle.subscription
        self._calm(subscription)
        self._forget_if_done(subscription)

    def settle_refused(self, request: SettleRequest, error: PushlaneError, now: float) -> None:
        """Send it again if that makes sense; else the lease is ours as before."""
        if self._retry(request.settle.subscription, error, now):
            self._settler.again(request.settle)
        else:
            self._settler.refused(request.settle, error, now)
            self._forget_if_done(request.settle.subscription)

    def _calm(self, subscription: Subscription) -> None:
        subscription.failing_since = None
        subscription.failures = 0

    def _retry(self, subscription: Subscription, error: PushlaneError, now: float) -> bool:
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
            self._calm(subscription)
            return False
        subscription.retry_at = now + wait
        return True

    # Polling

    def room(self, number: int) -> int | None:
        """How many messages of a subscription may come; None: it is over for good; less than 0: no
        more than those that were asked for."""
        subscription = self._by_number.get(number)
        if subscription is None:
            return None
        if subscription.standing is not Standing.LIVE:
            return 0
        if self.is_paused:
            return -1
        ready = len(subscription.ready)
        if subscription.ack == "none":
            return max(0, self._settings.buffered - ready)
        room = min(subscription.credit - len(subscription.held), subscription.wanted - ready)
        return max(0, room)

    def surrender(self) -> Iterator[frames.Nack]:
        """Give back what is in anybody's hands: the client ends, and no session ends with it."""
        phases = (Phase.RESERVED, Phase.STARTED)
        for number, subscription in self._by_number.items():
            receipts = runs(lease for lease in subscription.held.values() if lease.phase in phases)
            if receipts:
                yield frames.Nack(number, receipts, delay_ms=0)

    # Connections

    def held(self) -> dict[str, list[str]]:
        """Every receipt we have, by the server's number of its subscription."""
        return {
            str(number): runs(subscription.held.values())
            for number, subscription in self._by_number.items()
        }

    def disconnected(self, requests: list[Request]) -> None:
        """What was asked and not answered is to be asked again."""
        self.is_connected = False
        self._strays.clear()
        for request in reversed(requests):
            if isinstance(request, SettleRequest):
                self.subscriptions[request.settle.subscription] = None
                self._settler.again(request.settle)
            elif isinstance(request, SubscribeRequest):
                self._unasked(request.subscription)
            elif isinstance(request, UnsubscribeRequest) and request.subscription is not None:
                request.subscription.is_leaving_said = False
                self._dirty[request.subscription] = None

    def _unasked(self, subscription: Subscription) -> None:
        if subscription.standing is Standing.ASKED:
            subscription.standing = Standing.WANTED
            self._dirty[subscription] = None
        else:  # closed meanwhile
            self._end(subscription, None)

    def resumed(self, lost: Mapping[str, list[str]], now: float) -> None:
        """The session goes on: tell the server again what it may have missed."""
        self.is_connected = True
        for number, receipts in lost.items():
            self.leases_lost(int(number), receipts)
        if self.is_polling:  # only their extension tells what became of them
            self.clocks.doubt(now)
        else:
            for lease in self.clocks.running:
                lease.subscription.starts.append(lease)
                self._dirty[lease.subscription] = None
            self.clocks.forgive(now)
        for subscription in self.subscriptions:
            subscription.retry_at = 0.0
        self.unpause()

    def unpause(self) -> None:
        """What is ready may be taken, again."""
        self.is_paused = False
        for subscription in self.subscriptions:
            if subscription.ready:
                self._effects.append(Ready(subscription))

    def restarted(self) -> None:
        """The session is gone and with it all we held: begin anew."""
        self.is_connected = True
        self.is_paused = False
        self._by_number.clear()
        for subscription in list(self.subscriptions):
            subscription.number = None
            subscription.retry_at = 0.0
            self._settler.lose_all(subscription, gone)
            if subscription.ack == "explicit":
                subscription.ready.clear()
            if subscription.standing is Standing.LEAVING:
                self._end(subscription, None)
            elif subscription.standing is Standing.OVER:
                self._forget_if_done(subscription)
            else:
                subscription.standing = Standing.WANTED
                self._dirty[subscription] = None

    # Time

    def wake_at(self) -> float | None:
        """When a lease may need something, or something may be tried again."""
        times = [subscription.retry_at for subscription in self._dirty if subscription.retry_at]
        look_at = self.clocks.wake_at()
        if look_at is not None:
            times.append(look_at)
        return min(times, default=None)

    def tick(self, now: float) -> None:
        """Extend what is kept, and give up what ran out."""
        self.clocks.look(now, can_extend=self.is_connected, extend=self._extend, lose=self._lose)

    def _extend(self, lease: Lease) -> None:
        self._settler.add(lease, Key("extend", lease_ms=lease.message.lease_ms), None)

    def _lose(self, lease: Lease) -> None:
        self._settler.lose(lease)
        self._forget_if_done(lease.subscription)

    # The end

    @property
    def is_idle(self) -> bool:
        """Nobody works on a message that is kept for them, and every settle is answered."""
        return not self._settler.pending and not self.clocks.is_kept

    @property
    def is_free(self) -> bool:
        """Nobody works on a message, and every settle is answered: no lease would be missed."""
        return all(
            lease.phase is Phase.RESERVED
            for subscription in self.subscriptions
            for lease in subscription.held.values()
        )

    @property
    def is_quiet(self) -> bool:
        """Nothing is under way on the server's side either."""
        waiting = (Standing.ASKED, Standing.LEAVING)
        return self.is_idle and not any(
            subscription.standing in waiting for subscription in self.subscriptions
        )

    def fail_all(self, error: PushlaneError) -> None:
        """No connection will come any more."""
        self.is_connected = False
        for subscription in list(self.subscriptions):
            self._settler.lose_all(subscription, lambda _: error)
            self._settler.reject(subscription.ticket, error)
            subscription.ticket = None
            if subscription.standing is not Standing.OVER:
                was_closed = subscription.standing is Standing.LEAVING
                self._end(subscription, None if was_closed else error)
        self.subscriptions.clear()
        self._dirty.clear()
        self._by_number.clear()

    def _resolve(self, ticket: Any) -> None:
        if ticket is not None:
            self._effects.append(Resolve(ticket))
