"""Accepts links of other nodes.

    async with open_links("10.0.0.5:8421", serve, me=me, key=key) as links:
        print(links.address)
        ...
        links.stop()        # no new ones; those that are open go on

`serve` gets each link once its peer has proved itself, in a task of its own, and runs it. Every
task lives inside that block; leaving it ends what is still there at once.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from pushlane_dispatcher.cluster.address import join_address, listen, tuned
from pushlane_dispatcher.cluster.counters import LastRefusal, LinkCounters, count
from pushlane_dispatcher.cluster.failures import LinkFailed, Refusal, Unreached
from pushlane_dispatcher.cluster.links.greeting import BUSY_WORD, Me
from pushlane_dispatcher.cluster.links.handshake import welcome
from pushlane_dispatcher.cluster.links.link import Link
from pushlane_dispatcher.cluster.links.tls import LinkTls, secure
from pushlane_dispatcher.cluster.settings import DEFAULT_SETTINGS, ClusterSettings

log = logging.getLogger(__name__)

ACCEPTS = 64
"""Connections accepted before others have their turn."""

_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

Serve = Callable[[Link], Awaitable[None]]


@asynccontextmanager
async def open_links(
    address: str,
    serve: Serve,
    *,
    me: Callable[[], Me],
    key: bytes = b"",
    tls: LinkTls | None = None,
    settings: ClusterSettings = DEFAULT_SETTINGS,
    counters: LinkCounters | None = None,
) -> AsyncIterator[Links]:
    """Listen; raises ValueError or OSError when the address can't be had.

    Whether it may be opened without a key and without TLS is the caller's to say: `unprotected`.
    """
    sockets = await listen(address, settings.backlog)
    try:
        async with trio.open_nursery() as nursery:
            links = Links(nursery, sockets, serve, me, key, tls, settings, counters)
            for sock in sockets:
                nursery.start_soon(links.accept, sock)
            yield links
            nursery.cancel_scope.cancel()
    finally:
        for sock in sockets:
            sock.close()


class Links:
    """A node's listening side."""

    def __init__(
        self,
        nursery: trio.Nursery,
        sockets: list[socket.socket],
        serve: Serve,
        me: Callable[[], Me],
        key: bytes,
        tls: LinkTls | None,
        settings: ClusterSettings,
        counters: LinkCounters | None,
    ) -> None:
        self._nursery = nursery
        self._sockets = sockets
        self._serve = serve
        self._me = me
        self._key = key
        self._tls = tls
        self._settings = settings
        self._told: dict[str, float] = {}
        self._open = 0
        self.address = join_address(*sockets[0].getsockname()[:2])
        """Where it listens, with the port that was found."""
        self.counters = counters or LinkCounters()

    def stop(self) -> None:
        """Accept nothing more; links that are open, or in their handshake, go on."""
        for sock in self._sockets:
            if sock.fileno() != -1:
                trio.lowlevel.notify_closing(sock)
                sock.close()

    async def accept(self, sock: socket.socket) -> None:
        """Accept until the socket is closed."""
        with contextlib.suppress(trio.ClosedResourceError):
            while sock.fileno() != -1:
                await trio.lowlevel.wait_readable(sock)
                try:
                    self._accept_some(sock)
                except OSError as error:
                    self.counters.accept_failures += 1
                    log.warning("can't accept links: %s", error)
                    await trio.sleep(self._settings.accept_pause_ms / 1000)

    def _accept_some(self, sock: socket.socket) -> None:
        """Take what waits; raises OSError when something ran out."""
        for _ in range(ACCEPTS):
            try:
                stranger, _ = sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    raise
                continue  # that one went away before we came
            stranger.setblocking(False)
            if self._is_full():
                self._turn_away(stranger)
            else:
                self.counters.strangers += 1
                self._nursery.start_soon(self._admit, stranger)

    def _is_full(self) -> bool:
        places = self._settings
        return self.counters.strangers >= places.strangers or self._open >= places.links

    def _turn_away(self, stranger: socket.socket) -> None:
        """Say `busy` where that costs nothing: without waiting, and not over TLS."""
        self._refused(_peer_of(stranger), Refusal.BUSY.value, "too many connections")
        with contextlib.suppress(OSError):
            if self._tls is None:
                stranger.send(BUSY_WORD)
                stranger.shutdown(socket.SHUT_WR)
                stranger.recv(self._settings.stranger_bytes)  # unread, it would reset the answer
        stranger.close()

    async def _admit(self, stranger: socket.socket) -> None:
        """One connection, from its handshake to its end."""
        plain = tuned(trio.SocketStream(trio.socket.from_stdlib_socket(stranger)), self._settings)
        name = _peer_of(stranger)
        try:
            link = await self._shake_hands(plain, name)
            if link is not None:
                await self._run(link)
        except* Exception:  # one connection's trouble must not be that of all
            self.counters.failures += 1
            log.exception("the link from %s failed", name)
        finally:
            await trio.aclose_forcefully(plain)

    async def _shake_hands(self, plain: trio.SocketStream, name: str) -> Link | None:
        try:
            with trio.move_on_after(self._settings.handshake_ms / 1000):
                stream: trio.abc.Stream = plain
                if self._tls is not None:
                    stream = await secure(plain, self._tls)
                found = await welcome(stream, self._me(), key=self._key, settings=self._settings)
                return Link(stream, found, self._settings, self.counters)
            self._refused(name, Unreached.TIMED_OUT.value, "no complete handshake in time")
        except LinkFailed as failure:
            self._refused(name, failure.code.value, failure.message)
        finally:
            self.counters.strangers -= 1
        return None

    async def _run(self, link: Link) -> None:
        self._open += 1
        try:
            await self._serve(link)
        finally:
            self._open -= 1
            link.abort()

    def _refused(self, name: str, code: str, text: str) -> None:
        """Count it, and say so unless that was said just now."""
        count(self.counters.refusals, code)
        now = trio.current_time()
        host = name.rpartition(":")[0] or name  # the port is another one each time
        self.counters.refused[code] = LastRefusal(now, f"{host}: {code}: {text}")
        if now >= self._told.get(code, now):
            self._told[code] = now + self._settings.tell_ms / 1000
            log.warning("refused a link from %s: %s: %s", name, code, text)


def _peer_of(sock: socket.socket) -> str:
    try:
        return join_address(*sock.getpeername()[:2])
    except OSError:
        return "a peer that is gone"
