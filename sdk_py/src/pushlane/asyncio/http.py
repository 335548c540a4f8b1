"""The HTTP API over asyncio streams, one connection a request; and why there is no TLS connection.

A server that doesn't speak TLS, or whose certificate is not trusted, will not do so in a second
either: who connects for the first time is told at once. A client that was connected before goes
on trying, because somebody may be about to fix it.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from pushlane.core.queues import Call
from pushlane.core.settings import Settings
from pushlane.core.url import Endpoint
from pushlane.transport.http import Exchange
from pushlane.wire.errors import BadRequest, ConnectionLost, PushlaneError

_READ = 64 * 1024


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


_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "HTTP_REQUEST",
)
"""What OpenSSL says when the other side answers something else."""


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
