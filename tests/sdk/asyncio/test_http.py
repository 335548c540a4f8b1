"""Addresses with the wrong scheme, and certificates that nobody trusts: said at once."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trustme

import pushlane
from pushlane.asyncio.http import no_tls
from pushlane.core.url import parse_url
from tests.sdk.asyncio.loop import on_asyncio

PATIENT = pushlane.Settings(connect_ms=25_000, dial_ms=20_000)
"""Whoever tries again is still at it when the test's time is over."""


@asynccontextmanager
async def tls_server(authority: trustme.CA) -> AsyncIterator[int]:
    """A port that speaks TLS, and nothing of ours."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def refused(url: str) -> pushlane.PushlaneError:
    with pytest.raises(pushlane.BadRequest) as caught:
        async with pushlane.connect(url, settings=PATIENT):
            pass
    return caught.value


@on_asyncio
async def test_wss_to_a_plain_server() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        error = await refused(f"wss://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        assert "doesn't speak TLS: use ws:// or http://" in error.message


@on_asyncio
async def test_a_certificate_that_nobody_trusts() -> None:
    async with tls_server(trustme.CA()) as port:
        error = await refused(f"wss://127.0.0.1:{port}")
        assert "is not trusted" in error.message
        assert "SSL_CERT_FILE" in error.message


def test_a_client_that_was_connected_goes_on_trying() -> None:
    fault = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    fault.reason = "WRONG_VERSION_NUMBER"
    endpoint = parse_url("wss://127.0.0.1:1")
    assert isinstance(no_tls(endpoint, fault, False), pushlane.BadRequest)
    assert isinstance(no_tls(endpoint, fault, True), pushlane.ConnectionLost)
    other = ssl.SSLError(1, "[SSL: TLSV1_ALERT_INTERNAL_ERROR] alert")
    other.reason = "TLSV1_ALERT_INTERNAL_ERROR"
    assert isinstance(no_tls(endpoint, other, False), pushlane.ConnectionLost)
