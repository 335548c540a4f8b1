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

from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.session.connection import Connection
from pushlane_gateway.session.context import SessionContext
from pushlane_gateway.session.link import Link
from pushlane_gateway.session.session import Session

LOOK_S = 0.02
"""How often a server that drains looks who is done."""


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
        session = Session(secrets.token_urlsafe(16), identity, self.context)
        session.permit = permit
        session.connection = connection
        self._sessions[session.id] = session
        return session

    def find(self, id: str, identity: Identity) -> Session | None:
        """The session of this id, if it is still there and theirs."""
        session = self._sessions.get(id)
        if session is None or not session.identity.is_same(identity):
            self.context.metrics.resumes.add("unknown")
            return None
        return session

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
        self._detached[session.id] = session

    def _no_longer_detached(self, session: Session) -> None:
        if self._detached.pop(session.id, None) is not None:
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
        self._sessions.pop(session.id, None)
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
            self._forget(session)
            session.end()
