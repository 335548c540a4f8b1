"""One WebSocket after its handshake: what a session sees of its client.

Made for speed: `receive` gives all messages that one read completed, `send` only appends, and all
that was appended in one tick leaves in one write. Errors of the client in the framing are dealt
with here (close 1002, 1003, 1007, 1009, with an `error` frame first where its application is at
fault); the session only sees that the socket is closed.

The connection's task calls the session with the socket, and `finish` when the session is through:
then the close handshake is completed, within `close_ms`.
"""

from __future__ import annotations

import struct

import trio

from pushlane.wire.codec import Codec
from pushlane.wire.frames import ErrorFrame, Goaway
from pushlane_dispatcher.port import Claims
from pushlane_gateway.listener.decoder import LOST, Decoder, End
from pushlane_gateway.listener.hub import Hub
from pushlane_gateway.listener.link import Link
from pushlane_gateway.listener.outbox import Outbox

PING = b"\x89\x00"

_MEDIUM = struct.Struct("!BBH").pack
_LARGE = struct.Struct("!BBQ").pack

_EXPLAINED = (1003, 1007, 1008, 1009)
"""Faults of the client's application, not of its WebSocket library: it gets an `error` first."""

OVERLOAD = 1013
RECONNECT_MS = 5_000
"""When a client that was cut for want of memory may come back."""


class SocketClosed(Exception):
    """The connection is over, or closing."""

    def __init__(self, code: int, reason: str, *, clean: bool) -> None:
        super().__init__(f"{code} {reason}".rstrip())
        self.code = code
        self.reason = reason
        self.clean = clean
        """The client closed with 1000."""


