"""One connection, from its TLS handshake to its end: the first request decides what it becomes.

A request on `/v1/ws` is a WebSocket or an error, and the rest of the connection is the session's.
Everything else is HTTP for the app, one request after the other. The two parts are two functions,
so that a WebSocket, which may stay for days, keeps nothing of the request that opened it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import h11
import trio
from starlette.types import ASGIApp

from pushlane_dispatcher.port import Claims
from pushlane_gateway.listener.exchange import Exchange
from pushlane_gateway.listener.head import read_head
from pushlane_gateway.listener.hub import Hub
from pushlane_gateway.listener.link import Link, LinkLost
from pushlane_gateway.listener.refusal import NEEDS_TLS, TOO_MUCH, YOUR_SHARE, Refusal
from pushlane_gateway.listener.socket import Socket, SocketClosed
from pushlane_gateway.listener.tls_link import PlainHttp, TlsFailed, TlsLink
from pushlane_gateway.listener.upgrade import Allow, is_upgrade, only, upgrade

log = logging.getLogger(__name__)

Handle = Callable[[Socket], Awaitable[None]]


class Service(NamedTuple):
    """What a listener listens for."""

    app: ASGIApp
    """Answers HTTP requests."""
    handle: Handle
    """Runs the session of a WebSocket; when it returns the socket is closed."""
    allow: Allow
    """Says of an Origin and a Host whether they may open a WebSocket."""


async def serve_connection(link: Link, hub: Hub, service: Service) -> None:
    """Serve it until it ends; raises nothing but cancellation."""
    try:
        socket = await _serve_requests(link, hub, service)
        if socket is not None:
            await _serve_socket(socket, hub, service.handle)
    except (LinkLost, TlsFailed):
        link.abort()
    except Exception:
        hub.counters.failures += 1
        log.exception("connection of %s failed", link.peer)
    finally:
        link.close()


class Guest:
    """The requests of a connection, to the budget."""

    __slots__ = ("_claims", "_hub", "scope")

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._claims: Claims | None = None
        self.scope = trio.CancelScope()

    def know(self, claims: Claims | None) -> None:
        """What it keeps is of these from now on; None: nobody knows whose it is."""
        self.hold(0)
        self._claims = claims

    def hold(self, size: int) -> None:
        """It keeps so many bytes of a request that is not complete."""
        if self._claims is None:
            self._hub.budget.hold(self, size)
        else:
            self._hub.waiting.hold(self, size, self._claims)

    def cut(self) -> None:
        self._hub.counters.overloads += 1
        self.scope.cancel()

    @property
    def refusal(self) -> Refusal:
        """What a client is told that is cut."""
        return TOO_MUCH if self._claims is None else YOUR_SHARE


async def _serve_requests(link: Link, hub: Hub, service: Service) -> Socket | None:
    """HTTP, until the connection ends or becomes a WebSocket."""
    guest = Guest(hub)
    try:
        with guest.scope:
            if isinstance(link, TlsLink) and not await _shake_hands(link, hub, guest):
                return None
            return await _answer_requests(link, hub, service, guest)
    finally:
        guest.hold(0)
    if link.closed:
        return None  # it was cut in its answer: there is no other
    hub.counters.refusal(guest.refusal.status)
    link.write_now(guest.refusal.answer())
    await _linger(link, hub)
    return None


async def _answer_requests(link: Link, hub: Hub, service: Service, guest: Guest) -> Socket | None:
    buffer, patience = bytearray(), hub.settings.head_ms
    request: h11.Request | None = None
    try:
        while True:
            found = await _next_request(link, hub, buffer, patience, guest)
            if found is None:
                return None
            request, parser = found
            if is_upgrade(request):
                return await _open_socket(link, hub, request, bytes(buffer), service.allow)
            exchange = Exchange(link, hub, request, parser, buffer, guest.hold, guest.know)
            if not await exchange.run(service.app):
                break
            guest.know(None)  # the next request says for itself who asks
            patience = hub.settings.keep_alive_ms
    except Refusal as refusal:
        hub.counters.refusal(refusal.status)
        head_only = request is not None and request.method == b"HEAD"
        await link.send_all(refusal.answer(head_only=head_only), hub.settings.write_stall_ms)
    await _linger(link, hub)
    return None


async def _shake_hands(link: TlsLink, hub: Hub, guest: Guest) -> bool:
    try:
        with trio.move_on_after(hub.settings.head_ms / 1000) as scope:
            await link.handshake(hub.settings.head_ms, guest.hold)
            guest.hold(0)
    except TlsFailed as error:
        hub.counters.tls_failures += 1
        log.info("no TLS with %s: %s", link.peer, error)
        if isinstance(error, PlainHttp):
            link.refuse_plain(NEEDS_TLS.answer())
        return False
    if scope.cancelled_caught:
        hub.counters.late_heads += 1
    return not scope.cancelled_caught


async def _next_request(
    link: Link, hub: Hub, buffer: bytearray, patience: int, guest: Guest
) -> tuple[h11.Request, h11.Connection] | None:
    """The next request; None when there is none. Raises Refusal."""
    settings = hub.settings
    if not buffer:
        buffer += await _first_bytes(link, hub, patience)
        if not buffer:
            return None
    with trio.move_on_after(settings.head_ms / 1000):
        while True:
            found = read_head(buffer, settings)
            if found is not None:
                guest.hold(0)
                return found
            guest.hold(len(buffer))
            data = await link.receive()
            if not data:
                return None
            buffer += data
    hub.counters.late_heads += 1
    raise Refusal(408, "the rest of the request did not come in time")


async def _first_bytes(link: Link, hub: Hub, patience: int) -> bytes:
    """Wait for a request to begin; nothing when there will be none."""
    if hub.stopping:
        return b""
    data: bytes | None = b""
    with trio.CancelScope(deadline=trio.current_time() + patience / 1000) as scope:
        hub.idle.add(scope)
        try:
            data = await link.receive()
        finally:
            hub.idle.discard(scope)
    if scope.cancelled_caught and not hub.stopping:
        hub.counters.idle_ends += 1
    return data or b""


async def _open_socket(
    link: Link, hub: Hub, request: h11.Request, early: bytes, allow: Allow
) -> Socket:
    answer, codec = upgrade(request, allow)
    await link.send_all(answer, hub.settings.write_stall_ms)
    return Socket(
        link,
        hub,
        codec,
        authorization=only(request, b"authorization"),
        origin=only(request, b"origin"),
        early=early,
    )


async def _serve_socket(socket: Socket, hub: Hub, handle: Handle) -> None:
    hub.counters.upgrades += 1
    hub.sockets.add(socket)
    try:
        try:
            await handle(socket)
        except* SocketClosed:
            pass  # a session may let it through
        except* Exception:
            hub.counters.failures += 1
            log.exception("session of %s failed", socket.peer)
            socket.close(1011, "internal")
        await socket.finish()
    finally:
        hub.sockets.discard(socket)
        socket.abort()
        socket.release()


async def _linger(link: Link, hub: Hub) -> None:
    """Closing while the client still sends would reset the connection, and our answer with it."""
    link.end_writing()
    left = hub.settings.linger_bytes
    with trio.move_on_after(hub.settings.linger_ms / 1000):
        while left > 0:
            data = await link.receive()
            if not data:
                break
            left -= len(data)
