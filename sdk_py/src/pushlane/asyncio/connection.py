"""One WebSocket on an asyncio transport.

All messages of one read go up together, and everything sent during one turn of the loop is written
at once.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from pushlane.transport.websocket import WebSocket
from pushlane.wire.errors import PushlaneError


class Listener(Protocol):
    """Who hears of what happens to a connection."""

    def on_open(self, link: int) -> None: ...
    def on_heard(self, link: int, messages: list[bytes]) -> None: ...
    def on_lost(
        self, link: int, code: int, reason: str, error: PushlaneError | None, refused: int | None
    ) -> None: ...


class Connection(asyncio.Protocol):
    """A byte stream of asyncio with a WebSocket on it."""

    def __init__(self, link: int, socket: WebSocket, listener: Listener, hangup_ms: int) -> None:
        self._link = link
        self._socket = socket
        self._listener = listener
        self._hangup_ms = hangup_ms
        self._transport: asyncio.Transport | None = None
        self._is_announced = False
        self._abort: asyncio.TimerHandle | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.write()

    def data_received(self, data: bytes) -> None:
        socket = self._socket
        socket.receive(data)
        if not self._is_announced and socket.is_open:
            self._is_announced = True
            self._listener.on_open(self._link)
        if self._is_announced:
            messages, socket.messages = socket.messages, []
            self._listener.on_heard(self._link, messages)
        self.write()

    def eof_received(self) -> bool:
        return False  # asyncio closes the transport, and connection_lost follows

    def connection_lost(self, exc: Exception | None) -> None:
        self._socket.receive(b"")
        if self._abort is not None:
            self._abort.cancel()
        if not self.closed.done():
            self.closed.set_result(None)
        code, reason = self._socket.close
        socket = self._socket
        self._listener.on_lost(self._link, code, reason, socket.failure, socket.refused)

    # What the driver calls

    def send(self, data: bytes) -> None:
        """Send a frame with the next `write`."""
        self._socket.send(data)

    def write(self) -> None:
        """Write what gathered; close the stream when both sides said so."""
        if self._transport is None:
            return  # TLS is not agreed on yet, or never will be
        data = self._socket.data_to_send()
        if data:
            self._transport.write(data)
        if self._socket.is_over or self._socket.wants_eof:
            self._hang_up_soon()
            if self._socket.close != (1006, "") or self._socket.failure is not None:
                self._transport.close()

    def hang_up(self, code: int, reason: str) -> None:
        """Say close, and cut the stream when the other side takes too long."""
        if not self._socket.is_open:
            self.abort()
            return
        self._socket.say_close(code, reason)
        self.write()
        self._hang_up_soon()

    def _hang_up_soon(self) -> None:
        if self._abort is None:
            loop = asyncio.get_running_loop()
            self._abort = loop.call_later(self._hangup_ms / 1000, self.abort)

    def abort(self) -> None:
        """Cut the stream now."""
        if self._transport is not None:
            self._transport.abort()
