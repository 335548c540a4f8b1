"""Where the suite runs: shells, transports and stores, one line each."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from pushlane import testing
from tests.behaviour.javascript import JavaScriptShell
from tests.behaviour.shells import AsyncioShell, Shell
from tests.services import service

BEAT_MS = 200
JUDGE_MS = 1_000
"""A server that was killed is missed for this long. None that lives is ever judged here: whoever
wants its slots is started after its end."""
ADOPT_MS = 1_000
"""What was only prefetched waits for this long after a crash."""
START_S = 60.0
"""How long such a server may take to start, or to stop."""
PATIENCE_S = 25.0
"""What should happen soon may take this long, on a busy machine. It is less than a lease: when that
ends a message comes anyway, whatever should have brought it before."""


def replicated_server(name: str) -> testing.server:
    """A server on the run's Cassandra and Redis, with a keyspace to itself, which is used again by
    the next one of this name."""
    return testing.server(
        store=service("cassandra").cassandra_url(f"behaviour_{os.getpid()}_{name}"),
        arguments=[
            *("--leases", service("redis").redis_url),
            *("--set", f"cassandra.beat_ms={BEAT_MS}"),
            *("--set", f"cassandra.judge_ms={JUDGE_MS}"),
            *("--set", f"shard.adopt_ms={ADOPT_MS}"),
        ],
        start_s=START_S,
        stop_s=START_S,
    )


MakeServer = Callable[[str], testing.server]
"""Servers of a process that run at the same time have different names."""

SHELLS: dict[str, Shell] = {
    "asyncio": AsyncioShell(),
    "javascript": JavaScriptShell(),
}
TRANSPORTS = [
    "ws",
    "poll",
]
STORES: dict[str, MakeServer] = {
    "memory": lambda _: testing.server(store="memory"),
    "sqlite": lambda _: testing.server(store="sqlite"),
    "cassandra": replicated_server,
}


class World:
    """A shell, a transport and a server, and a queue that nobody else uses."""

    def __init__(self, shell: Shell, transport: str, server: testing.server, queue: str) -> None:
        self.shell = shell
        self.transport = transport
        self.server = server
        self.queue = queue

    @property
    def open_state(self) -> str:
        """`Client.state` of a client that is connected."""
        return "polling" if self.transport == "poll" else "open"

    @property
    def port(self) -> int:
        """The server's, for proxies in front of it."""
        port = urlsplit(self.server.url).port
        assert port is not None
        return port

    def connect(self, **options: Any) -> AbstractAsyncContextManager[Any]:
        """A client of this world's server."""
        return self.shell.connect(self.server.url, transport=self.transport, **options)

    async def eventually(self, is_true: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        """Wait until it is."""
        deadline = time.monotonic() + seconds
        while not is_true():
            assert time.monotonic() < deadline, "it never came true"
            await self.shell.sleep(0.01)

    async def receive(
        self, subscription: Any, count: int, seconds: float = PATIENCE_S
    ) -> list[Any]:
        """The next messages."""
        return [await self.shell.within(seconds, subscription.__anext__()) for _ in range(count)]


def behaviour(test: Callable[[World], Awaitable[None]]) -> Callable[..., None]:
    """A test of the suite: runs in whatever event loop the world's shell has."""

    @wraps(test)
    def run(**worlds: World) -> None:
        (world,) = worlds.values()  # `world`, or `own_world` for a server of its own
        world.shell.run(lambda: test(world))

    return run
