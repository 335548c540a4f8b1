"""What the tests need of a shell besides its clients: to run, to wait, to do two things at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import pushlane

MOST_SECONDS = 300
"""For one test: those that start a server on Cassandra anew twice take a tenth of it."""


class Shell(Protocol):
    """One of the SDK's shells."""

    encodings: tuple[str, ...]

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Run a test in an event loop of its own."""

    def connect(self, url: str, **options: Any) -> AbstractAsyncContextManager[Any]:
        """A client."""

    async def sleep(self, seconds: float) -> None: ...

    async def all(self, *awaitables: Awaitable[Any]) -> list[Any]:
        """Await them at the same time; their results."""

    def background(self, awaitable: Awaitable[Any]) -> AbstractAsyncContextManager[Any]:
        """Do it while the block runs, then cancel it."""

    async def within(self, seconds: float, awaitable: Awaitable[Any]) -> Any:
        """Await it, but not longer; raises TimeoutError."""

    async def thread(self, function: Callable[[], Any]) -> Any:
        """Call something that blocks, without blocking clients."""


class AsyncioShell:
    """`pushlane` itself."""

    encodings: tuple[str, ...] = ("json", "msgpack")

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(MOST_SECONDS):
                await main()

        asyncio.run(bounded())

    def connect(self, url: str, **options: Any) -> AbstractAsyncContextManager[Any]:
        return pushlane.connect(url, **options)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def all(self, *awaitables: Awaitable[Any]) -> list[Any]:
        return list(await asyncio.gather(*awaitables))

    @asynccontextmanager
    async def background(self, awaitable: Awaitable[Any]) -> AsyncIterator[Any]:
        task = asyncio.ensure_future(awaitable)
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    async def within(self, seconds: float, awaitable: Awaitable[Any]) -> Any:
        return await asyncio.wait_for(awaitable, seconds)

    async def thread(self, function: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(function)
