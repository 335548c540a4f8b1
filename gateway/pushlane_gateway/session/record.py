"""Records of sessions: what another gateway of a cluster needs to go on with one.

They stand in the lease cache, written soon after each change and again before they run out there.
A keeper writes at most one record of a session at a time, and none on a message's way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import trio

from pushlane_dispatcher.port import Kept, SharedSessions
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.session.context import SessionContext
from pushlane_gateway.session.session import Session


class SessionRecord(msgspec.Struct, frozen=True, array_like=True):
    process: str
    """Of the node that has it."""
    tenant: str
    key: str | None
    subject: str | None
    client: str | None
    producer: str | None
    next_sub: int
    subs: dict[int, Kept]
    missed: list[tuple[int, str, str]]
    """Subs that ended, of which its client has not heard yet: number, code, message."""

    @classmethod
    def of(cls, session: Session, process: str) -> SessionRecord:
        who = session.identity
        return cls(
            process, who.tenant, who.key, who.subject, session.client, session.producer,
            session.next_sub, {number: sub.feed.kept() for number, sub in session.subs.items()},
            [(one.sub, one.code, one.message) for one in session.missed],
        )  # fmt: skip

    def is_of(self, identity: Identity) -> bool:
        """Whether it is the same party's (`Identity.is_same`)."""
        began = Identity("", self.tenant, (), key=self.key, subject=self.subject)
        return began.is_same(identity)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SessionRecord).decode


def read_record(record: bytes) -> SessionRecord | None:
    """None: another version wrote it, in a way that this one doesn't know."""
    try:
        return _decode(record)
    except msgspec.DecodeError:
        return None


class Note:
    """What the keeper knows of one session."""

    __slots__ = ("due", "refreshing", "written_at")

    def __init__(self) -> None:
        self.due = False
        """It is going to be written, or is being written."""
        self.refreshing = False
        """Somebody will look whether it must be written again."""
        self.written_at = -1e9


class Keeper:
    def __init__(
        self, shared: SharedSessions, context: SessionContext, superseded: Callable[[Session], None]
    ) -> None:
        """`superseded` is told of sessions that others have taken over."""
        self._shared = shared
        self._context = context
        self._superseded = superseded
        self._notes: dict[Session, Note] = {}
        # It must still be there when its client comes back after its gateway died unseen.
        self._keep_s = max(context.settings.record_ms, 4 * context.limits.resume_ms) / 1000

    def __len__(self) -> int:
        return len(self._notes)

    def __contains__(self, session: Session) -> bool:
        """It can be taken up elsewhere, unless the cache is away."""
        return session in self._notes

    def changed(self, session: Session) -> None:
        """Write it soon."""
        note = self._notes.get(session)
        if note is None:
            note = self._notes[session] = Note()
        if not note.due:
            note.due = True
            pause = self._context.settings.record_pause_ms / 1000
            at = max(trio.current_time(), note.written_at + pause)
            self._context.timers.at(at, partial(self._write_soon, session, note))

    def record(self, session: Session) -> bytes:
        """As it is now."""
        return _encode(SessionRecord.of(session, self._shared.process))

    def forget(self, session: Session) -> None:
        """Somebody else has it: what stands there is theirs."""
        self._notes.pop(session, None)

    def ended(self, session: Session) -> None:
        """Nobody can take it up any more."""
        if self._notes.pop(session, None) is not None:
            self._context.nursery.start_soon(self._shared.drop, session.id, session.term)

    def _write_soon(self, session: Session, note: Note) -> None:
        if self._notes.get(session) is note:
            self._context.nursery.start_soon(self._write, session, note)

    async def _write(self, session: Session, note: Note) -> None:
        note.due = False  # what changes from now on is written after this
        note.written_at = trio.current_time()
        record, keep_ms = self.record(session), int(self._keep_s * 1000)
        put = await self._shared.put(session.id, session.term, record, keep_ms)
        if self._notes.get(session) is not note:
            if put and session.over:  # it ended meanwhile
                await self._shared.drop(session.id, session.term)
        elif put is False:
            self._superseded(session)
        else:
            session.unsure = session.unsure and not put
            self._refresh_later(session, note)

    def _refresh_later(self, session: Session, note: Note) -> None:
        if not note.refreshing:
            note.refreshing = True
            later = self._keep_s * (0.3 + 0.2 * self._context.chance())
            at = note.written_at + later
            self._context.timers.at(at, partial(self._refresh, session, note, later))

    def _refresh(self, session: Session, note: Note, later: float) -> None:
        note.refreshing = False
        if self._notes.get(session) is not note:
            return
        if trio.current_time() >= note.written_at + later / 2:
            self.changed(session)
        else:
            self._refresh_later(session, note)