class Socket:
    """All but `receive`, `drain` and `finish` are plain calls."""

    limit = "connections"

    __slots__ = (
        "_claims",
        "_closed",
        "_decoder",
        "_early",
        "_head",
        "_held",
        "_hub",
        "_link",
        "_outbox",
        "_pinged_at",
        "_reading",
        "authorization",
        "codec",
        "origin",
        "received_at",
    )

    def __init__(
        self,
        link: Link,
        hub: Hub,
        codec: Codec,
        *,
        authorization: str | None = None,
        origin: str | None = None,
        early: bytes = b"",
    ) -> None:
        """`early`: what the client sent right behind its handshake."""
        self._link = link
        self._hub = hub
        self._outbox = Outbox(link, hub)
        self._decoder = Decoder(
            is_text=codec.is_text,
            frame_bytes=min(hub.settings.unauthenticated_bytes, hub.limits.frame_bytes),
            tiny_frames=hub.settings.tiny_frames,
        )
        self._claims: Claims | None = None
        self._held = 0
        self._head = 0x81 if codec.is_text else 0x82
        self._early = early
        self._closed: End | None = None
        self._pinged_at: float | None = None
        self._reading = False
        self.codec = codec
        self.authorization = authorization
        """The header's value; never logged."""
        self.origin = origin
        self.received_at = trio.current_time()
        """When the client sent something last."""

    @property
    def peer(self) -> str:
        """The client's address, for logs."""
        return self._link.peer

    @property
    def outbox_bytes(self) -> int:
        """What waits to be written."""
        return self._outbox.waiting

    @property
    def last_sent_at(self) -> float:
        """trio's time of the last write, for `beat`."""
        return self._outbox.sent_at

    def admit(self, claims: Claims | None) -> None:
        """The client is welcome: its frames may be as large as `frame_bytes`.

        `claims`: it proved who it is, so what it sends counts against its own share, no longer
        against the budget of those who didn't. Before, `receive` gives one message at a time.
        """
        self._decoder.admit(self._hub.limits.frame_bytes)
        if claims is not None:
            self._hold(0)
            self._claims = claims
            self._hold(self._held)

    async def receive(self) -> list[bytes]:
        """Whole messages, as many as one read completed; never empty. Raises SocketClosed."""
        self._take_control()
        if self._outbox.waiting:
            self._outbox.flush()
        self._reading = True
        try:
            while self._closed is None:
                if self._decoder.more:
                    await trio.lowlevel.checkpoint()  # there is much: others have their turn
                    messages = self._feed(b"")
                else:
                    data = self._early or await self._link.receive()
                    self._early = b""
                    if data is None:
                        continue
                    messages = self._take(data)
                if messages:
                    return messages  # what they are answered with goes before a close
                self._take_control()
        finally:
            self._reading = False
        raise _as_error(self._closed)

    def send(self, frame: bytes) -> None:
        """Put a frame into the outbox. Without effect once the socket is closed."""
        if self._closed is not None:
            return
        size = len(frame)
        if size < 126:
            self._outbox.put(bytes((self._head, size)) + frame)
        elif size < 65536:
            self._outbox.put(_MEDIUM(self._head, 126, size) + frame)
        else:
            self._outbox.put(_LARGE(self._head, 127, size))
            self._outbox.put(frame)

    def hurry(self) -> None:
        """Write what waits in all outboxes: this tick takes longer than others."""
        self._hub.flusher.flush()

    def close(self, code: int, reason: str) -> None:
        """Close after what is in the outbox, within `close_ms`; `receive` raises from now on."""
        self._take_control()  # the client may have closed right behind its last message
        if self._closed is None:
            self._outbox.put(self._decoder.close(code, _short(reason)))
            self._closed = End(code, reason, by_client=False)
            self._link.wake()

    def abort(self) -> None:
        """Cut the connection now."""
        if self._closed is None:
            self._closed = End(LOST, "", by_client=False)
        self._outbox.abort()

    def cut(self) -> None:
        """All that clients like this one made us keep is too much, and this one's is the most."""
        self._hub.counters.overloads += 1
        self._early = b""
        self._decoder.fail(OVERLOAD, "too much waits")
        self._take_control()
        self._link.wake()

    def release(self) -> None:
        """It is over: keep nothing, whoever still holds this object."""
        self._early = b""
        self.authorization = None
        self._decoder.drop()
        self._hold(0)

    async def drain(self, below: int) -> None:
        """Wait until the outbox has less than this. Raises SocketClosed."""
        if self._closed is None:
            await self._outbox.drain(below)
            if self._link.closed:
                self.abort()
        if self._closed is not None:
            raise _as_error(self._closed)

    def check(self, now: float) -> None:
        """The watch came by: is the client still there?"""
        settings, blocked = self._hub.settings, self._outbox.blocked_since
        if blocked is not None and now - blocked > settings.write_stall_ms / 1000:
            self._hub.counters.stalled_writes += 1
            self.abort()
        elif not self._reading:
            return  # what it may have sent is in the kernel
        elif self._pinged_at is None:
            if now - self.received_at > settings.ping_ms / 1000:
                self._hub.counters.pings += 1
                self._pinged_at = now
                self._outbox.put(PING)
        elif now - self._pinged_at > (settings.silence_ms - settings.ping_ms) / 1000:
            self._hub.counters.silent += 1
            self.abort()

    async def finish(self) -> None:
        """Complete the close handshake; afterwards the connection is closed."""
        self.close(1000, "")
        assert self._closed is not None
        self._hub.counters.closed(self._closed.code)
        if self._closed.code == LOST:
            self.abort()
        with trio.move_on_after(self._hub.settings.close_ms / 1000) as scope:
            await self._part()
        if scope.cancelled_caught:
            self._hub.counters.late_closes += 1
            self.abort()
        self._link.close()

    async def _part(self) -> None:
        """Write what waits, await the client's close, then its end of the connection."""
        self._outbox.flush()
        await self._outbox.drain(1)
        ended = False
        while not self._link.closed:
            if self._decoder.end is not None and not ended:
                ended = True
                self._link.end_writing()
            data = await self._link.receive()
            if data:
                self._take(data)
                while self._decoder.more:
                    await trio.lowlevel.checkpoint()
                    self._feed(b"")
                self._take_control()
                self._outbox.flush()
            elif data is not None:
                return

    def _take(self, data: bytes) -> list[bytes]:
        """The messages in what was read; b"" is the end of the connection."""
        if not data:
            self._decoder.feed_eof()
            return []
        now = trio.current_time()
        tiny = self._decoder.tiny
        if tiny:
            earned = (now - self.received_at) * self._hub.settings.tiny_frames_rate
            self._decoder.tiny = max(0.0, tiny - earned)
        self.received_at = now
        self._pinged_at = None
        return self._feed(data)

    def _feed(self, data: bytes) -> list[bytes]:
        messages = self._decoder.feed(data)
        held = self._decoder.held
        if held != self._held:  # mostly nothing is held, before and after
            self._held = held
            self._hold(held)
        return messages

    def _hold(self, size: int) -> None:
        if self._claims is None:
            self._hub.budget.hold(self, size)
        else:
            self._hub.waiting.hold(self, size, self._claims)

    def _take_control(self) -> None:
        """Send what the frames ask for besides messages, and end if they say so."""
        decoder, end = self._decoder, self._decoder.end
        if end is None and not decoder.out:
            return
        if end is not None and not end.by_client and self._closed is None:
            self._explain(end)
        out, decoder.out = decoder.out, []
        for frame in out:
            self._outbox.put(frame)
        if end is not None and self._closed is None:
            self._closed = end

    def _explain(self, end: End) -> None:
        if end.code in _EXPLAINED:
            self._hub.counters.floods += end.code == 1008
            self.send(self.codec.encode(ErrorFrame(code=end.reason, message=end.fault)))
        elif end.code == OVERLOAD:
            self.send(self.codec.encode(Goaway("overload", RECONNECT_MS)))


def _as_error(end: End) -> SocketClosed:
    """A new one each time: an exception remembers where it was raised, and so all of it."""
    return SocketClosed(end.code, end.reason, clean=end.by_client and end.code == 1000)


def _short(reason: str) -> str:
    """A close reason has room for 123 bytes."""
    return reason.encode()[:123].decode(errors="ignore")
