"""What a client has under way with its server, over as many connections as it takes.

Answers go to who asked, messages to the consumer. When a connection is lost, what it leaves
unanswered is asked again over the next: hello names the session and all that we hold of it, and
welcome says whether it is still there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias, assert_never

from pushlane.wire import frames
from pushlane.wire.errors import PushlaneError, error_for
from pushlane.wire.limits import DEFAULTS as DEFAULT_LIMITS
from pushlane.wire.limits import Limits, limits_from_wire

from .consumer import Consumer
from .effects import AnyEffect
from .producer import Producer
from .requests import PublishRequest, Requests, SettleRequest, SubscribeRequest
from .settings import Settings

SessionFrame: TypeAlias = (
    frames.Deliver
    | frames.Published
    | frames.Done
    | frames.Subscribed
    | frames.LeaseLostFrame
    | frames.Ended
)


class Session:
    """The producer, the consumer, and the requests of both."""

    def __init__(
        self,
        settings: Settings,
        effects: list[AnyEffect],
        random: Callable[[], float],
        producer: str,
        name: str | None,
    ) -> None:
        self.producer = Producer(settings, effects, random)
        self.consumer = Consumer(settings, effects, random)
        self.limits: Limits = DEFAULT_LIMITS
        self.id: str | None = None
        """The server's name for it; None before the first welcome."""
        self._producer_name = producer
        self._name = name
        self._requests = Requests()

    # Connections

    def hello(self, token: str | None) -> frames.Hello:
        """The first frame of a connection."""
        resume = None if self.id is None else frames.Resume(self.id, self.consumer.held())
        return frames.Hello(token, self._name, self._producer_name, resume)

    def welcomed(self, frame: frames.Welcome, now: float) -> None:
        """It goes on, or a new one begins."""
        self.limits = limits_from_wire(frame.limits)
        self.producer.set_limits(self.limits)
        self.consumer.set_limits(self.limits)
        if frame.resumed and frame.session == self.id:
            self.consumer.resumed(frame.lost, now)
        else:
            self.consumer.restarted()
        self.id = frame.session

    def disconnected(self) -> None:
        """What this connection leaves unanswered is the next one's."""
        requests = self._requests.clear()
        self.producer.disconnected()
        self.consumer.disconnected(requests)

    # Frames

    def outgoing(self, now: float, *, has_publishes: bool) -> Iterator[frames.ClientFrame]:
        """What the server is to be told now."""
        yield from self.consumer.outgoing(self._requests, now)
        if has_publishes:
            yield from self.producer.outgoing(self._requests, now)

    def take(self, frame: SessionFrame, now: float) -> None:
        """A frame from the server that is no error."""
        match frame:
            case frames.Deliver():
                self.consumer.delivered(frame)
            case frames.Published():
                request = self._requests.pop(frame.id)
                if isinstance(request, PublishRequest):
                    self.producer.answered(request, frame, now)
            case frames.Done():
                self._done(frame)
            case frames.Subscribed():
                request = self._requests.pop(frame.id)
                if isinstance(request, SubscribeRequest):
                    self.consumer.subscriber.subscribed(request, frame)
            case frames.LeaseLostFrame():
                self.consumer.leases_lost(frame.sub, frame.receipts)
            case frames.Ended():
                error = error_for(frame.code, frame.message)
                self.consumer.subscriber.ended(frame.sub, error)
            case _:
                assert_never(frame)

    def _done(self, frame: frames.Done) -> None:
        request = self._requests.pop(frame.id)
        match request:
            case SettleRequest():
                self.consumer.done(request, frame)
            case None | PublishRequest() | SubscribeRequest():
                pass  # the server's mistake: whoever waits for it is told when their time is up
            case _:
                self.consumer.subscriber.unsubscribed(request)

    def refused(self, id: int | None, error: PushlaneError, now: float) -> bool:
        """An error; whether it is that of a request."""
        request = None if id is None else self._requests.pop(id)
        match request:
            case None:
                return False
            case PublishRequest():
                self.producer.refused(request, error, now)
            case SettleRequest():
                self.consumer.settle_refused(request, error, now)
            case SubscribeRequest():
                self.consumer.subscriber.refused(request, error, now)
            case _:
                self.consumer.subscriber.unsubscribed(request)
        return True

    # Time

    def wake_at(self) -> float | None:
        times = (self.producer.wake_at(), self.consumer.wake_at())
        return min((at for at in times if at is not None), default=None)

    def tick(self, now: float) -> None:
        self.producer.tick(now)
        self.consumer.tick(now)

    # The end

    @property
    def may_leave(self) -> bool:
        """Whether nobody would miss the connection."""
        return not self._requests and self.consumer.is_idle

    def is_done(self, *, is_open: bool, is_patient: bool) -> bool:
        """Whether nothing is left to wait for, for one that is closed."""
        if not is_open and not is_patient:
            return not self.consumer.clocks.is_kept
        consumer = self.consumer
        is_done = consumer.is_quiet if is_open and is_patient else consumer.is_settled
        return self.producer.is_idle and is_done

    def fail_all(self, error: PushlaneError) -> None:
        """No connection will come any more."""
        self.consumer.disconnected(self._requests.clear())
        self.producer.fail_all(error)
        self.consumer.fail_all(error)
