"""Managing queues: making, changing and deleting them.

The row decides, and any process may change it. Who serves the queue reads it again within
`row_ms` (upkeep.py). A deletion needs more: each shard is closed by the owner of its slot, or
by who claims that. One that was cut off is finished by whoever meets it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import trio

from pushlane.wire.errors import Conflict, NotFound, PushlaneError, Unavailable
from pushlane.wire.names import check_queue_name
from pushlane_dispatcher.queues.config import own_dead_letter
from pushlane_dispatcher.queues.queues import Name, Queues, store_answers
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.shards import Shards
from pushlane_dispatcher.shard.stop import Stop
from pushlane_dispatcher.usage.writer import UsageWriter
from pushlane_storage.interface import StoreError
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.work import gather

log = logging.getLogger(__name__)

TakeUp = Callable[[QueueRow], None]
"""Have what is open of a queue go by its row."""


class Manager:
    def __init__(
        self,
        queues: Queues,
        shards: Shards,
        usage_writer: UsageWriter,
        nursery: trio.Nursery,
        settings: Settings,
        take_up: TakeUp,
    ) -> None:
        self._queues = queues
        self._shards = shards
        self._usage_writer = usage_writer
        self._nursery = nursery
        self._settings = settings
        self._take_up = take_up
        self._locks: dict[Name, tuple[trio.Lock, int]] = {}
        self._unfinished: dict[Name, None] = {}
        """Queues that are being deleted, by us or by others …"""
        self._finishing: set[Name] = set()
        """… and those of them that we go on with beside everything else."""

    async def create(self, tenant: str, name: str, config: QueueConfig | None = None) -> QueueRow:
        """A new queue; `Conflict` when there is one of this name."""
        config = config or QueueConfig()
        await self._check_target(tenant, name, config)
        return await self._create(tenant, name, config)

    async def _create(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        try:
            return await self._queues.create(tenant, name, config)
        except Conflict:
            with suppress(NotFound):
                if not (await self._queues.read(tenant, name)).deleting:
                    raise
                await self.finish(tenant, name)
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
        """Replace the configuration, also that of open shards.

        The row decides, whoever serves the queue. Another process that may do so has read it again
        when this returns.
        """
        async with self.lock(tenant, name):
            old = await self._queues.read(tenant, name)
            if config.dead_letter != old.config.dead_letter:
                await self._check_target(tenant, name, config)
            row = await self._queues.update(tenant, name, config, version, old.id)
            self._take_up(row)
        if await self._is_elsewhere(row):
            await trio.sleep(self._settings.row_ms / 1000)
        return row

    async def _is_elsewhere(self, row: QueueRow) -> bool:
        """Whether others may serve a queue. Who claims a slot of it later reads the row first."""
        try:
            return bool(await self._shards.others(row))
        except StoreError:  # then we can't know
            return True

    # Deleting

    async def delete(self, tenant: str, name: str) -> None:
        """Delete a queue and all that it stored, and come back when nothing of it is left.

        Others may have to do their part. When they take too long the deletion goes on without us,
        and this is `Unavailable`.
        """
        async with self.lock(tenant, name):
            row = await self._mark(tenant, name)
            other = await self._take_off(row)
        if other is None:
            return
        patience = self._settings.row_ms + self._settings.close_ms
        with trio.move_on_after(patience / 1000):
            while True:
                await trio.sleep(self._settings.finish_ms / 1000)
                other = await self._go_on(tenant, name, row.id)
                if other is None:
                    return
        raise Unavailable(
            f"queue {name} is being deleted, which goes on: server {other} has not closed it yet",
            retry_ms=1_000,
        )

    async def _mark(self, tenant: str, name: str) -> QueueRow:
        try:
            return await self._queues.mark_deleting(await self._queues.read(tenant, name))
        except Conflict:  # somebody else changes it, or deletes it too
            return await self._queues.mark_deleting(await self._queues.read(tenant, name))

    async def _take_off(self, row: QueueRow) -> str | None:
        """Take the last shards off a queue that is being deleted; who has to go on, or None: it is
        gone.

        `config.shards` of such a row says how many shards are left: those behind it are closed for
        good. The owner of the last one's slot takes it off, with all before it that are its own;
        who has the first one removes the queue. So any number of processes can do that together,
        and each step may be repeated, for what is closed stays so:

        - Whoever takes a shard off owned its slot when the row was marked already, as it is asked
          after that: nobody else served it since. It has none open itself.
        - Who gets the slot later reads the row after the claim, and opens nothing.
        - The row changes by compare-and-set, so of two who take off different shards one begins
          anew; and it goes by its id, so a queue that was made again is another one.

        No time proves anything here: an owner that lives and does nothing keeps its shard.
        """
        self._remember((row.tenant, row.name))
        await self._shards.close_queue(row, Stop.DELETED)
        async with AsyncExitStack() as stack:
            with store_answers(row.name):
                last = await stack.enter_async_context(self._shards.owning_last(row))
                await self._shards.confirm_slots(row, last.first)
            await self._usage_writer.deleted(row, last.first)
            if last.first == 0:
                await self._queues.remove(row)
            elif last.first < row.config.shards:
                with suppress(Conflict, NotFound):  # somebody was faster
                    await self._queues.take_off(row, last.first)
            self._shards.forget(row, last.first)
        if last.first == 0:
            self._unfinished.pop((row.tenant, row.name), None)
        return last.other or None

    async def _go_on(self, tenant: str, name: str, queue_id: str | None = None) -> str | None:
        """Do our part of a deletion that was begun; who has to go on, or None: there is none.

        With an id, only of this queue: its name may be another's by now.
        """
        async with self.lock(tenant, name):
            with suppress(NotFound):
                row = await self._queues.read(tenant, name)
                if row.deleting and queue_id in (None, row.id):
                    if (tenant, name) not in self._unfinished:
                        # Whoever began it may have died before the others were called.
                        row = await self._queues.mark_deleting(row)
                    return await self._take_off(row)
            self._unfinished.pop((tenant, name), None)
            return None

    async def finish(self, tenant: str, name: str) -> None:
        """Finish a deletion if one was begun; `Unavailable` while others have to do their part."""
        other = await self._go_on(tenant, name)
        if other is not None:
            raise Unavailable(
                f"queue {name} is being deleted: server {other} has not closed it yet",
                retry_ms=1_000,
            )

    def finish_soon(self, row: QueueRow) -> None:
        """The same beside everything else."""
        place = row.tenant, row.name
        self._remember(place)
        if place not in self._finishing and len(self._finishing) < self._settings.finishing:
            self._finishing.add(place)
            self._nursery.start_soon(self._finish_quietly, place)

    def _remember(self, place: Name) -> None:
        self._unfinished[place] = None
        if len(self._unfinished) > self._settings.queue_rows:
            del self._unfinished[next(iter(self._unfinished))]

    async def finish_all(self) -> None:
        """A task, where others may have a part in deletions: they go on until nothing is left."""
        while True:
            await trio.sleep(self._settings.row_ms / 1000)
            await gather(self._finish_again, self._unfinished, self._settings.finishing)

    async def _finish_again(self, place: Name) -> None:
        if place not in self._finishing:
            self._finishing.add(place)
            await self._finish_quietly(place)

    async def _finish_quietly(self, place: Name) -> None:
        try:
            await self.finish(*place)
        except PushlaneError as error:
            log.info("the deletion of queue %s could not be finished: %s", place[1], error)
        finally:
            self._finishing.discard(place)

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
