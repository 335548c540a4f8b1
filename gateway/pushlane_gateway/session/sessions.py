"""The sessions of a server: begun, resumed, left, drained.

A session whose connection dropped waits for its client; shards end what it holds at the same time
by themselves, so here it is only forgotten. Only who began a session (the same tenant, key and
subject, perhaps with a renewed token) takes it up again: to know its id is not enough.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable
from functools import partial

import trio

from pushlane.wire.frames import Ended
from pushlane_dispatcher.port import SharedSessions
from pushlane_gateway.auth.admission import Permit
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.session.connection import Connection
from pushlane_gateway.session.context import SessionContext
from pushlane_gateway.session.link import Link
from pushlane_gateway.session.record import Keeper, SessionRecord, read_record
from pushlane_gateway.session.session import Session, reference

LOOK_S = 0.02
"""How often a server that drains looks who is done."""
COME_AGAIN = "unavailable"
TAKES = 5
"""How often a session is tried to be taken over that others take over at the same time."""


class Sessions:
    def __init__(self, context: SessionContext, connections: int = 20_000) -> None:
        """`connections` may be open at once: WebSockets share them."""
        self.context = context
        settings, admission = context.settings, context.admission
        admission.limit("connections", connections, "connections")
        admission.limit("sessions", settings.sessions, "sessions")
        self._waiting = admission.limit("detached", settings.detached, "sessions to resume")
        self.draining = False
        self.wire_limits = context.limits.wire()
        self._sessions: dict[str, Session] = {}
        """By the names that others know, which are no secrets."""
        self._shared = shared = context.dispatcher.sessions
        self._keeper = None if shared is None else Keeper(shared, context, self.superseded)
        if shared is not None:
            shared.on_yield(self._yield)
        self._detached: dict[str, Session] = {}
        """Those without a connection, the one that waits longest first."""
        self._connections: set[Connection] = set()
        self._empty: trio.Event | None = None
        """Set when the last connection of a server that closes is gone."""
        metrics = context.metrics
        metrics.gauge("connections", "Open WebSockets and pipes.", lambda: len(self._connections))
        metrics.gauge("sessions", "Sessions, connected or not.", lambda: len(self._sessions))
        metrics.gauge("sessions_detached", "Sessions to resume.", lambda: len(self._detached))

    def __len__(self) -> int:
        return len(self._sessions)

    def handle(self, socket: Link) -> Awaitable[None]:
        """Serve a socket until it closes: the listener awaits this in the socket's own task."""
        connection = Connection(socket, self)
        self._connections.add(connection)
        return connection.run()

    def begin(self, connection: Connection, identity: Identity) -> Session:
        """A new session. Raises Throttled."""
        permit = self.context.admission.admit(identity, "sessions")
        keeper = None if self._keeper is None else self
        session = Session(secrets.token_urlsafe(16), identity, self.context, keeper=keeper)
        session.permit = permit
        session.connection = connection
        self._sessions[session.ref] = session
        return session

    async def find(self, id: str, identity: Identity) -> Session | None:
        """The session of this id, if it is still there and theirs. Raises Throttled."""
        session = self._here(id)
        if self._shared is not None:
            session = await self._newest(self._shared, id, identity)
        if session is None or not session.identity.is_same(identity):
            self.context.metrics.resumes.add("unknown")
            return None
        return session

    def _here(self, id: str) -> Session | None:
        session = self._sessions.get(reference(id))
        return session if session is not None and session.id == id else None

    # Sessions that go on at another server

    async def _newest(self, shared: SharedSessions, id: str, identity: Identity) -> Session | None:
        """The session as its client had it last: here, or at another server. Raises Throttled."""
        for _ in range(TAKES):
            kept = await shared.get(id)
            here = self._here(id)
            if kept is None or (here is not None and here.term >= kept.term):
                if here is not None:
                    here.unsure = kept is None
                return here
            record = read_record(kept.record)
            if record is None or not record.is_of(identity):
                return None
            permit: Permit | None = self.context.admission.admit(identity, "sessions")
            try:
                taken = await shared.take(id, kept.term)
                if taken:
                    term = kept.term + 1
                    newer = await shared.ask_to_yield(record.process, reference(id), term)
                    if newer is not None:
                        record = read_record(newer) or record
                    session = self._take_over(id, identity, term, record)
                    if session is not None:
                        session.permit, permit = permit, None
                    return session
            finally:
                if permit is not None:
                    permit.release()
            if taken is None:
                return None
        return None

    def _take_over(
        self, id: str, identity: Identity, term: int, record: SessionRecord
    ) -> Session | None:
        """None: its client came here on another connection, and later."""
        here = self._here(id)
        if here is not None and here.term > term:
            return None
        if here is not None:
            self._leave(here)
        session = Session(id, identity, self.context, term, self)
        session.client, session.producer = record.client, record.producer
        session.next_sub = record.next_sub
        session.take_over(record.subs, [Ended(*one) for one in record.missed])
        self._sessions[session.ref] = session
        session.changed()
        self._wait_for_client(session)
        return session

    def changed(self, session: Session) -> None:
        """What another server would have to know of it."""
        if self._keeper is not None:
            self._keeper.changed(session)

    def superseded(self, session: Session) -> None:
        """It goes on at another server."""
        if self._sessions.get(session.ref) is session:
            self._leave(session)

    def _yield(self, ref: str, term: int) -> bytes | None:
        """Another server takes over a session. Its record, if it was here."""
        session = self._sessions.get(ref)
        if session is None or session.term >= term or self._keeper is None:
            return None
        record = self._keeper.record(session)
        self._leave(session)
        return record

    def _leave(self, session: Session) -> None:
        """To another server, which has it or may have it.

        A client that came here while we could not ask was there before, perhaps: then it comes
        again, and gets what that server has.
        """
        self.context.metrics.resumes.add("elsewhere")
        if self._keeper is not None:
            self._keeper.forget(session)
        connection = session.connection
        self._forget(session)
        session.leave()
        if connection is not None:
            connection.close(4001, COME_AGAIN if session.unsure else None)

    def take_up(self, session: Session) -> None:
        """It goes on with another connection: the old one closes."""
        self.context.metrics.resumes.add("resumed")
        self._no_longer_detached(session)
        if session.connection is not None:
            session.connection.close(4001)

    def left(self, connection: Connection, clean: bool) -> None:
        """A connection is gone. `clean`: its client ended the session."""
        self._connections.discard(connection)
        if not self._connections and self._empty is not None:
            self._empty.set()
        session = connection.session
        if session is None or session.connection is not connection:
            return
        if clean:
            self._forget(session)
            session.end()
            return
        self._wait_for_client(session)

    def _wait_for_client(self, session: Session) -> None:
        session.detach()
        self._detach(session)
        assert session.away_until is not None
        expire = partial(self._expire, session, session.away_until)
        self.context.timers.at(session.away_until, expire)

    def _detach(self, session: Session) -> None:
        """It waits for its client. For want of room another one ends: one of who has too many."""
        session.waits_for = claims = session.claims
        refusal = self._waiting.refusal(claims)
        if refusal is not None:
            self.context.metrics.refused_limit(refusal)
            claim = self._waiting.over(claims)
            self._give_up(
                next(
                    other
                    for other in self._detached.values()
                    if claim is None or claim in other.waits_for
                )
            )
        self._waiting.take(claims)
        self._detached[session.ref] = session

    def _no_longer_detached(self, session: Session) -> None:
        if self._detached.pop(session.ref, None) is not None:
            self._waiting.give_back(session.waits_for)

    def _expire(self, session: Session, away_until: float) -> None:
        if session.away_until == away_until:  # else it was resumed, and perhaps dropped again
            self.context.metrics.limits.add("resume_ms")
            self._give_up(session)

    def _give_up(self, session: Session) -> None:
        """Nobody may resume it any more."""
        self._forget(session)
        session.abandon()

    def _forget(self, session: Session) -> None:
        if self._sessions.get(session.ref) is session:
            del self._sessions[session.ref]
        if self._keeper is not None:
            self._keeper.ended(session)
        self._no_longer_detached(session)
        if session.permit is not None:
            session.permit.release()

    def keys_changed(self) -> None:
        """Sessions of keys that are no longer valid end."""
        for connection in self._connections:
            connection.check_identity()

    # The end

    async def drain(self) -> None:
        """Tell everybody to go, let them settle for a while, and close."""
        settings = self.context.settings
        self.draining = True
        for connection in self._connections:
            connection.goaway("drain")
        with trio.move_on_after(settings.drain_ms / 1000):
            while self._connections:
                for connection in self._connections:
                    if connection.quiet:
                        connection.close(1001)
                await trio.sleep(LOOK_S)
        await self._close_all()

    async def _close_all(self) -> None:
        for connection in self._connections:
            connection.close(1001)
        self._empty = trio.Event()
        if self._connections:
            with trio.move_on_after(self.context.settings.close_ms / 1000):
                await self._empty.wait()
        for connection in self._connections:
            connection.socket.abort()
        for session in list(self._sessions.values()):
            if self._keeper is not None and session in self._keeper:
                self._leave(session)
            else:
                self._forget(session)
                session.end()
