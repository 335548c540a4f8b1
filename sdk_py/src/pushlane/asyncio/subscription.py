"""A subscription as an async iterator."""

from __future__ import annotations

import asyncio
from types import TracebackType

from pushlane.core.subscription import Subscription as CoreSubscription
from pushlane.wire.errors import PushlaneError

from .driver import Driver
from .message import Message


class Subscription:
    """The messages of a queue, one after the other, until it is closed.

        subscription = await client.subscribe("orders")
        async for message in subscription:
            await work(message.body)
            await message.ack()

    Taking a message starts its lease. When the server ends the subscription (its queue is deleted,
    say), the loop raises the error; when you close it, the loop ends.
    """

    def __init__(self, driver: Driver, core: CoreSubscription) -> None:
        self._driver = driver
        self._core = core
        self._waiters: set[asyncio.Future[None]] = set()
        self._is_over = False
        self._error: PushlaneError | None = None

    @property
    def queue(self) -> str:
        """Where its messages come from."""
        return self._core.queue

    @property
    def dropped(self) -> int:
        """How many messages an `ack="none"` subscription missed because it read too slowly."""
        return self._core.dropped

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Message:
        while True:
            lease = self._driver.core.take(self._core, self._driver.now())
            if lease is not None:
                self._driver.run()  # its start must leave before any work on it begins
                return Message(lease, self._driver)
            if self._error is not None:
                raise self._error
            if self._is_over:
                raise StopAsyncIteration
            await self._wait()

    async def _wait(self) -> None:
        """Until there may be something to take."""
        waiter = self._driver.loop.create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    async def close(self) -> None:
        """No more messages. What was not taken goes back at once; what was, can be settled."""
        future = self._driver.loop.create_future()
        self._driver.core.unsubscribe(self._core, future)
        self._driver.soon()
        await future

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # What the driver calls

    def ready(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def ended(self, error: PushlaneError | None) -> None:
        self._is_over = True
        self._error = error
        self.ready()
