"""Orders: what the owner of a shard does when it is asked to (see `browsing.question`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pushlane.wire.errors import Unavailable
from pushlane_dispatcher.browsing.answers import find
from pushlane_dispatcher.browsing.question import (
    Cancel,
    DropBuckets,
    Find,
    FlushUsage,
    Kept,
    Purge,
    Question,
    RedriveSpan,
    SpanRedriven,
)
from pushlane_dispatcher.context import Context
from pushlane_dispatcher.core.effects import SettleTicket
from pushlane_dispatcher.queues.queues import store_answers
from pushlane_dispatcher.shard.redriver import Redriver
from pushlane_dispatcher.waiter import Waiter
from pushlane_storage.dropping import drop_buckets

if TYPE_CHECKING:
    from pushlane_dispatcher.shard.runner import ShardRunner

A = TypeVar("A")
Flush = Callable[[], Awaitable[bool]]
"""Writes a shard's exact counters; whether that worked."""


class Orders:
    def __init__(self, runner: ShardRunner, context: Context, flush: Flush) -> None:
        self._runner = runner
        self._clock = context.clock
        self._store = context.store
        self._flush = flush

    async def carry_out(self, order: Question[A]) -> A:
        """Raises `PushlaneError`."""
        found: A = await _HOW[type(order)](self, order)
        return found

    async def cancel(self, order: Cancel) -> None:
        found = await find(self._store, self._runner, Find(order.lane, order.seq))
        waiter: Waiter[SettleTicket] = Waiter()
        self._runner.cancel(order.lane, order.seq, found.message.not_before, waiter)
        await waiter.wait()

    async def purge(self, _: Purge) -> int:
        waiter: Waiter[SettleTicket] = Waiter()
        self._runner.purge(waiter)
        return (await waiter.wait()).purged

    async def redrive(self, order: RedriveSpan) -> SpanRedriven:
        return await Redriver(self._store, self._runner, order).run()

    async def drop(self, order: DropBuckets) -> list[Kept]:
        runner, wall = self._runner, None if self._clock.doubted else self._clock.wall()
        with store_answers(runner.name):
            kept = await drop_buckets(self._store, runner.key, order.keys, runner.config, wall)
        return [Kept(key, reason) for key, reason in kept.items()]

    async def flush(self, _: FlushUsage) -> None:
        if not await self._flush():
            raise Unavailable(
                f"the usage of {self._runner.name} could not be written", retry_ms=1_000
            )


_HOW: dict[type[Question[Any]], Callable[[Orders, Any], Awaitable[Any]]] = {
    Cancel: Orders.cancel,
    Purge: Orders.purge,
    RedriveSpan: Orders.redrive,
    DropBuckets: Orders.drop,
    FlushUsage: Orders.flush,
}
