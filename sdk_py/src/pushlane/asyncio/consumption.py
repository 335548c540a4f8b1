"""`Client.consume`: handlers for the messages of a queue, some of them at a time.

A handler's message is acked when it returns and nacked when it raises, unless it settled it itself;
its lease is extended meanwhile. When the lease is lost the handler is cancelled. All messages that
can begin in a turn are taken together, and their `start` leaves before their handlers run.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from pushlane.core import verdict
from pushlane.core.lease import Lease
from pushlane.core.settle import ACK, Key
from pushlane.core.subscription import Subscription as CoreSubscription
from pushlane.wire.errors import PushlaneError

from .driver import Driver
from .message import Message

Handler: TypeAlias = Callable[[Message], Awaitable[object] | object]

log = logging.getLogger("pushlane")


class Consumption:
    """One call of consume."""

    def __init__(
        self, driver: Driver, core: CoreSubscription, handler: Handler, concurrency: int
    ) -> None:
        self._driver = driver
        self._core = core
        self._handler = handler
        self._concurrency = concurrency
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Future[None] = driver.loop.create_future()

    async def run(self) -> None:
        """Until the subscription ends (normally, when the client is closed) or we are cancelled."""
        try:
            await self._ended
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            self._driver.core.unsubscribe(self._core)
            self._driver.soon()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    # What the driver calls

    def ready(self) -> None:
        if len(self._tasks) < self._concurrency:
            self._driver.hungry.add(self._take)

    def ended(self, error: PushlaneError | None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    def _take(self) -> None:
        driver, core = self._driver, self._driver.core
        now = driver.now()
        while len(self._tasks) < self._concurrency:
            lease = core.take(self._core, now)
            if lease is None:
                break
            core.keep(lease, now)
            task = driver.loop.create_task(self._handle(lease))
            lease.owner = task
            self._tasks.add(task)

    async def _handle(self, lease: Lease) -> None:
        driver = self._driver
        message = Message(lease, driver)
        key = ACK
        try:
            result = self._handler(message)
            if inspect.isawaitable(result):
                await result
        except asyncio.CancelledError as stop:
            key = verdict.nack(stop, 0, driver.core.limits)
            if not lease.lost:
                raise
        except Exception as error:
            key = verdict.nack(error, None, driver.core.limits)
            log.warning("handler failed on %s of %s", message.id, self._core.queue, exc_info=True)
        finally:
            self._finish(lease, message, key)

    def _finish(self, lease: Lease, message: Message, key: Key) -> None:
        task = lease.owner
        lease.owner = None
        driver = self._driver
        driver.core.release(lease)
        if lease.prefix and not message.is_settled:
            driver.core.settle(lease, key)
        self._tasks.discard(task)
        driver.hungry.add(self._take)
        driver.soon()
