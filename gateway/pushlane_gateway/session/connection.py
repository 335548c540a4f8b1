"""A connection: one socket of a session, from its hello to its end.

One task reads the socket and takes its frames in order. Nothing else of it is a task: beats, the
time for hello and the end of a token are timers that all connections share; only a socket whose
outbox is over its limit gets a task of its own that watches it drain.

Whatever a client sends at once, others have their turn after `TURN_S` of work on it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import trio

from pushlane.wire.errors import (
    CLOSES,
    BadFrame,
    BadRequest,
    Internal,
    NotAFrame,
    PushlaneError,
    Throttled,
    Unauthorized,
    Unavailable,
)
from pushlane.wire.frames import (
    Beat,
    ClientFrame,
    ErrorFrame,
    Goaway,
    Hello,
    ServerFrame,
    Welcome,
    error_frame,
)
from pushlane.wire.receipts import ReceiptRun, render_all
from pushlane.wire.validate import check_hello
from pushlane_dispatcher.port import owned_producer
from pushlane_gateway.auth.admission import Permit
from pushlane_gateway.auth.authenticator import bearer
from pushlane_gateway.auth.identity import ANONYMOUS, Identity
from pushlane_gateway.session.link import Link, SocketClosed
from pushlane_gateway.session.requests import Requests
from pushlane_gateway.session.session import Session

if TYPE_CHECKING:
    from pushlane_gateway.session.sessions import Sessions

log = logging.getLogger(__name__)

TURN_S = 0.002
"""How long frames of one client are taken before others have their turn. Some hundred ordinary
ones are faster, and a switch of tasks for each handful would cost more than they do."""


class Connection:
    def __init__(self, socket: Link, sessions: Sessions) -> None:
        self.socket = socket
        self.session: Session | None = None
        self.going = False
        """It was told to go away."""
        self.over = False
        """We closed it: what still comes in no longer counts."""
        self._sessions = sessions
        self._context = context = sessions.context
        self._metrics = context.metrics
        self._requests: Requests | None = None
        self._greeted = False
        """Its hello was taken."""
        self._begun: trio.Event | None = None
        """Set when it was welcomed, while what comes behind its hello waits for that."""
        self._early: list[tuple[str, bytes]] | None = None
        """What the session says before its client was welcomed, while that has to wait …"""
        self._early_bytes = 0
        """… and how much it is."""
        self._encode = socket.codec.encode
        self._permit: Permit | None = None
        self._counted: str | None = None
        """The tenant of whose connections it is one."""
        self._flowing: trio.Event | None = None
        """Set when the outbox has drained, while it is watched."""

    # Reading

    async def run(self) -> None:
        context = self._context
        context.timers.at(trio.current_time() + context.limits.hello_ms / 1000, self._hello_late)
        clean = False
        try:
            await self._serve()
        except SocketClosed as closed:
            if self._requests is not None:
                await self._requests.taken()  # it was sent before the end
            clean = closed.clean and not self.over
        except Exception as error:
            self.failed(error)
        finally:
            self._end()
            self.leave()
            if self._counted is not None:
                self._context.dispatcher.disconnected(self._counted)
            self._sessions.left(self, clean)

    def leave(self) -> None:
        """Give up its place among all connections: it is over, or another one takes its place."""
        if self._permit is not None:
            self._permit.release()

    def failed(self, error: Exception) -> None:
        """By a bug of ours."""
        log.error("a session failed: %s", self._who, exc_info=error)
        self._metrics.faults += 1
        self.send_error(Internal("a bug of the server ended this session"))
        self.close(1011)

    @property
    def _who(self) -> str:
        """For the log: what the client calls itself, and what `consumers` shows of its session."""
        session = self.session
        return "no session yet" if session is None else f"{session.client!a} ({session.ref})"

    async def _serve(self) -> None:
        receive, most = self.socket.receive, self._context.settings.outbox_bytes
        self._look_at_header()
        while True:
            messages = await receive()
            turn = perf_counter() + TURN_S
            for number, data in enumerate(messages):
                if not number & 15 and perf_counter() > turn:  # to ask costs a bit, too
                    await trio.lowlevel.checkpoint()
                    turn = perf_counter() + TURN_S
                frame = self._decode(data)
                if frame is None:
                    continue
                if self._requests is None:
                    await self._hello(frame)
                    continue
                self._requests.take(frame)
                if self._requests.crowded and not self.over:
                    await self._requests.room()
            if self.socket.outbox_bytes > most:
                self.watch_outbox()
                if self._flowing is not None:
                    await self._flowing.wait()

    def _decode(self, data: bytes) -> ClientFrame | None:
        if self.over:
            return None
        try:
            frame = self.socket.codec.decode_client(data)
        except NotAFrame as error:
            self.send_error(error)
            self.close(error.close_code)
        except BadFrame as error:
            if self._requests is None:
                self._turn_away(error)
            else:
                self._requests.bad_frame(error)
        else:
            self._metrics.frames_in.counts[str(frame.__struct_config__.tag)] += 1
            return frame
        return None

    # Hello

    def _look_at_header(self) -> None:
        """Who says with the request who they are may begin with a large hello."""
        if self.socket.authorization is not None:
            with suppress(Unauthorized):  # the hello may have another token
                self._admit(self._context.authenticate(bearer(self.socket.authorization)))

    def _admit(self, identity: Identity) -> None:
        known = identity is not ANONYMOUS
        self.socket.admit(self._context.admission.claims(identity) if known else None)

    def _hello_late(self) -> None:
        if not self._greeted and not self.over:
            self._metrics.limits.add("hello_ms")
            late = f"no hello within {self._context.limits.hello_ms} ms: connect again"
            self._turn_away(Unavailable(late))

    def _turn_away(self, error: PushlaneError) -> None:
        self._context.failed_logins.note(self.socket.peer, error)
        self.send_error(error)
        self.close(1008, error.code)

    async def _hello(self, frame: ClientFrame) -> None:
        """What comes behind it waits until it is answered."""
        self._greeted = True
        if not isinstance(frame, Hello):
            self._turn_away(BadRequest("the first frame must be hello"))
            return
        try:
            identity = self._context.authenticate(frame.token or bearer(self.socket.authorization))
            held = check_hello(frame, self._context.limits)
        except (BadRequest, Unauthorized) as error:
            self._turn_away(error)
            return
        if self._sessions.draining:
            self.goaway("drain")
            self.close(1001, "drain")
            return
        self._admit(identity)
        try:
            await self._welcome(frame, identity, held)
        except Throttled as error:
            self._metrics.refused_limit(error)
            self.goaway("overload")
            self.close(1013, "overload")
        if self._requests is None and not self.over:
            self._begun = trio.Event()
            await self._begun.wait()

    def _take_place(self, identity: Identity, session: Session | None) -> None:
        """Among all connections: of who resumes, that of the older one, which is over then.

        Raises Throttled; then the older one lives on, and has its place.
        """
        admission, old = self._context.admission, None if session is None else session.connection
        if session is None or old is None:
            self._permit = admission.admit(identity, self.socket.limit)
            return
        old.leave()
        try:
            self._permit = admission.admit(identity, self.socket.limit)
        except Throttled:
            old._permit = admission.admit(session.identity, old.socket.limit)
            raise

    async def _welcome(
        self, hello: Hello, identity: Identity, held: dict[int, list[ReceiptRun]]
    ) -> None:
        """Raises Throttled when there is no room for it."""
        sessions, session = self._sessions, None
        if hello.resume is not None:
            session = await sessions.find(hello.resume.session, identity)
            if self.over:
                return
        self._take_place(identity, session)
        self._counted = identity.tenant
        self._context.dispatcher.connected(identity.tenant)
        if session is None:
            self._begin(hello, sessions.begin(self, identity), {}, resumed=False)
        else:
            sessions.take_up(session)
            self.session, self._early = session, []
            begin = partial(self._begin, hello, session, resumed=True)
            session.resume(self, identity, held, begin)

    def _begin(
        self, hello: Hello, session: Session, lost: dict[int, list[ReceiptRun]], *, resumed: bool
    ) -> None:
        """Welcome it; `lost` is what it lists and has no longer."""
        if self.over:
            return
        context, identity = self._context, session.identity
        session.client = hello.client or session.client
        if hello.producer:
            session.producer = owned_producer(hello.producer, identity.key)
        self.session = session
        self._requests = Requests(self, session)
        early, self._early = self._early, None
        self.send(
            Welcome(
                session.id,
                context.node,
                context.server,
                resumed,
                context.clock.system(),
                context.limits.resume_ms,
                context.limits.heartbeat_ms,
                self._sessions.wire_limits,
                {str(sub): render_all(receipts) for sub, receipts in lost.items()},
            )
        )
        if early:
            self._catch_up(session, early)
        if resumed:
            session.resumed()
            if hello.client or hello.producer:
                session.changed()
        self._check()
        if self._begun is not None:
            self._begun.set()

    def _catch_up(self, session: Session, early: list[tuple[str, bytes]]) -> None:
        """Say what had to wait for the welcome."""
        for op, frame in early:
            self.send_encoded(op, frame)
        if session.paused and not self.going:
            session.pause(False)
        self.watch_outbox()

    # Time

    def _check(self) -> None:
        """Beat when nothing was sent for long, and end with the token."""
        if self.over or self.session is None:
            return
        context = self._context
        now, silence = trio.current_time(), context.limits.heartbeat_ms / 1000
        expires_at = self.session.identity.expires_at
        next_at = max(now, self.socket.last_sent_at) + silence
        if self.socket.last_sent_at + silence <= now:
            self.send(Beat(context.clock.system()))
        else:
            next_at = self.socket.last_sent_at + silence
        if expires_at is not None and not self.going:
            left = (expires_at - context.clock.system()) / 1000
            if left <= 0:
                self.goaway("token_expired")
                context.timers.at(now + context.settings.goaway_ms / 1000, self._expired)
            else:
                next_at = min(next_at, now + left)
        context.timers.at(next_at, self._check)

    def check_identity(self) -> None:
        """Keys have changed: is it still somebody?"""
        if self.session is not None and not self._context.still_valid(self.session.identity):
            self._turn_away(Unauthorized("the key of this session is no longer valid"))

    def _expired(self) -> None:
        self.close(1001, "token_expired")

    # Writing

    def send(self, frame: ServerFrame) -> None:
        if self.over:
            return
        op = str(frame.__struct_config__.tag)
        if self._early is not None and not isinstance(frame, ErrorFrame | Goaway):
            self._early.append((op, self._encode(frame)))
            return
        self._metrics.frames_out.counts[op] += 1
        self.socket.send(self._encode(frame))

    def send_encoded(self, op: str, frame: bytes) -> None:
        if self._early is not None:
            self._early.append((op, frame))
            self._early_bytes += len(frame)
        elif not self.over:
            self._metrics.frames_out.counts[op] += 1
            self.socket.send(frame)

    def send_error(self, error: PushlaneError, request: str | None = None) -> None:
        self._metrics.refused(error)
        self.send(error_frame(error, request=request))

    def goaway(self, reason: str) -> None:
        """From now on the client may only settle."""
        if self.going or self.over:
            return
        self.going = True
        self._metrics.goaways.add(reason)
        if reason == "slow_consumer":
            log.info("%s reads too slowly: it is told to go away", self._who)
        pause = self._context.settings.reconnect_ms
        self.send(Goaway(reason, int(pause * (1 + self._context.chance()))))
        if self.session is not None:
            self.session.pause(True)

    def send_away(self) -> None:
        """`goaway`, time to settle, and the end."""
        if not self.going:
            self.goaway("drain")
            later = trio.current_time() + self._context.settings.goaway_ms / 1000
            self._context.timers.at(later, self._gone)

    def _gone(self) -> None:
        self.close(1001, "drain")

    def close(self, code: int, reason: str | None = None) -> None:
        """Close after what was sent. Nothing that comes in counts any more."""
        if not self.over:
            self._end()
            self.socket.close(code, CLOSES[code].reason if reason is None else reason)

    def _end(self) -> None:
        self.over = True
        if self._requests is not None:
            self._requests.close()
        if self._begun is not None:
            self._begun.set()

    @property
    def quiet(self) -> bool:
        """Nothing is due: no answer, no settle."""
        if self._requests is None or self.session is None:
            return True
        return not self._requests.unanswered and not self.session.held

    # Slow readers

    def watch_outbox(self) -> None:
        """See whether too much waits to be written, and to it that it gets less."""
        if self.over or self._flowing is not None:
            return
        if self._early is not None:
            if self._early_bytes > self._context.settings.outbox_bytes and self._mine is not None:
                self._mine.pause(True)
            return
        if self.socket.outbox_bytes > self._context.settings.outbox_bytes:
            self._metrics.limits.add("outbox_bytes")
            self._flowing = trio.Event()
            if self.session is not None:
                self.session.pause(True)
            self._context.nursery.start_soon(self._until_drained, self._flowing)

    async def _until_drained(self, flowing: trio.Event) -> None:
        settings = self._context.settings
        try:
            with trio.move_on_after(settings.slow_ms / 1000) as patience:
                await self.socket.drain(settings.outbox_bytes // 2)
            if patience.cancelled_caught:
                self._too_slow()
            elif self._mine is not None and not self.going:
                self._mine.pause(False)
        except SocketClosed:
            pass
        finally:
            self._flowing = None
            flowing.set()

    def _too_slow(self) -> None:
        self._metrics.limits.add("slow_ms")
        self.goaway("slow_consumer")
        self.close(4002)

    @property
    def _mine(self) -> Session | None:
        """The session, unless another connection took it over."""
        session = self.session
        return session if session is not None and session.connection is self else None
