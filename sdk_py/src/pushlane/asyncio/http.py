"""The HTTP API over asyncio streams: one connection a request."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from pushlane.core.queues import Call
from pushlane.core.settings import Settings
from pushlane.core.url import Endpoint
from pushlane.transport.http import Exchange
from pushlane.wire.errors import ConnectionLost

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
