"""HTTP over asyncio streams: calls of the API, and requests of a pipe.

A call has a connection of its own. A pipe's requests share a few that are kept: a server or a proxy
may close one that is idle just when we use it again; then the request fails, all that are idle are
given up, and the next one goes over a new connection.

A server that doesn't speak TLS, or whose certificate is not trusted, will not do so in a second
either: who connects for the first time is told at once. A client that was connected before goes
on trying, because somebody may be about to fix it.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, NamedTuple

from pushlane.core.queues import Answer, Call
from pushlane.core.settings import Settings
from pushlane.core.url import Endpoint
from pushlane.transport.http import Exchange
from pushlane.wire.errors import BadRequest, ConnectionLost, PushlaneError

_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "HTTP_REQUEST",
)
"""What OpenSSL says when the other side answers something else."""
_READ = 256 * 1024


async def request(
    endpoint: Endpoint,
    call: Call,
    token: str | None,
    settings: Settings,
    tls: ssl.SSLContext | None,
) -> Any:
    """Make a call; what the server answered, or the typed error."""
    exchange = Exchange(endpoint, call, token, settings.http_bytes)
    try:
        async with asyncio.timeout(settings.http_ms / 1000):
            await _exchange(endpoint, exchange, tls)
    except TimeoutError:
        raise ConnectionLost(f"no answer within {settings.http_ms} ms") from None
    except OSError as fault:
        raise ConnectionLost(f"no connection to {endpoint.http_url}: {fault}") from fault
    return exchange.result()


async def _exchange(endpoint: Endpoint, exchange: Exchange, tls: ssl.SSLContext | None) -> None:
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=tls)
    try:
        writer.write(exchange.request)
        while not exchange.receive(await reader.read(_READ)):
            pass
    finally:
        writer.transport.abort()


def no_tls(endpoint: Endpoint, fault: ssl.SSLError, was_open: bool) -> PushlaneError:
    """The error for a TLS handshake that failed."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        what = f"the certificate of {endpoint} is not trusted: {fault.verify_message}"
        advice = "SSL_CERT_FILE can name the certificate of its authority"
    elif fault.reason in _NOT_TLS:
        what = f"{endpoint} doesn't speak TLS"
        advice = "use ws:// or http:// in its address"
    else:
        return ConnectionLost(f"no connection to {endpoint}: {fault}")
    return ConnectionLost(what) if was_open else BadRequest(f"{what}: {advice}")


class _Stream(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Pool:
    """The idle connections of one link: no more than it made requests at once."""

    def __init__(self, endpoint: Endpoint, settings: Settings, tls: ssl.SSLContext | None) -> None:
        self._endpoint = endpoint
        self._settings = settings
        self._tls = tls
        self._idle: list[_Stream] = []
        self._is_closed = False

    async def ask(self, call: Call, timeout_ms: int) -> Answer:
        """Make a request; raises ConnectionLost. Cancelled, it cuts its connection."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._ask(call)
        except TimeoutError:
            self._give_up()
            raise ConnectionLost(f"no answer within {timeout_ms} ms") from None
        except OSError as fault:
            self._give_up()
            url = self._endpoint.http_url
            raise ConnectionLost(f"no connection to {url}: {fault}") from fault
        except ConnectionLost:
            self._give_up()
            raise

    async def _ask(self, call: Call) -> Answer:
        endpoint = self._endpoint
        exchange = Exchange(endpoint, call, None, self._settings.http_bytes, keep=True)
        while self._idle:
            stream = self._idle.pop()
            if not stream.reader.at_eof() and not stream.writer.is_closing():
                return await self._carry(exchange, stream)
            stream.writer.transport.abort()
        reader, writer = await asyncio.open_connection(
            endpoint.host, endpoint.port, ssl=self._tls, limit=_READ
        )
        return await self._carry(exchange, _Stream(reader, writer))

    async def _carry(self, exchange: Exchange, stream: _Stream) -> Answer:
        is_kept = False
        try:
            stream.writer.write(exchange.request)
            while not exchange.receive(await stream.reader.read(_READ)):
                pass
            is_kept = exchange.is_reusable and not self._is_closed
            return exchange.answer
        finally:
            if is_kept:
                self._idle.append(stream)
            else:
                stream.writer.transport.abort()

    def _give_up(self) -> None:
        for stream in self._idle:
            stream.writer.transport.abort()
        self._idle.clear()

    def close(self) -> None:
        """Keep none any more."""
        self._is_closed = True
        self._give_up()
