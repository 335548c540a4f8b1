"""`Client.consume`: handlers for the messages of a queue, some of them at a time.

A handler's message is acked when it returns and nacked when it raises, unless it settled it itself;
its lease is extended meanwhile. When the lease is lost the handler is cancelled. All messages that
can begin in a turn are taken together, and their `start` leaves before their handlers run.

What becomes of a message is decided when its task is over, not inside it: one that is cancelled
before its first step runs no line of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from pushlane.core import settle
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
        self._ended = asyncio.Event()
        self._error: PushlaneError | None = None

    async def run(self, started: asyncio.Future[None]) -> None:
        """Until the subscription ends (normally, when the client is closed) or we are cancelled."""
        try:
            await started
            await self._ended.wait()
            if self._error is not None:
                raise self._error
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
        self._error = error
        self._ended.set()

    def _take(self) -> None:
        driver, core = self._driver, self._driver.core
        now = driver.now()
        while len(self._tasks) < self._concurrency:
            lease = core.take(self._core, now)
            if lease is None:
                break
            core.keep(lease, now)
            message = Message(lease, driver)
            task = driver.loop.create_task(self._handle(message))
            lease.owner = task
            self._tasks.add(task)
            task.add_done_callback(partial(self._finish, lease, message))

    async def _handle(self, message: Message) -> None:
        result = self._handler(message)
        if inspect.isawaitable(result):
            await result

    def _finish(self, lease: Lease, message: Message, task: asyncio.Task[None]) -> None:
        driver = self._driver
        lease.owner = None
        driver.core.release(lease)
        key = self._verdict(message, task)
        if lease.prefix and not message.is_settled:
            driver.core.settle(lease, key)
        self._tasks.discard(task)
        driver.hungry.add(self._take)
        driver.soon()

    def _verdict(self, message: Message, task: asyncio.Task[None]) -> Key:
        limits = self._driver.core.limits
        if task.cancelled():
            return settle.nack(asyncio.CancelledError(), 0, limits)
        error = task.exception()
        if error is None:
            return ACK
        if not isinstance(error, Exception):  # the program ends: it is not the message's fault
            return settle.nack(error, 0, limits)
        log.warning("handler failed on %s of %s", message.id, self._core.queue, exc_info=error)
        return settle.nack(error, None, limits)
