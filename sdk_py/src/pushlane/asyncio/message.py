"""A delivered message, and the ways to settle it."""

from __future__ import annotations

import asyncio
from types import TracebackType

from pushlane.core import settle
from pushlane.core.lease import Lease
from pushlane.core.message import BaseMessage
from pushlane.core.settle import ACK, Key
from pushlane.wire.errors import LeaseLost

from .driver import Driver


class Message(BaseMessage):
    """A message in your hands.

    Settle it with `ack`, `nack` or `reject`, or let `async with` do that: it acks at the end, nacks
    when the block raises, and extends the lease meanwhile, for at most an hour. When the lease is
    lost the block is cancelled, and LeaseLost raised.

        async for message in subscription:
            async with message:
                await work(message.body)
    """

    __slots__ = ("_cancelling", "_driver", "_is_cancelled", "_task")

    def __init__(self, lease: Lease, driver: Driver) -> None:
        super().__init__(lease)
        self._driver = driver
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._is_cancelled = False

    async def ack(self) -> None:
        """It is done. Returns when that is durable; raises LeaseLost when it came too late."""
        await self._settle(ACK)

    async def nack(self, error: object = None, delay_ms: int | None = None) -> None:
        """It failed: it comes again after the queue's backoff, or after `delay_ms` (0: at once).

        `error` is a text or an exception, for whoever looks at the message later.
        """
        await self._settle(settle.nack(error, delay_ms, self._driver.core.limits))

    async def reject(self, error: object = None) -> None:
        """It can never succeed: to the dead letters."""
        await self._settle(settle.reject(error, self._driver.core.limits))

    async def extend(self, lease_ms: int) -> None:
        """The lease ends `lease_ms` from now. Handlers and `async with` do that on their own."""
        await self._settle(settle.extend(lease_ms, self._driver.core.limits))

    async def _settle(self, key: Key) -> None:
        future = self._driver.loop.create_future()
        self._driver.core.settle(self._lease, key, future)
        self._driver.soon()
        await future

    # async with

    async def __aenter__(self) -> Message:
        if self.lost:
            raise LeaseLost("the lease was lost before the work began")
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        self._is_cancelled = False
        self._lease.owner = self
        self._driver.core.keep(self._lease, self._driver.now())
        return self

    def cancel(self) -> None:
        """The lease is lost: cancel the block."""
        assert self._task is not None
        self._is_cancelled = True
        self._task.cancel()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lease.owner = None
        self._driver.core.release(self._lease)
        if self._is_cancelled:
            assert self._task is not None
            is_ours = self._task.uncancel() <= self._cancelling
            if is_ours and (exc is None or isinstance(exc, asyncio.CancelledError)):
                raise LeaseLost("the lease was lost during the work") from exc
            return
        if self.is_settled:
            return
        if exc is None:
            await self.ack()
        elif isinstance(exc, Exception):
            await self.nack(exc)
        else:
            key = settle.nack(exc, 0, self._driver.core.limits)
            self._driver.core.settle(self._lease, key)
            self._driver.soon()
