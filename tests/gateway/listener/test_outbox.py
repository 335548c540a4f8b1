"""The outbox by itself: what is encrypted but not sent counts as waiting for who wants all gone."""

from __future__ import annotations

import socket

import trio

from pushlane.wire.limits import DEFAULTS
from pushlane_gateway.listener.counters import Counters
from pushlane_gateway.listener.hub import Hub
from pushlane_gateway.listener.link import Link
from pushlane_gateway.listener.outbox import Outbox
from pushlane_gateway.settings import DEFAULT_SETTINGS


class Sticky(Link):
    """Takes everything, and holds it back until it is let go, as TLS does when nobody reads."""

    __slots__ = ("held", "room")

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock, "test")
        self.held = b""
        self.room = trio.Event()

    def write_now(self, data: bytes | memoryview) -> int:
        self.held += data
        if self.room.is_set():
            super().write_now(self.held)
            self.held = b""
        return len(data)

    @property
    def unsent(self) -> bool:
        return bool(self.held)

    async def wait_writable(self) -> None:
        await self.room.wait()


async def test_all_gone_means_sent() -> None:
    ours, other = socket.socketpair()
    ours.setblocking(False)
    steps: list[str] = []
    with ours, other:
        async with trio.open_nursery() as nursery:
            hub = Hub(nursery, DEFAULT_SETTINGS, DEFAULTS, Counters())
            link = Sticky(ours)
            outbox = Outbox(link, hub)

            async def drain(below: int, step: str) -> None:
                await outbox.drain(below)
                steps.append(step)

            outbox.put(b"hello")
            outbox.flush()
            assert outbox.waiting == 0
            nursery.start_soon(drain, 2, "room for more")
            nursery.start_soon(drain, 1, "all gone")
            await trio.testing.wait_all_tasks_blocked()
            assert steps == ["room for more"]
            blocked = outbox.blocked_since
            assert blocked is not None
            link.room.set()
        assert steps == ["room for more", "all gone"]
        assert outbox.blocked_since is None
        assert other.recv(10) == b"hello"


async def test_a_closed_connection_takes_nothing_and_holds_nobody_up() -> None:
    ours, other = socket.socketpair()
    ours.setblocking(False)
    with ours, other:
        async with trio.open_nursery() as nursery:
            outbox = Outbox(
                Link(ours, "test"), Hub(nursery, DEFAULT_SETTINGS, DEFAULTS, Counters())
            )
            outbox.put(b"x" * 10_000_000)
            outbox.flush()
            nursery.start_soon(outbox.drain, 1)
            await trio.testing.wait_all_tasks_blocked()
            assert outbox.waiting > 0
            outbox.abort()
            outbox.put(b"too late")
            assert outbox.waiting == 0


async def test_the_flusher_can_be_hurried() -> None:
    ours, other = socket.socketpair()
    ours.setblocking(False)
    with ours, other:
        async with trio.open_nursery() as nursery:
            hub = Hub(nursery, DEFAULT_SETTINGS, DEFAULTS, Counters())
            outbox = Outbox(Link(ours, "test"), hub)
            outbox.put(b"published")
            assert outbox.waiting
            hub.flusher.flush()
            assert not outbox.waiting
            assert other.recv(100) == b"published"
            hub.flusher.flush()  # nothing is due any more
