"""Whether a WebSocket can be had: one that is opened, greeted and closed again."""

from __future__ import annotations

import asyncio
import ssl

from pushlane.core.settings import Settings
from pushlane.core.url import Endpoint
from pushlane.transport.websocket import WebSocket
from pushlane.wire.codec import Codec
from pushlane.wire.errors import PushlaneError
from pushlane.wire.frames import Hello, Welcome

from .connection import Connection

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
