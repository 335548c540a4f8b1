"""A socket in memory, seen from both ends: the session's (`Link`) and the client's."""

from __future__ import annotations

from collections import deque
from typing import TypeVar

import trio

from pushlane.wire.codec import JSON, Codec
from pushlane.wire.frames import Beat, ClientFrame, ServerFrame
from pushlane_dispatcher.core.places import Claims
from pushlane_gateway.session.link import SocketClosed

F = TypeVar("F")


class FakeSocket:
    limit = "connections"

    def __init__(self, codec: Codec = JSON, authorization: str | None = None) -> None:
        self.codec = codec
        self.authorization = authorization
        self.peer = "test"
        self.last_sent_at = trio.current_time()
        self.sent: list[bytes] = []
        """Every frame that the server sent, read or not."""
        self.hurried: list[int] = []
        """When it was told to hurry: how many frames the server had sent."""
        self.closed: tuple[int, str] | None = None
        """How the server closed it."""
        self.admitted: list[bool] = []
        """What it was told of who is there: whether that is known."""
        self.aborted = False
        self.stuck = False
        """The client reads nothing: what is sent stays in the outbox."""
        self.outbox_bytes = 0
        self.reads = 0
        """How often the session asked for more."""
        self._incoming: deque[list[bytes]] = deque()
        self._end: SocketClosed | None = None
        self._read = 0
        self._lot = trio.lowlevel.ParkingLot()

    # The session's end

    def admit(self, claims: Claims | None) -> None:
        self.admitted.append(claims is not None)

    async def receive(self) -> list[bytes]:
        await trio.lowlevel.checkpoint()
        self.reads += 1
        while not self._incoming and self._end is None:
            await self._lot.park()
        if self._end is not None:
            raise self._end
        return self._incoming.popleft()

    def send(self, frame: bytes) -> None:
        if self._end is None:
            self.sent.append(frame)
            self.last_sent_at = trio.current_time()
            self.outbox_bytes += len(frame) if self.stuck else 0
            self._lot.unpark_all()

    def hurry(self) -> None:
        self.hurried.append(len(self.sent))

    def close(self, code: int, reason: str) -> None:
        if self._end is None:
            self.closed = code, reason
            self._over(SocketClosed(code, reason, clean=False))

    def abort(self) -> None:
        self.aborted = True
        self._over(SocketClosed(1006, "", clean=False))

    async def drain(self, below: int) -> None:
        while self.outbox_bytes >= below and self._end is None:
            await self._lot.park()
        if self._end is not None:
            raise self._end

    def _over(self, end: SocketClosed) -> None:
        self._end = self._end or end
        self._lot.unpark_all()

    # The client's end

    def say(self, *frames: ClientFrame | bytes) -> None:
        """Send frames that arrive together."""
        self._incoming.append(
            [frame if isinstance(frame, bytes) else self.codec.encode(frame) for frame in frames]
        )
        self._lot.unpark_all()

    def leave(self) -> None:
        """Close with 1000."""
        self._over(SocketClosed(1000, "", clean=True))

    def drop(self) -> None:
        """The network is gone."""
        self._over(SocketClosed(1006, "", clean=False))

    def read_on(self) -> None:
        """The client reads again what it was sent."""
        self.stuck = False
        self.outbox_bytes = 0
        self._lot.unpark_all()

    async def hear(self, *, beats: bool = False) -> ServerFrame:
        """The next frame; beats only if they are asked for."""
        with trio.fail_after(1_000):
            while True:
                while self._read >= len(self.sent):
                    assert self._end is None, f"closed: {self._end}"
                    await self._lot.park()
                self._read += 1
                frame = self.codec.decode_server(self.sent[self._read - 1])
                if beats or not isinstance(frame, Beat):
                    return frame

    async def hear_a(self, kind: type[F]) -> F:
        """The next frame, which is of this kind."""
        frame = await self.hear(beats=kind is Beat)
        assert isinstance(frame, kind), frame
        return frame

    async def until_closed(self) -> tuple[int, str]:
        with trio.fail_after(1_000):
            while self._end is None:
                await self._lot.park()
        assert self.closed is not None, self._end
        return self.closed

    @property
    def unread(self) -> list[ServerFrame]:
        """What was sent and not heard yet."""
        frames = [self.codec.decode_server(frame) for frame in self.sent[self._read :]]
        return [frame for frame in frames if not isinstance(frame, Beat)]
