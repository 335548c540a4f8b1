"""Upkeep: what a dispatcher does again and again, whether anybody asks it for something or not.

It closes what nobody uses and opens what is due, compares clocks, slots and rows with those in the
store, and tells a lease cache that is back what it missed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

import trio

from pushlane.wire.errors import NotFound, PushlaneError
from pushlane_dispatcher.clock import compare_clocks
from pushlane_dispatcher.context import Context
from pushlane_dispatcher.queues.due import DueShards
from pushlane_dispatcher.queues.manager import Manager
from pushlane_dispatcher.queues.queues import Queues
from pushlane_dispatcher.shard.lease_guard import LeaseGuard
from pushlane_dispatcher.shard.shards import Shards
from pushlane_dispatcher.shard.stop import Stop
from pushlane_dispatcher.usage.writer import UsageWriter
from pushlane_storage.interface import StoreError
from pushlane_storage.queue import QueueRow
from pushlane_storage.work import gather

log = logging.getLogger(__name__)


class Upkeep:
    def __init__(
        self, context: Context, shards: Shards, queues: Queues, manager: Manager, due: DueShards,
        usage: UsageWriter, take_up: Callable[[QueueRow], None],
    ) -> None:  # fmt: skip
        """`take_up` has what is open of a queue go by a newer row."""
        self._context = context
        self._shards = shards
        self._queues = queues
        self._manager = manager
        self._due = due
        self._usage = usage
        self._take_up = take_up

    def start(self, nursery: trio.Nursery) -> None:
        """Its tasks; those that this store and this lease cache have no use for are left out."""
        guard, settings = self._context.leases, self._context.settings
        nursery.start_soon(self._sweep)
        nursery.start_soon(self._watch_windows)
        nursery.start_soon(self._due.run)
        nursery.start_soon(self._watch_clock)
        if settings.usage:
            nursery.start_soon(self._usage.run)
        if self._context.store.ownership.shared:
            nursery.start_soon(self._context.heart.watch, self._shards.wake_all)
            nursery.start_soon(self._compare_slots)
            nursery.start_soon(self._compare_rows)
            nursery.start_soon(self._manager.finish_all)
        if guard is not None and guard.instant is None:
            nursery.start_soon(self._catch_up, guard)

    async def _watch_clock(self) -> None:
        """A task: notices that the clocks disagree, and that they agree again."""
        clock, settings = self._context.clock, self._context.settings
        while True:
            await trio.sleep(settings.clock_ms / 1000)
            try:
                await compare_clocks(clock, self._context.store)
            except StoreError as error:
                clock.look()
                log.info("the store's clock was not compared: %s", error)

    async def _watch_windows(self) -> None:
        """A task: shards that had to do with little hear that there is room again."""
        budget, settings = self._context.budget, self._context.settings
        while True:
            await trio.sleep(settings.windows_ms / 1000)
            if budget.refused and not budget.spent:
                refused, budget.refused = budget.refused, set()
                self._shards.wake(refused)

    async def _sweep(self) -> None:
        """A task: closes what nobody uses, and gives back the slots where others may want them."""
        settings = self._context.settings
        shared = self._context.store.ownership.shared
        idle_ms = settings.shared_idle_ms if shared else settings.idle_ms
        while True:
            await trio.sleep(idle_ms / 2000)
            await self._shards.close_unused(idle_ms)
            await self._shards.release_idle()

    async def _compare_slots(self) -> None:
        """A task: notices that slots are another process's, before a write would."""
        while True:
            await trio.sleep(self._context.settings.compare_ms / 1000)
            try:
                await self._shards.compare()
            except StoreError as error:
                log.info("the slots were not compared: %s", error)

    async def _compare_rows(self) -> None:
        """A task: goes by what was changed elsewhere, and stops what is deleted there.

        A round begins `row_ms` after the last one: whoever changed a row may count on it that we
        go by it then. A deletion needs our word, whether we serve the queue or not.
        """
        settings = self._context.settings
        at = trio.current_time()
        while True:
            at = max(at + settings.row_ms / 1000, trio.current_time())
            await trio.sleep_until(at)
            await gather(self._compare_row, self._shards.rows(), settings.row_reads)

    async def _compare_row(self, ours: QueueRow) -> None:
        row: QueueRow | None = None
        with trio.move_on_after(self._context.settings.row_ms / 1000):  # or others would wait
            try:
                with suppress(NotFound):
                    row = await self._queues.read(ours.tenant, ours.name)
            except PushlaneError as error:
                log.info("the row of %s was not compared: %s", ours.name, error)
                return
            if row is None or row.id != ours.id or row.deleting:
                self._shards.stop_queue(ours, Stop.DELETED)
                if row is not None and row.deleting:
                    self._manager.finish_soon(row)
            elif row.version > ours.version:
                self._take_up(row)

    async def _catch_up(self, guard: LeaseGuard) -> None:
        """A task: a lease cache that is back is told what is out, also by shards that rest.

        Without it, one that nobody has anything to tell would never be tried again.
        """
        while True:
            await trio.sleep(self._context.settings.cache_rest_ms / 1000)
            await self._shards.catch_up(guard)
