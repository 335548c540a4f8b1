"""Managing queues: making, changing and deleting them.

A queue is changed and deleted by a server that has all its slots, so nobody else serves it
meanwhile. A deletion that was cut off is finished by whoever meets it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from pushlane.wire.errors import Conflict, NotFound, PushlaneError
from pushlane.wire.names import check_queue_name
from pushlane_dispatcher.queues.config import own_dead_letter
from pushlane_dispatcher.queues.queues import Name, Queues, store_answers
from pushlane_dispatcher.shard.shards import Shards
from pushlane_dispatcher.shard.stop import Stop
from pushlane_dispatcher.usage.writer import UsageWriter
from pushlane_storage.queue import QueueConfig, QueueRow

log = logging.getLogger(__name__)

Reconfigure = Callable[[str, str], Awaitable[None]]
"""Have an open queue take on what its row says, by tenant and name."""


class Manager:
    def __init__(
        self,
        queues: Queues,
        shards: Shards,
        usage_writer: UsageWriter,
        nursery: trio.Nursery,
        most: int,
        reconfigure: Reconfigure,
    ) -> None:
        """`most` deletions that others began are finished at once."""
        self._queues = queues
        self._shards = shards
        self._usage_writer = usage_writer
        self._nursery = nursery
        self._most = most
        self._reconfigure = reconfigure
        self._locks: dict[Name, tuple[trio.Lock, int]] = {}
        self._finishing: set[Name] = set()
        """Queues whose deletion somebody else began, and we finish."""

    async def create(self, tenant: str, name: str, config: QueueConfig | None = None) -> QueueRow:
        """A new queue; `Conflict` when there is one of this name."""
        config = config or QueueConfig()
        await self._check_target(tenant, name, config)
        return await self._create(tenant, name, config)

    async def _create(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        try:
            return await self._queues.create(tenant, name, config)
        except Conflict:
            if not await self.finish(tenant, name):
                raise
            return await self._queues.create(tenant, name, config)

    async def ensure(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        """The queue of this name, made with this configuration when there is none."""
        try:
            return await self._queues.get(tenant, name)
        except NotFound:
            pass
        try:
            return await self._create(tenant, name, config)
        except Conflict:  # somebody was faster
            return await self._queues.get(tenant, name)

    async def _check_target(self, tenant: str, name: str, config: QueueConfig) -> None:
        """`Conflict` when dead letters are to go where they could die again.

        A queue for dead letters has none of its own by what it says itself, and by nothing else:
        else who names it would end what dies there.
        """
        target = config.dead_letter
        if not target or target == name:  # itself: that is refused with its other faults
            return
        try:
            row = await self._queues.get(tenant, check_queue_name(target))
        except NotFound:  # the first dead letter makes it, without any of its own
            return
        own = own_dead_letter(target, row.config)
        if own is not None:
            raise Conflict(
                f"dead_letter is {target}, which sends dead letters of its own to {own}: set its "
                'dead_letter to "" first, or choose a queue whose name ends in .dead'
            )

    async def get(self, tenant: str, name: str) -> QueueRow:
        return await self._queues.get(tenant, name)

    async def list(self, tenant: str, after: str = "", limit: int = 100) -> list[QueueRow]:
        return await self._queues.list(tenant, after, limit)

    async def update(
        self, tenant: str, name: str, config: QueueConfig, version: int | None = None
    ) -> QueueRow:
        """Replace the configuration, also that of open shards."""
        async with self.lock(tenant, name):
            old = await self._queues.read(tenant, name)
            if config.dead_letter != old.config.dead_letter:
                await self._check_target(tenant, name, config)
            async with self._owning(old):
                row = await self._queues.update(tenant, name, config, version, old.id)
        await self._reconfigure(tenant, name)
        return row

    async def delete(self, tenant: str, name: str) -> None:
        """Delete a queue and all that it stored. What fails half-way is finished by who meets it.

        All its slots are ours meanwhile. So nobody else can confirm anything for it: not before,
        for it would have to own one; not after, for who owns one then reads the row first.
        """
        async with self.lock(tenant, name):
            row = await self._queues.read(tenant, name)
            await self._delete(row)

    async def _delete(self, row: QueueRow) -> None:
        async with self._owning(row):
            row = await self._queues.mark_deleting(row)
            with store_answers(row.name):
                await self._shards.confirm_slots(row)
            await self._shards.close_queue(row, Stop.DELETED)
            await self._usage_writer.deleted(row)
            await self._queues.remove(row)
            self._shards.forget(row)

    @asynccontextmanager
    async def _owning(self, row: QueueRow) -> AsyncIterator[None]:
        """`Unavailable` when another server has one of its slots."""
        async with AsyncExitStack() as stack:
            with store_answers(row.name):
                await stack.enter_async_context(self._shards.owning(row))
            yield

    async def finish(self, tenant: str, name: str) -> bool:
        """Finish a deletion that was begun. False: there is none to finish."""
        async with self.lock(tenant, name):
            try:
                row = await self._queues.read(tenant, name)
            except NotFound:  # somebody was faster
                return True
            if row.deleting:
                await self._delete(row)
        return row.deleting

    def finish_soon(self, row: QueueRow) -> None:
        """The same beside everything else."""
        place = row.tenant, row.name
        if place not in self._finishing and len(self._finishing) < self._most:
            self._finishing.add(place)
            self._nursery.start_soon(self._finish_quietly, *place)

    async def _finish_quietly(self, tenant: str, name: str) -> None:
        try:
            await self.finish(tenant, name)
        except PushlaneError as error:
            log.info("the deletion of queue %s could not be finished: %s", name, error)
        finally:
            self._finishing.discard((tenant, name))

    @asynccontextmanager
    async def lock(self, tenant: str, name: str) -> AsyncIterator[None]:
        """One at a time opens, changes or deletes a queue."""
        lock, users = self._locks.get((tenant, name), (trio.Lock(), 0))
        self._locks[tenant, name] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop((tenant, name))
            if users > 1:
                self._locks[tenant, name] = lock, users - 1
