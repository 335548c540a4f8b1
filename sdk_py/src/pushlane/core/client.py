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
to send. A server that closes says whether to come back (link.py); after its goaway we always do.

Where there is no WebSocket to be had (choice.py) the frames are the same, and HTTP requests carry
them (pipe.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pushlane.wire import frames
from pushlane.wire.codec import JSON, Codec
from pushlane.wire.errors import BadFrame, ConnectionLost, NotAFrame, PushlaneError, error_for
from pushlane.wire.limits import Limits

from .choice import NO_ANSWER, Choice, Wish
from .effects import AnyEffect, Dial, Hangup, Probe, Reject, Resolve, Send, State, StateChanged
from .lease import Lease
from .link import ABNORMAL, GOING_AWAY, NORMAL, PROTOCOL_ERROR, Link, Phase, parting
from .session import Session
from .settings import DEFAULTS, Settings
from .settle import Key
from .subscription import AckMode, Subscription

_UNANSWERED = "the client was closed before the answer came"


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
        self._session = Session(settings, self.effects, random, producer, name)
        self.producer = self._session.producer
        self.consumer = self._session.consumer
        self._wished_codec = codec
        self._codec = codec
        """That of this connection: pipes carry JSON only."""
        self._link = Link(settings, random)
        self._choice = Choice(transport, settings, random)
        self._start_ticket: Any = None
        self._last_error: PushlaneError | None = None
        """What the server said of this connection, or why the last attempt failed."""
        self._is_leaving = False
        """Between goaway and the end of this connection."""
        self._close_tickets: list[Any] = []
        self._close_by: float | None = None
        self._patient_until: float | None = None
        """For one that is closed: how long it waits for more than it needs; None: no longer."""

    @property
    def was_open(self) -> bool:
        """The server was there once, and may be again."""
        return self._session.id is not None

    @property
    def limits(self) -> Limits:
        """The server's, or what is usual before its welcome."""
        return self._session.limits

    # Starting, and what happens to connections

    def start(self, now: float, ticket: Any = None) -> None:
        """Connect; the ticket resolves with the first welcome."""
        assert self._link.phase is Phase.IDLE
        self._start_ticket = ticket
        self._link.give_up_at = now + self.settings.connect_ms
        self._dial(now)

    def _dial(self, now: float) -> None:
        choice = self._choice
        self._codec = JSON if choice.is_polling else self._wished_codec
        link = self._link.dial(now, is_upgrade_unsure=not choice.is_made)
        self.effects.append(Dial(link, choice.transport))

    def connected(self, link: int, token: str | None, now: float) -> None:
        """The socket of this link is open."""
        if link != self._link.number or self._link.phase is not Phase.DIALING:
            self.effects.append(Hangup(link, GOING_AWAY))
            return
        self._link.greet()
        self._send(self._session.hello(token))

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
                self._drop(fault, now, PROTOCOL_ERROR)
        self.heard(link, now)

    def heard(self, link: int, now: float) -> None:
        """Any byte arrived: the server is alive."""
        if link == self._link.number:
            self._link.heard(now)

    def lost(
        self, link: int, now: float, *, code: int = ABNORMAL, reason: str = "",
        error: PushlaneError | None = None, refused: int | None = None,
    ) -> None:  # fmt: skip
        """The connection is gone, or the attempt failed; `error` where more is known. `refused`:
        the HTTP status in place of an upgrade, NO_ANSWER for none; None: it was not asked for."""
        if link != self._link.number or self._link.phase in (Phase.CLOSED, Phase.WAITING):
            return
        if self._link.phase is Phase.GREETING and code == ABNORMAL and error is None:
            refused = NO_ANSWER
        if refused is not None and self._choice.doubts(refused):
            if self._choice.refused(refused):
                self._dial(now)
                return
            error = error and ConnectionLost(error.message, error.retry_ms)  # it may pass
        fault = error or self._last_error
        end = parting(code, reason, fault, is_leaving=self._is_leaving)
        if end.is_final:
            if not self._repents(now):
                self._link.close()
                self._end(end.error, now)
            return
        is_open = self._link.phase is Phase.OPEN
        was_cut = is_open and code == ABNORMAL and fault is None and not self._is_leaving
        self._disconnect(now, end.error, now - self._link.opened_at if was_cut else None)

    def _repents(self, now: float) -> bool:
        """The server wants nothing of us: whether we try it the other way."""
        if self._link.phase is not Phase.GREETING or not self._choice.repent():
            return False
        self._turn(now)
        return True

    def _drop(self, fault: PushlaneError, now: float, code: int = GOING_AWAY) -> None:
        """Cut the connection ourselves, and come back."""
        self.effects.append(Hangup(self._link.number, code))
        self._disconnect(now, ConnectionLost(fault.message, fault.retry_ms))

    def _disconnect(self, now: float, error: PushlaneError, cut_at: float | None = None) -> None:
        """`cut_at`: how old the connection was when somebody cut it."""
        self._choice.lost(cut_at)
        self._unlink(now)
        self._link.wait(now, error.retry_ms)
        if self._link.is_hopeless:
            self._end(error, now)
        else:
            self._change("connecting")
            self._finish_if_done(now)

    def _unlink(self, now: float) -> None:
        if self._link.phase is Phase.OPEN:
            self._patient_until = now + self.settings.away_ms
        self._session.disconnected()
        self._is_leaving = False
        self._last_error = None

    # Frames from the server

    def _take(self, frame: frames.ServerFrame, now: float) -> None:
        match frame:
            case frames.Welcome():
                self._welcome(frame, now)
            case frames.Goaway():
                self._is_leaving = True
                self._link.reconnect_ms = frame.reconnect_ms
            case frames.ErrorFrame():
                self._error(frame, now)
            case frames.Beat():
                pass
            case _:
                self._session.take(frame, now)

    def _welcome(self, frame: frames.Welcome, now: float) -> None:
        if self._link.phase is not Phase.GREETING:
            return
        self._link.open(now, frame.heartbeat_ms)
        self._patient_until = now + self.settings.hangup_ms
        self._session.welcomed(frame, now)
        self._choice.welcomed(now)
        self._change("polling" if self._choice.is_polling else "open")
        if self._start_ticket is not None:
            self.effects.append(Resolve(self._start_ticket))
            self._start_ticket = None

    def _error(self, frame: frames.ErrorFrame, now: float) -> None:
        error = error_for(frame.code, frame.message, frame.retry_ms)
        if self._link.phase is Phase.GREETING:
            if error.info.retry:
                self._drop(error, now)
            elif not self._repents(now):
                self._end(error, now)
        elif not self._session.refused(frame.id, error, now):
            self._last_error = error if error.info.close_code is not None else None

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
        return self.consumer.subscriber.subscribe(queue, credit, ack, lease_ms, ticket)

    def unsubscribe(self, subscription: Subscription, ticket: Any = None) -> None:
        """No more messages of this one; the ticket resolves when the server knows."""
        self.consumer.subscriber.unsubscribe(subscription, ticket)
        if not self.consumer.is_connected:
            self.consumer.dismiss()

    def take(self, subscription: Subscription, now: float) -> Lease | None:
        """The next message to work on, if there is one and it may begin now. Then flush."""
        if self._close_by is not None:
            return None
        return self.consumer.take(subscription, now)

    def settle(self, lease: Lease, key: Key, ticket: Any = None) -> None:
        """Ack, nack or extend; the ticket resolves on the server's word."""
        self.consumer.settler.settle(lease, key, ticket)

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
        wake_at = self._session.wake_at()
        patient_until = None if self._close_by is None else self._patient_until
        times = (self._link.until, self._choice.probe_at, self._close_by, patient_until, wake_at)
        return min((at for at in times if at is not None), default=None)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._link.phase is Phase.CLOSED:
            return
        if self._close_by is not None and now >= self._close_by:
            self._end(ConnectionLost(_UNANSWERED), now)
            return
        if self._patient_until is not None and now >= self._patient_until:
            self._patient_until = None
        self._session.tick(now)
        if self._link.until is not None and now >= self._link.until:
            self._overdue(now)
        choice = self._choice
        if choice.probe_at is not None and now >= choice.probe_at:
            choice.probe_at = None
            self.effects.append(Probe(self._link.number))

    def _overdue(self, now: float) -> None:
        if self._link.phase is Phase.WAITING:
            self._dial(now)
        elif self._link.phase is not Phase.OPEN and self._choice.refused(NO_ANSWER):
            self._turn(now)
        else:
            self._drop(ConnectionLost(self._link.lateness), now)

    def flush(self, now: float) -> None:
        """Put what gathered into frames, as far as the connection and the limits allow."""
        if self._link.phase is Phase.OPEN:
            for frame in self._session.outgoing(now, has_publishes=not self._is_leaving):
                self._send(frame)
            if self._is_leaving and self._session.may_leave:
                self._drop(ConnectionLost("the server asked us to leave"), now)
        self._finish_if_done(now)

    # Changing the transport

    def probed(self, link: int, now: float, *, is_good: bool) -> None:
        """What became of a probe: when it was good the session is taken up there."""
        is_open = link == self._link.number and self._link.phase is Phase.OPEN
        if not is_open or self._close_by is not None:
            return
        if is_good:
            self._choice.change()
            self._turn(now)
        else:
            self._choice.probe_later(now)

    def _turn(self, now: float) -> None:
        """Drop this connection for one of the other kind."""
        self.effects.append(Hangup(self._link.number, GOING_AWAY))
        self._unlink(now)
        self._change("connecting")
        self._dial(now)

    # The end

    def close(self, now: float, timeout_ms: int, ticket: Any = None) -> None:
        """End gracefully: take nothing more, wait for what is under way, close with 1000.

        Handlers have all the time there is, and so have answers of a server that is there. What
        nobody misses, the goodbye of subscriptions, has `hangup_ms`; a server that is not there has
        `away_ms` to come back, and only when an answer of it is missed."""
        if self.state == "closed":
            if ticket is not None:
                self.effects.append(Resolve(ticket))
            return
        if ticket is not None:
            self._close_tickets.append(ticket)
        self._close_by = now + timeout_ms
        settings, is_open = self.settings, self._link.phase is Phase.OPEN
        self._patient_until = now + (settings.hangup_ms if is_open else settings.away_ms)
        self._choice.probe_at = None
        for subscription in list(self.consumer.subscriptions):
            self.consumer.subscriber.unsubscribe(subscription)
        self._finish_if_done(now)

    def _finish_if_done(self, now: float) -> None:
        if self._close_by is None or self.state == "closed":
            return
        is_open, is_patient = self._link.phase is Phase.OPEN, self._patient_until is not None
        if self._session.is_done(is_open=is_open, is_patient=is_patient):
            self._end(ConnectionLost(_UNANSWERED), now)

    def _end(self, error: PushlaneError | None, now: float) -> None:
        is_wanted = self._close_by is not None
        reason = error or ConnectionLost("the client is closed")
        if self._link.phase in (Phase.DIALING, Phase.GREETING, Phase.OPEN):
            self.effects.append(Hangup(self._link.number, NORMAL))
        self._link.close()
        self._session.fail_all(reason)
        self.error = None if is_wanted else error
        if self._start_ticket is not None:
            self.effects.append(Reject(self._start_ticket, reason))
            self._start_ticket = None
        self._change("closed")
        self.effects += [Resolve(ticket) for ticket in self._close_tickets]
        self._close_tickets.clear()

    # Small things

    def _change(self, state: State) -> None:
        if state != self.state:
            self.state = state
            self.effects.append(StateChanged(state, self.error))

    def _send(self, frame: frames.ClientFrame) -> None:
        self.effects.append(Send(self._link.number, self._codec.encode(frame)))
