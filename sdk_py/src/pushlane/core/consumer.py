"""Consuming: the messages that arrive for subscriptions, and what becomes of them.

A message is handed out only while the connection is open, and its `start` is in the next flush: so
a shell that flushes before it calls a handler never works on what the server doesn't know to be
started.

Leases end by the server's word or by our own clock, whichever is first: cut off from the server, a
handler is cancelled when its lease must be over, since somebody else may have the message then.

Messages for a subscription that we don't know (its subscribe had no answer, and was asked again) go
back at once, and its number is unsubscribed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pushlane.wire import frames
from pushlane.wire.errors import PushlaneError
from pushlane.wire.limits import DEFAULTS, Limits

from .clocks import Clocks
from .effects import AnyEffect, Ready, Resolve
from .lease import Lease, Phase
from .requests import Request, Requests, SettleRequest, SubscribeRequest, UnsubscribeRequest
from .settings import Settings
from .settle import GIVE_BACK, Key, runs
from .settler import Settler, lost_error
from .subscriber import Subscriber
from .subscription import Standing, Subscription

_RUN_BYTES = 24
"""What a run of receipts counts at least …"""
_HELD_BYTES = _RUN_BYTES * DEFAULTS.held
"""… so that a hello has at most `held` of them, and less than the 64 KiB that one may have."""


class Consumer:
    """All that a client receives."""

    def __init__(
        self, settings: Settings, effects: list[AnyEffect], random: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._effects = effects
        self.is_connected = False
        self.clocks = Clocks(settings.extend_for_ms)
        self.settler = Settler(effects, self.clocks)
        self.subscriber = Subscriber(settings, effects, random, self.settler)
        self.subscriptions = self.subscriber.all
        self._by_number = self.subscriber.by_number
        self._dirty = self.settler.dirty
        self._strays: list[tuple[int, list[str]]] = []
        """Deliveries for subscriptions we don't know."""

    def set_limits(self, limits: Limits) -> None:
        self.settler.limits = limits

    def take(self, subscription: Subscription, now: float) -> Lease | None:
        """The next message for somebody to work on. Flush before the work begins."""
        ready = subscription.ready
        if subscription.ack == "none":
            return ready.popleft() if ready else None
        if not self.is_connected:
            return None
        while ready:
            lease = ready.popleft()
            if lease.phase is Phase.RESERVED:
                lease.phase = Phase.STARTED
                self.clocks.start(lease, now)
                subscription.starts.append(lease)
                self._dirty[subscription] = None
                return lease
        return None

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
        if subscription.number is None:
            yield from self.subscriber.asks(subscription, requests)
            return
        number = subscription.number
        yield from self.settler.starts(subscription, number)
        yield from self.settler.settles(subscription, number, requests, now)
        yield from self.subscriber.leaves(subscription, number, requests)

    # Frames received

    def delivered(self, frame: frames.Deliver) -> None:
        """Messages arrived."""
        subscription = self._by_number.get(frame.sub)
        if subscription is None:
            receipts = [message.receipt for message in frame.messages if message.receipt]
            if receipts:
                self._strays.append((frame.sub, receipts))
        elif subscription.ack == "none":
            self._delivered_unleased(subscription, frame)
        else:
            self._delivered_leased(subscription, frame.messages)

    def _delivered_leased(
        self, subscription: Subscription, messages: list[frames.DeliverMessage]
    ) -> None:
        held, ready = subscription.held, subscription.ready
        is_live = subscription.standing is Standing.LIVE
        for message in messages:
            receipt = message.receipt
            if receipt is None or receipt in held:
                continue
            lease = held[receipt] = Lease(subscription, message)
            if is_live:
                ready.append(lease)
            else:
                self.settler.add(lease, GIVE_BACK, None)
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

    def leases_lost(self, number: int, receipts: list[str]) -> None:
        """Leases ended under us."""
        subscription = self._by_number.get(number)
        if subscription is not None:
            self.settler.lose_receipts(subscription, receipts)
            self.subscriber.forget_if_done(subscription)

    def done(self, request: SettleRequest, frame: frames.Done) -> None:
        """The answer to a settle."""
        self.settler.done(request, frame)
        subscription = request.settle.subscription
        self.subscriber.calm(subscription)
        self.subscriber.forget_if_done(subscription)

    def settle_refused(self, request: SettleRequest, error: PushlaneError, now: float) -> None:
        """Send it again if that makes sense; else the lease is ours as before."""
        if self.subscriber.retry(request.settle.subscription, error, now):
            self.settler.again(request.settle)
        else:
            self.settler.refused(request.settle, error, now)
            self.subscriber.forget_if_done(request.settle.subscription)

    # Connections

    def held(self) -> dict[str, list[str]]:
        """The receipts we have, by the server's number of its subscription.

        As many as a hello may have: the others come again under the same receipts, and are ignored.
        """
        room = _HELD_BYTES
        found: dict[str, list[str]] = {}
        for number, subscription in self._by_number.items():
            kept = found[str(number)] = []
            for run in runs(subscription.held.values()):
                room -= max(_RUN_BYTES, len(run) + 3)
                if room < 0:
                    break
                kept.append(run)
        return found

    def disconnected(self, requests: list[Request]) -> None:
        """What was asked and not answered is to be asked again."""
        self.is_connected = False
        self._strays.clear()
        for request in reversed(requests):
            if isinstance(request, SettleRequest):
                self.subscriptions[request.settle.subscription] = None
                self.settler.again(request.settle)
            elif isinstance(request, SubscribeRequest | UnsubscribeRequest):
                self.subscriber.unanswered(request)
        self.dismiss()

    def dismiss(self) -> None:
        """Without a connection, who closed a subscription need not wait: the server is told when
        there is one again."""
        for subscription in self.subscriptions:
            if subscription.standing is Standing.LEAVING and subscription.end_ticket is not None:
                self._effects.append(Resolve(subscription.end_ticket))
                subscription.end_ticket = None

    def resumed(self, lost: Mapping[str, list[str]], now: float) -> None:
        """The session goes on: tell the server again what it may have missed."""
        self.is_connected = True
        for number, receipts in lost.items():
            self.leases_lost(int(number), receipts)
        for lease in self.clocks.running:
            lease.subscription.starts.append(lease)
            self._dirty[lease.subscription] = None
        self.clocks.forgive(now)
        for subscription in self.subscriptions:
            subscription.retry_at = 0.0
            if subscription.ready:
                self._effects.append(Ready(subscription))

    def restarted(self) -> None:
        """The session is gone and with it all we held: begin again."""
        self.is_connected = True
        self._by_number.clear()
        for subscription in list(self.subscriptions):
            self.settler.lose_all(subscription, lost_error)
            self.subscriber.restart(subscription)

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
        self.settler.add(lease, Key("extend", lease_ms=lease.message.lease_ms), None)

    def _lose(self, lease: Lease) -> None:
        self.settler.lose(lease)
        self.subscriber.forget_if_done(lease.subscription)

    # The end

    @property
    def is_idle(self) -> bool:
        """Nobody works on a message that is kept for them, and every settle is answered."""
        return not self.settler.pending and not self.clocks.is_kept

    @property
    def is_settled(self) -> bool:
        """Nobody works on a message that is kept for them, and every settle of one that was taken
        is answered: nobody misses the answer to what was only given back."""
        return not self.clocks.is_kept and not any(
            lease.phase is Phase.SETTLING and lease.deadline
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
            self.settler.lose_all(subscription, lambda _: error)
            self.subscriber.fail(subscription, error)
        self.subscriber.clear()
