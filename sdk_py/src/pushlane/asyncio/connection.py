"""One WebSocket on an asyncio transport; and whether one can be had at all.

All messages of one read go up together, and everything sent during one turn of the loop is written
at once. A probe is a WebSocket that is opened, greeted and closed again.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Protocol, cast

from pushlane.core.settings import Settings
from pushlane.core.url import Endpoint
from pushlane.transport.websocket import WebSocket
from pushlane.wire.codec import Codec
from pushlane.wire.errors import PushlaneError
from pushlane.wire.frames import Hello, Welcome


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


_DONE = 1000


class _Probe:
    """Who hears of what happens to the one connection."""

    def __init__(self, codec: Codec, token: str | None) -> None:
        self._codec = codec
        self._token = token
        self.connection: Connection | None = None
        self.is_good: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def on_open(self, link: int) -> None:
        assert self.connection is not None
        self.connection.send(self._codec.encode(Hello(self._token)))

    def on_heard(self, link: int, messages: list[bytes]) -> None:
        for message in messages:
            self._tell(isinstance(self._codec.decode_server(message), Welcome))

    def on_lost(
        self, link: int, code: int, reason: str, error: PushlaneError | None, refused: int | None
    ) -> None:
        self._tell(False)

    def _tell(self, is_good: bool) -> None:
        if not self.is_good.done():
            self.is_good.set_result(is_good)


async def probe(
    endpoint: Endpoint,
    codec: Codec,
    token: str | None,
    tls: ssl.SSLContext | None,
    settings: Settings,
) -> bool:
    """Within `upgrade_ms`; raises OSError or TimeoutError for some of the ways to fail."""
    listener = _Probe(codec, token)

    def make() -> Connection:
        socket = WebSocket(endpoint, codec, settings.receive_bytes)
        listener.connection = Connection(0, socket, listener, settings.hangup_ms)
        return listener.connection

    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(settings.upgrade_ms / 1000):
            await loop.create_connection(make, endpoint.host, endpoint.port, ssl=tls)
            return await listener.is_good
    finally:
        if listener.connection is not None:
            listener.connection.hang_up(_DONE, "")
