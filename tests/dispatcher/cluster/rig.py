"""Nodes for the tests of links: what they say of themselves, and streams between two of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio
from trio.testing import memory_stream_pair

from pushlane_dispatcher.cluster.counters import LinkCounters
from pushlane_dispatcher.cluster.failures import LinkFailed
from pushlane_dispatcher.cluster.links.greeting import VERSIONS, Agreement, Me, agree
from pushlane_dispatcher.cluster.links.handshake import greet, welcome
from pushlane_dispatcher.cluster.links.link import Link
from pushlane_dispatcher.cluster.settings import DEFAULT_SETTINGS, ClusterSettings

KEY = b"a key that only the nodes have"
WALL = 1_700_000_000_000


def me(
    name: str,
    *,
    cluster: str = "test",
    process: str = "",
    wall: int = WALL,
    versions: tuple[int, int] = VERSIONS,
) -> Me:
    """A node; its nonce is made of its name."""
    return Me(
        cluster=cluster,
        process=process or f"process-{name}",
        name=name,
        version="0.1.0",
        wall=lambda: wall,
        nonce=lambda: name.encode().ljust(16, b".")[:16],
        versions=versions,
    )


def agreement(of: str, with_: str, lane: str = "data", frame_bytes: int = 1 << 23) -> Agreement:
    """What a handshake between these two would find."""
    ours, theirs = me(of).greeting(frame_bytes, lane), me(with_).greeting(frame_bytes, lane)
    return agree(ours, theirs, lane, WALL, 60_000, b"")


@dataclass
class Shaken:
    """What came of a handshake, on both sides."""

    dialler: Agreement | LinkFailed
    listener: Agreement | LinkFailed


async def shake(
    dialler: Me,
    listener: Me,
    *,
    lane: str = "data",
    expects: str = "",
    keys: tuple[bytes, bytes] = (KEY, KEY),
    settings: ClusterSettings = DEFAULT_SETTINGS,
) -> Shaken:
    """A whole handshake in memory; each side closes its end when it is through."""
    ours, theirs = memory_stream_pair()
    found: dict[str, Agreement | LinkFailed] = {}

    async def dial() -> None:
        async with ours:
            try:
                found["dialler"] = await greet(
                    ours, dialler, lane=lane, expects=expects, key=keys[0], settings=settings
                )
            except LinkFailed as failure:
                found["dialler"] = failure

    async def accept() -> None:
        async with theirs:
            try:
                found["listener"] = await welcome(theirs, listener, key=keys[1], settings=settings)
            except LinkFailed as failure:
                found["listener"] = failure

    async with trio.open_nursery() as nursery:
        nursery.start_soon(dial)
        nursery.start_soon(accept)
    return Shaken(found["dialler"], found["listener"])


@dataclass
class End:
    """One end of a link that runs, and what came over it."""

    link: Link
    stream: trio.abc.Stream
    counters: LinkCounters
    got: list[bytes] = field(default_factory=list)
    over: trio.Event = field(default_factory=trio.Event)

    async def run(self) -> None:
        await self.link.run(self.got.append)
        self.over.set()


Pair = tuple[trio.abc.Stream, trio.abc.Stream]


def make_end(
    stream: trio.abc.Stream, of: str, with_: str, settings: ClusterSettings = DEFAULT_SETTINGS
) -> End:
    counters = LinkCounters()
    found = agreement(of, with_, frame_bytes=settings.frame_bytes)
    return End(Link(stream, found, settings, counters), stream, counters)


@asynccontextmanager
async def linked(
    settings: ClusterSettings = DEFAULT_SETTINGS,
    streams: Callable[[], Pair] = memory_stream_pair,
) -> AsyncIterator[tuple[End, End]]:
    """Two ends of a link that both run; ended at the end of the block."""
    one, other = streams()
    left, right = make_end(one, "a", "b", settings), make_end(other, "b", "a", settings)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(left.run)
        nursery.start_soon(right.run)
        yield left, right
        nursery.cancel_scope.cancel()


async def until(is_so: Callable[[], object]) -> None:
    """Wait for a state of the other side, for which there is no event."""
    with trio.fail_after(10):
        while not is_so():  # noqa: ASYNC110
            await trio.sleep(0.005)
