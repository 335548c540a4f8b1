"""A pipe: a session's link made of HTTP requests.

Requests send and fetch, the session receives and sends, and neither knows of the other's tasks. A
pipe ends as a WebSocket does: closed by the session (the client is told by its next receive),
closed by the client, or cut (its client made no receive for too long, or its numbers are wrong).
"""

from __future__ import annotations

import trio

from pushlane.wire.codec import JSON
from pushlane.wire.errors import Conflict, NotFound
from pushlane_dispatcher.port import Claims
from pushlane_gateway.listener.decoder import LOST, End
from pushlane_gateway.pipe.boxes import Answer, Batch, Gone, Inbox, Outbox, Signal
from pushlane_gateway.session.link import SocketClosed

CUT = End(LOST, "", by_client=False)
GONE = "there is no such pipe, or no longer: open another one and resume"


class Pipe:
    codec = JSON
    limit = "pipes"

    def __init__(
        self,
        id: str,
        frames: list[bytes],
        *,
        answer_bytes: int,
        most_bytes: int,
        authorization: str | None = None,
        peer: str = "",
    ) -> None:
        """`most_bytes`: with more in its outbox it is cut."""
        self.id = id
        self.authorization = authorization
        """The header's value; never logged."""
        self.peer = peer
        self.is_admitted = False
        """Its session was welcomed: its requests may be large."""
        self.claims: Claims | None = None
        """And it proved who it is: of whose share its requests are."""
        self.end: End | None = None
        self._leaving: End | None = None
        """The client's close, until the session has taken what came before."""
        self.overflowed = False
        self.told = False
        """The client got an answer with the close in it."""
        self.quiet_since: float | None = trio.current_time()
        """When the last receive ended; None while there is one."""
        self._receives = 0
        self._most = most_bytes
        self._inbox = Inbox(frames)
        self._outbox = Outbox(answer_bytes)
        self._over = Signal()

    # The session's side

    @property
    def outbox_bytes(self) -> int:
        """What waits to be fetched."""
        return self._outbox.waiting

    @property
    def last_sent_at(self) -> float:
        """trio's time when something was fetched last, for `beat`."""
        return self._outbox.sent_at

    def admit(self, claims: Claims | None) -> None:
        """The client is welcome."""
        self.is_admitted, self.claims = True, claims

    async def receive(self) -> list[bytes]:
        """The frames of one request; who sent the ones before is answered now."""
        while self.end is None:
            frames = self._inbox.next()
            if frames is not None:
                return frames
            if self._leaving is None:
                await self._inbox.wait()
            else:
                self._end(self._leaving)
        raise _as_error(self.end)

    def send(self, frame: bytes) -> None:
        """Put a frame into the outbox. Without effect once the pipe is closed."""
        if self.end is None:
            self._outbox.put(frame)
            if self._outbox.waiting > self._most:
                self.overflowed = True
                self.abort()

    def hurry(self) -> None:
        """Requests that wait are tasks of their own: nothing here is held back."""

    def close(self, code: int, reason: str) -> None:
        """Close after what is in the outbox; `receive` raises from now on."""
        self._end(End(code, reason, by_client=False))

    def abort(self) -> None:
        """Cut it now."""
        self._end(CUT)
        self._outbox.clear()

    async def drain(self, below: int) -> None:
        """Wait until the outbox has less than this. Raises SocketClosed."""
        await self._outbox.drain(below)
        end = self.end or self._leaving
        if end is not None:
            raise _as_error(end)

    def _end(self, end: End) -> None:
        if self.end is None:
            self.end = end
            self._outbox.end(end)
            self._inbox.wake()

    def finish(self) -> None:
        """The session has left; what is kept, until the client has heard of it, is little."""
        self.close(1000, "")
        self.authorization = None
        self._inbox.clear()
        self._over.set()

    @property
    def is_refused(self) -> bool:
        """It is over, and its client was never welcome."""
        return self.end is not None and not self.is_admitted

    @property
    def is_untold(self) -> bool:
        """The session closed it, or will, and the client has not heard of it."""
        return not self.told and (self.end is None or not self.is_forgotten)

    @property
    def is_forgotten(self) -> bool:
        """It is over, and there is nothing left to tell."""
        return self.end is not None and (self.end is CUT or self.end.by_client)

    # The client's side

    async def put(self, n: int, frames: list[bytes], gone: Gone) -> None:
        """Hand frames to the session and wait until it has taken them. Raises Conflict, NotFound.

        A pipe that the session has closed takes no more, and says so with the next receive.
        """
        if self.end is None and self._leaving is None:
            await self._put(n, frames).taken.wait(gone)
        self._check()

    def _put(self, n: int, frames: list[bytes]) -> Batch:
        try:
            return self._inbox.put(n, frames)
        except Conflict:
            self.abort()
            raise

    async def leave(self, code: int, n: int | None, frames: list[bytes], gone: Gone) -> None:
        """The client closes, after these frames; returns when the session has left."""
        self.told = True
        if self.end is None and self._leaving is None:
            if n is not None:
                self._put(n, frames)
            self._leaving = End(code, "", by_client=True)
            self._outbox.release()
            self._inbox.wake()
        await self._over.wait(gone)

    async def fetch(self, after: int, seconds: float, gone: Gone) -> Answer:
        """What comes behind the answer of this number. Raises Conflict, NotFound."""
        self._check()
        if self._outbox.is_done(after):
            raise NotFound(GONE)
        answer = await self._outbox.answer(after, seconds, gone)
        self._check()
        return answer

    def begin_receive(self) -> None:
        self._receives += 1
        self.quiet_since = None

    def end_receive(self) -> None:
        self._receives -= 1
        if not self._receives:
            self.quiet_since = trio.current_time()

    def _check(self) -> None:
        if self.end is CUT:
            raise NotFound(GONE)


def _as_error(end: End) -> SocketClosed:
    return SocketClosed(end.code, end.reason, clean=end.by_client and end.code == 1000)
