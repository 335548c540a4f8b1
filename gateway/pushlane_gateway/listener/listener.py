"""Opens addresses, accepts connections, and stops in good order.

    async with open_listener(["127.0.0.1:8420"], service) as listener:
        print(listener.addresses)
        ...
        listener.stop()             # no new connections, no further requests
        await listener.drained()    # when sessions and requests have come to their end

Every task lives inside that block; leaving it ends what is still there at once. Sessions are closed
by whoever runs them: `stop` leaves them alone.

One task looks at all WebSockets now and then, instead of a timer for each of them. What it looks
for takes many seconds to become true, so it matters little when exactly it is seen: clients that
vanished without a word, clients that take nothing of what waits for them, memory that the system
could have back.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from pushlane.wire.limits import DEFAULTS, Limits
from pushlane_gateway.listener.address import (
    Address,
    bound,
    close_listening,
    open_address,
    parse_address,
    peer_of,
)
from pushlane_gateway.listener.certificates import Certificates
from pushlane_gateway.listener.connection import Service, serve_connection
from pushlane_gateway.listener.counters import Counters
from pushlane_gateway.listener.hub import Hub
from pushlane_gateway.listener.link import READ_BYTES, Link
from pushlane_gateway.listener.refusal import OVERLOAD
from pushlane_gateway.listener.tls_link import TlsLink
from pushlane_gateway.settings import DEFAULT_SETTINGS, GatewaySettings

log = logging.getLogger(__name__)

ACCEPTS = 64
"""Connections accepted before others have their turn."""

_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

SHARE = 8
"""How often it looks within the shortest time it is to measure."""
PAUSE = 500
"""Sockets after which others have their turn."""


@asynccontextmanager
async def open_listener(
    addresses: Sequence[str],
    service: Service,
    *,
    certificates: Certificates | None = None,
    settings: GatewaySettings = DEFAULT_SETTINGS,
    limits: Limits = DEFAULTS,
    counters: Counters | None = None,
) -> AsyncIterator[Listener]:
    """Listen; raises ValueError or OSError when an address can't be had.

    With certificates, TCP connections have TLS. Unix sockets don't: they never leave the machine.
    """
    opened: list[socket.socket] = []
    try:
        for address in addresses:
            opened += open_address(parse_address(address), settings)
        async with trio.open_nursery() as nursery:
            hub = Hub(nursery, settings, limits, counters or Counters())
            listener = Listener(opened, hub, service, certificates)
            nursery.start_soon(hub.flusher.run)
            nursery.start_soon(watch, hub)
            for sock in opened:
                nursery.start_soon(listener.accept, sock)
            yield listener
            nursery.cancel_scope.cancel()
    finally:
        for sock in opened:
            if sock.fileno() != -1:
                close_listening(sock)


class Listener:
    def __init__(
        self,
        sockets: Sequence[socket.socket],
        hub: Hub,
        service: Service,
        certificates: Certificates | None,
    ) -> None:
        self._listening = list(sockets)
        self._hub = hub
        self._service = service
        self._certificates = certificates
        self._empty = trio.Event()
        self.addresses: list[Address] = [bound(sock) for sock in sockets]
        """Where it listens, with the ports that were found."""
        self.counters = hub.counters
        self.budget, self.waiting = hub.budget, hub.waiting
        self.nursery = hub.nursery
        """The parent of every task of the listener."""
        self.connections = 0
        """Open now, of all kinds."""

    def stop(self) -> None:
        """Accept nothing more; requests under way are answered, idle connections closed."""
        for sock in self._listening:
            trio.lowlevel.notify_closing(sock)
            close_listening(sock)
        self._listening.clear()
        self._hub.stop()
        self._look_empty()

    async def drained(self) -> None:
        """Wait, after `stop`, until no connection is left."""
        await self._empty.wait()

    async def accept(self, sock: socket.socket) -> None:
        """Accept until the socket is closed."""
        with contextlib.suppress(trio.ClosedResourceError):
            while sock.fileno() != -1:
                await trio.lowlevel.wait_readable(sock)
                try:
                    self._accept_some(sock)
                except OSError as error:
                    self._hub.counters.accept_failures += 1
                    log.warning("can't accept connections: %s", error)
                    await trio.sleep(self._hub.settings.accept_pause_ms / 1000)

    def _accept_some(self, sock: socket.socket) -> None:
        """Take what waits; raises OSError when something ran out."""
        for _ in range(ACCEPTS):
            try:
                client, name = sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    raise
                continue  # that one went away before we came
            self._hub.counters.accepted += 1
            if self.connections >= self._hub.settings.connections:
                self._turn_away(client)
            else:
                self._take(client, peer_of(client, name))

    def _take(self, client: socket.socket, peer: str) -> None:
        client.setblocking(False)
        link = Link(client, peer)
        if client.family != socket.AF_UNIX:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._certificates is not None:
                link = TlsLink(client, peer, self._certificates.context())
        self.connections += 1
        self._hub.nursery.start_soon(self._serve, link)

    async def _serve(self, link: Link) -> None:
        try:
            await serve_connection(link, self._hub, self._service)
        finally:
            self.connections -= 1
            self._look_empty()

    def _look_empty(self) -> None:
        if self._hub.stopping and self.connections == 0:
            self._empty.set()

    def _turn_away(self, client: socket.socket) -> None:
        """Say 503 where that costs nothing: without waiting, and not over TLS."""
        self._hub.counters.refused += 1
        client.setblocking(False)
        with contextlib.suppress(OSError):
            if self._certificates is None or client.family == socket.AF_UNIX:
                client.send(OVERLOAD.answer())
                client.shutdown(socket.SHUT_WR)
                client.recv(READ_BYTES)  # unread bytes would reset the connection
        client.close()


def find_trim() -> Callable[[], None]:
    """A function to call in a thread; where the C library has no such thing it does nothing."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda: None
    return lambda: trim(0)


async def watch(hub: Hub) -> None:
    settings = hub.settings
    shortest = min(
        settings.ping_ms, settings.silence_ms - settings.ping_ms, settings.write_stall_ms
    )
    trim = find_trim()
    while True:
        await trio.sleep(shortest / SHARE / 1000)
        if any([hub.budget.fell(), hub.waiting.fell()]):  # both are asked
            await trio.to_thread.run_sync(trim)
        for number, each in enumerate(list(hub.sockets), 1):
            each.check(trio.current_time())
            if number % PAUSE == 0:
                await trio.lowlevel.checkpoint()
