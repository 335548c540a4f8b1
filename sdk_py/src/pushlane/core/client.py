"""The client: one state machine over connections, publishes, subscriptions and the end.

A shell reports what happens (`connected`, `received`, `lost`, `tick`) and what users call; each
takes `now`, in milliseconds of any steady clock. Then it calls `flush`, which puts what gathered
into frames, and carries out `effects`. It wakes up again at `wake_at` at the latest, for a `tick`.

    core = ClientCore(producer="p-1", random=random.random)
    core.start(now)                        # effects: Dial(1)
    core.connected(1, token, now)          # effects: Send(1, hello)
    core.received(1, [welcome], now)       # effects: StateChanged("open")
    core.publish("orders", message, ticket, now)
    core.flush(now)                        # effects: Send(1, publish)

Hello goes first and waits for its welcome: only that says what is left of the session, and so what
to send. A server that closes says whether to come back (`CLOSES`); after its goaway we always do.

Where there is no WebSocket to be had (choice.py) the frames are the same, and `poll.py` makes HTTP
requests of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, assert_never

from pushlane.wire import frames
from pushlane.wire.codec import JSON, Codec
from pushlane.wire.errors import (
    CLOSES,
    CODES,
    BadFrame,
    ConnectionLost,
    NotAFrame,
    PushlaneError,
    error_for,
)
from pushlane.wire.limits import DEFAULTS as DEFAULT_LIMITS
from pushlane.wire.limits import Limits, limits_from_wire

from .choice import NO_ANSWER, Choice, Wish
from .consumer import Consumer
from .effects import AnyEffect, Dial, Hangup, Probe, Reject, Resolve, Send, State, StateChanged
from .lease import Lease
from .link import Link, Phase
from .producer import Producer
from .requests import PublishRequest, Requests, SettleRequest, SubscribeRequest
from .settings import DEFAULTS, Settings
from .settle import Key
from .subscription import AckMode, Subscription

_NORMAL = 1000
_ABNORMAL = 1006
_GOING_AWAY = 1001


class ClientCore:
    """The sans-I/O client; see the top of the file."""

    def __init__(
        self,
        *,
        producer: str,
        random: Callable[[], float],
        settings: Settings = DEFAULTS,
        codec: Codec = JSON,
        name: str | None = None,
        transport: Wish = "ws",
    ) -> None:
        self.settings = settings
        self.state: State = "connecting"
        self.error: PushlaneError | None = None
        """Why it closed, if not by our wish."""
        self.effects: list[AnyEffect] = []
        self.producer = Producer(settings, self.effects, random)
        self.consumer = Consumer(settings, self.effects, random)
        self.limits: Limits = DEFAULT_LIMITS
        self._producer_name = producer
        self._name = name
        self._codec = codec
        self._link = Link(settings, random)
        self._choice = Choice(transport, settings, random)
        self._requests = Requests()
        self._session: str | None = None
        self._start_ticket: Any = None
        self._last_error: PushlaneError | None = None
        """What the server said of this connection, or why the last attempt failed."""
        self._is_leaving = False
        """Between goaway and the end of this connection."""
        self._close_ticket: Any = None
        self._close_by: float | None = None

    @property
    def was_open(self) -> bool:
        """The server was there once, and may be again."""
        return self._session is not None

    # Starting, and what happens to connections

    def start(self, now: float, ticket: Any = None) -> None:
        """Connect; the ticket resolves with the first welcome."""
        assert self._link.phase is Phase.IDLE
        self._start_ticket = ticket
        self._link.give_up_at = now + self.settings.connect_ms
        self._dial(now)

    def _dial(self, now: float) -> None:
        choice = self._choice
        self.consumer.is_polling = choice.is_polling
        link = self._link.dial(now, is_upgrade_unsure=not choice.is_made)
        self.effects.append(Dial(link, choice.transport))

    def connected(self, link: int, token: str | None, now: float) -> None:
        """The socket of this link is open."""
        if link != self._link.number or self._link.phase is not Phase.DIALING:
            self.effects.append(Hangup(link, _GOING_AWAY))
            return
        self._link.greet()
        resume = None
        if self._session is not None:
            resume = frames.Resume(self._session, self.consumer.held())
        self._send(frames.Hello(token, self._name, self._producer_name, resume))

    def received(self, link: int, data: Iterable[bytes], now: float) -> None:
        """Whole frames arrived."""
        for frame in data:
            if link != self._link.number or not self._link.has_socket:
                return
            try:
                self._take(self._codec.decode_server(frame), now)
            except BadFrame:
                continue  # from a newer server: not for us
            except NotAFrame as fault:
                self._drop(link, 1002, fault, now)
        self.heard(link, now)

    def heard(self, link: int, now: float) -> None:
        """Any byte arrived: the server is alive."""
        if link == self._link.number:
            self._link.heard(now)

    def lost(
        self, link: int, now: float, *, code: int = _ABNORMAL, reason: str = "",
        error: PushlaneError | None = None, refused: int | None = None,
    ) -> None:  # fmt: skip
        """The connection is gone, or the attempt failed; `error` where more is known. `refused`:
        the HTTP status in place of an upgrade, NO_ANSWER for none; None: it was not asked for."""
        if link != self._link.number or self._link.phase in (Phase.CLOSED, Phase.WAITING):
            return
        if self._link.phase is Phase.GREETING and code == _ABNORMAL and error is None:
            refused = NO_ANSWER
        if refused is not None and self._choice.refused(refused):
            self._fall_back(now)
            return
        fault = error or self._last_error
        info = CLOSES.get(code)
        said = CODES.get(reason)
        may_return = info is None or info.reconnect or (said is not None and said.retry)
        is_final = not may_return and code != _NORMAL
        if is_final and fault is None:
            assert info is not None
            fault = error_for(reason or info.reason, f"the server closed with {code}: {reason}")
        if fault is not None and not self._is_leaving and (is_final or not fault.info.retry):
            self._link.close()
            self._end(fault, now)
            return
        is_open = self._link.phase is Phase.OPEN
        was_cut = is_open and code == _ABNORMAL and fault is None and not self._is_leaving
        age = now - self._link.opened_at if was_cut else None
        self._disconnect(now, fault or ConnectionLost(f"the connection closed with {code}"), age)

    def _drop(self, link: int, code: int, fault: PushlaneError, now: float) -> None:
        """Cut the connection ourselves, and come back."""
        self.effects.append(Hangup(link, code))
        self._disconnect(now, ConnectionLost(fault.message, fault.retry_ms))

    def _disconnect(self, now: float, error: PushlaneError, cut_at: float | None = None) -> None:
        """`cut_at`: how old the connection was when somebody cut it."""
        self._choice.lost(cut_at)
        requests = self._requests.clear()
        self.producer.disconnected()
        self.consumer.disconnected(requests)
        self._link.wait(now, error.retry_ms)
        self._is_leaving = False
        self._last_error = None
        assert self._link.until is not None
        give_up_at = self._link.give_up_at
        if give_up_at is not None and self._link.until >= give_up_at:
            self._end(error, now)
            return
        self._change("connecting")
        self._finish_if_done(now)

    # Frames from the server

    def _take(self, frame: frames.ServerFrame, now: float) -> None:
        match frame:
            case frames.Deliver():
                self.consumer.delivered(frame, now)
            case frames.Published():
                request = self._requests.pop(frame.id)
                if isinstance(request, PublishRequest):
                    self.producer.answered(request, frame, now)
            case frames.Done():
                self._done(frame)
            case frames.Subscribed():
                request = self._requests.pop(frame.id)
                if isinstance(request, SubscribeRequest):
                    self.consumer.subscribed(request, frame)
            case frames.LeaseLostFrame():
                self.consumer.leases_lost(frame.sub, frame.receipts)
            case frames.Ended():
                self.consumer.ended(frame.sub, error_for(frame.code, frame.message))
            case frames.Welcome():
                self._welcome(frame, now)
            case frames.Goaway():
                self._is_leaving = True
                self._link.reconnect_ms = frame.reconnect_ms
            case frames.ErrorFrame():
                self._refused(frame, now)
            case frames.Beat():
                pass
            case _:
                assert_never(frame)

    def _welcome(self, frame: frames.Welcome, now: float) -> None:
        if self._link.phase is not Phase.GREETING:
            return
        self._link.open(now, frame.heartbeat_ms)
        self.limits = limits_from_wire(frame.limits)
        self.producer.set_limits(self.limits)
        self.consumer.set_limits(self.limits)
        if frame.resumed and frame.session == self._session:
            self.consumer.resumed(frame.lost, now)
        else:
            self.consumer.restarted()
        self._session = frame.session
        self._choice.welcomed(now)
        self.consumer.is_paused = self._choice.next is not None
        self._change("polling" if self._choice.is_polling else "open")
        if self._start_ticket is not None:
            self.effects.append(Resolve(self._start_ticket))
            self._start_ticket = None

    def _done(self, frame: frames.Done) -> None:
        request = self._requests.pop(frame.id)
        match request:
            case SettleRequest():
                self.consumer.done(request, frame)
            case None | PublishRequest() | SubscribeRequest():
                pass  # the server's mistake: whoever waits for it is told when their time is up
            case _:
                self.consumer.unsubscribed(request)

    def _refused(self, frame: frames.ErrorFrame, now: float) -> None:
        error = error_for(frame.code, frame.message, frame.retry_ms)
        if self._link.phase is Phase.GREETING:
            if error.info.retry:
                self._drop(self._link.number, _GOING_AWAY, error, now)
            elif self._choice.repent():
                self.effects.append(Hangup(self._link.number, _GOING_AWAY))
                self._dial(now)
            else:
                self._end(error, now)
            return
        request = None if frame.id is None else self._requests.pop(frame.id)
        match request:
            case None:
                self._last_error = error if error.info.close_code is not None else None
            case PublishRequest():
                self.producer.refused(request, error, now)
            case SettleRequest():
                self.consumer.settle_refused(request, error, now)
            case SubscribeRequest():
                self.consumer.subscribe_refused(request, error, now)
            case _:
                self.consumer.unsubscribed(request)

    # What users call

    def publish(self, queue: str, message: frames.PublishMessage, ticket: Any, now: float) -> None:
        """Store a message; the ticket resolves with a `Published`. Raises BadRequest, TooLarge."""
        self.check_open()
        self.producer.publish(queue, message, ticket, now)

    def subscribe(
        self, queue: str, credit: int, ack: AckMode, lease_ms: int | None, ticket: Any
    ) -> Subscription:
        """Ask for messages; the ticket resolves when it has begun. Raises BadRequest."""
        self.check_open()
        return self.consumer.subscribe(queue, credit, ack, lease_ms, ticket)

    def unsubscribe(self, subscription: Subscription, ticket: Any = None) -> None:
        """No more messages of this one; the ticket resolves when the server knows."""
        self.consumer.unsubscribe(subscription, ticket)

    def take(self, subscription: Subscription, now: float) -> Lease | None:
        """The next message to work on, if there is one and it may begin now. Then flush."""
        if self._close_by is not None:
            return None
        return self.consumer.take(subscription, now)

    def settle(self, lease: Lease, key: Key, ticket: Any = None) -> None:
        """Ack, nack or extend; the ticket resolves on the server's word."""
        self.consumer.settle(lease, key, ticket)

    def keep(self, lease: Lease, now: float) -> None:
        """Extend the lease on its own while somebody works on it."""
        self.consumer.clocks.keep(lease, now)

    def release(self, lease: Lease) -> None:
        """Nobody works on it any more."""
        lease.kept_until = None

    def check_open(self) -> None:
        """Raise why nothing more can be asked for, if so."""
        if self.error is not None:
            raise self.error
        if self.state == "closed" or self._close_by is not None:
            raise ConnectionLost("the client is closed")

    # Time

    def wake_at(self) -> float | None:
        """When to call `tick` at the latest."""
        if self._link.phase is Phase.CLOSED:
            return None
        times = (
            self._link.until, self._choice.next_at, self._choice.next_by, self._choice.probe_at,
            self._close_by, self.producer.wake_at(), self.consumer.wake_at(),
        )  # fmt: skip
        return min((at for at in times if at is not None), default=None)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._link.phase is Phase.CLOSED:
            return
        if self._close_by is not None and now >= self._close_by:
            self._end(ConnectionLost("the client was closed before the answer came"), now)
            return
        self.producer.tick(now)
        self.consumer.tick(now)
        if self._link.until is not None and now >= self._link.until:
            self._overdue(now)
        choice = self._choice
        if choice.next_at is not None and now >= choice.next_at:
            choice.next_at = None
        if choice.next_by is not None and now >= choice.next_by:
            self._stay(now)
        if choice.probe_at is not None and now >= choice.probe_at:
            choice.probe_at = None
            self.effects.append(Probe(self._link.number))

    def _overdue(self, now: float) -> None:
        if self._link.phase is Phase.WAITING:
            self._dial(now)
            return
        if self._link.phase is not Phase.OPEN and self._choice.refused(NO_ANSWER):
            self.effects.append(Hangup(self._link.number, _GOING_AWAY))
            self._fall_back(now)
            return
        what = {
            Phase.DIALING: "no connection in time",
            Phase.GREETING: "no welcome in time",
        }.get(self._link.phase, "the server went silent")
        self._drop(self._link.number, _GOING_AWAY, ConnectionLost(what), now)

    def flush(self, now: float) -> None:
        """Put what gathered into frames, as far as the connection and the limits allow."""
        if self._link.phase is Phase.OPEN:
            for frame in self.consumer.outgoing(self._requests, now):
                self._send(frame)
            is_changing = self._choice.next is not None
            if is_changing or not self._is_leaving:
                has_fresh = not is_changing
                for publish in self.producer.outgoing(self._requests, now, has_fresh=has_fresh):
                    self._send(publish)
            if is_changing:
                is_free = not self._requests and self.producer.is_free and self.consumer.is_free
                if is_free and self._choice.next_at is None:
                    self._move(now)
            elif self._is_leaving and not self._requests and self.consumer.is_idle:
                self._leave(now)
        self._finish_if_done(now)

    def _leave(self, now: float) -> None:
        """After goaway, with nothing under way: go before we are cut off."""
        self.effects.append(Hangup(self._link.number, _GOING_AWAY))
        self._disconnect(now, ConnectionLost("the server asked us to leave"))

    # Changing the transport

    def probed(self, link: int, now: float, *, is_good: bool) -> None:
        """What became of a probe."""
        is_open = link == self._link.number and self._link.phase is Phase.OPEN
        if is_open and self._close_by is None:
            self._choice.probed(now, is_good=is_good)
            self.consumer.is_paused = is_good

    def _stay(self, now: float) -> None:
        """Not now."""
        self._choice.stay(now)
        self.consumer.unpause()

    def _move(self, now: float) -> None:
        """Nothing is under way: the other transport begins a session of its own."""
        self._give_back()
        self.effects.append(Hangup(self._link.number, _NORMAL))
        self._choice.change()
        self._session = None
        self.consumer.disconnected([])
        self._change("connecting")
        self._dial(now)

    def _fall_back(self, now: float) -> None:
        """There are no WebSockets to be had: with the session goes all it held."""
        if self._session is not None:
            self.producer.moved()
        self._session = None
        self._dial(now)

    def _give_back(self) -> None:
        """No session ends with a link of polling, so what it holds must be given back."""
        if self._choice.is_polling:
            for frame in self.consumer.surrender():
                self._send(frame)

    # The end

    def close(self, now: float, timeout_ms: int, ticket: Any = None) -> None:
        """End gracefully: take nothing more, wait for what is under way, close with 1000."""
        if self.state == "closed":
            if ticket is not None:
                self.effects.append(Resolve(ticket))
            return
        self._close_ticket = ticket if self._close_by is None else self._close_ticket
        self._close_by = now + timeout_ms
        self._choice.lost(None)
        for subscription in list(self.consumer.subscriptions):
            self.consumer.unsubscribe(subscription)
        self._finish_if_done(now)

    def _finish_if_done(self, now: float) -> None:
        if self._close_by is None or self.state == "closed" or not self.producer.is_idle:
            return
        is_open = self._link.phase is Phase.OPEN
        if self.consumer.is_quiet if is_open else self.consumer.is_idle:
            self._end(None, now)

    def _end(self, error: PushlaneError | None, now: float) -> None:
        is_wanted = self._close_by is not None
        reason = error or ConnectionLost("the client is closed")
        if self._link.phase is Phase.OPEN:
            self._give_back()
        if self._link.phase in (Phase.DIALING, Phase.GREETING, Phase.OPEN):
            self.effects.append(Hangup(self._link.number, _NORMAL))
        self._link.close()
        self.consumer.disconnected(self._requests.clear())
        self.producer.fail_all(reason)
        self.consumer.fail_all(reason)
        self.error = None if is_wanted else error
        if self._start_ticket is not None:
            self.effects.append(Reject(self._start_ticket, reason))
            self._start_ticket = None
        self._change("closed")
        if self._close_ticket is not None:
            self.effects.append(Resolve(self._close_ticket))
            self._close_ticket = None

    # Small things

    def _change(self, state: State) -> None:
        if state != self.state:
            self.state = state
            self.effects.append(StateChanged(state, self.error))

    def _send(self, frame: frames.ClientFrame) -> None:
        self.effects.append(Send(self._link.number, self._codec.encode(frame)))
