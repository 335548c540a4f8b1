"""HTTP connections that are kept for the next request, on asyncio.

A server or a proxy may close one that is idle just when we use it again. So a request that finds
the end of a kept connection in place of an answer goes out once more, on a new one. That can't do
harm here: everything that polling asks for may be repeated.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import NamedTuple

from pushlane.core.answer import Answer
from pushlane.core.poll import Ask
from pushlane.core.settings import Settings
from pushlane.core.url import Endpoint
from pushlane.transport.http import Exchange
from pushlane.wire.errors import ConnectionLost

_READ = 256 * 1024


class _Stream(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Pool:
    """The connections to one server that are idle; it grows as requests are made."""

    def __init__(self, endpoint: Endpoint, settings: Settings, tls: ssl.SSLContext | None) -> None:
        self._endpoint = endpoint
        self._settings = settings
        self._tls = tls
        self._idle: list[_Stream] = []

    async def ask(self, ask: Ask) -> Answer:
        """Make a request; raises ConnectionLost. Cancelled, it cuts its connection."""
        endpoint = self._endpoint
        try:
            async with asyncio.timeout(ask.timeout_ms / 1000):
                return await self._ask(ask)
        except TimeoutError:
            raise ConnectionLost(f"no answer within {ask.timeout_ms} ms") from None
        except OSError as fault:
            raise ConnectionLost(f"no connection to {endpoint.http_url}: {fault}") from fault

    async def _ask(self, ask: Ask) -> Answer:
        exchange = self._exchange(ask)
        while self._idle:
            stream = self._idle.pop()
            if stream.reader.at_eof() or stream.writer.is_closing():
                stream.writer.transport.abort()
                continue
            try:
                return await self._carry(exchange, stream)
            except (OSError, ConnectionLost):
                if exchange.has_begun:
                    raise
                exchange = self._exchange(ask)
        endpoint = self._endpoint
        reader, writer = await asyncio.open_connection(
            endpoint.host, endpoint.port, ssl=self._tls, limit=_READ
        )
        return await self._carry(exchange, _Stream(reader, writer))

    def _exchange(self, ask: Ask) -> Exchange:
        most = self._settings.http_bytes
        return Exchange(self._endpoint, ask.call, ask.token, most, keep=True)

    async def _carry(self, exchange: Exchange, stream: _Stream) -> Answer:
        is_kept = False
        try:
            stream.writer.write(exchange.request)
            while not exchange.receive(await stream.reader.read(_READ)):
                pass
            is_kept = exchange.is_reusable and len(self._idle) < self._settings.poll_requests
            return exchange.answer
        finally:
            if is_kept:
                self._idle.append(stream)
            else:
                stream.writer.transport.abort()

    def close(self) -> None:
        """Close what is idle."""
        for stream in self._idle:
            stream.writer.transport.abort()
        self._idle.clear()
