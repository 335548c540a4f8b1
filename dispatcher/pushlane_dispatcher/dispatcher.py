"""The dispatcher: queues by name, their shards opened when they are needed.

    async with open_dispatcher(store, leases) as dispatcher:
        queue = await dispatcher.open("default", "orders", create=True)
        await queue.publish([...])

Every task of it lives inside that block. Leaving it in good order closes the shards: what was
accepted is stored and answered. An error or a cancellation ends them at once, with their callers
told that the outcome is unknown.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
import trio

from pushlane.wire.errors import BadRequest, Conflict, NotFound, Unavailable
from pushlane.wire.limits import DEFAULTS, Limits
from pushlane_dispatcher import lookup
from pushlane_dispatcher.backlog import Page, peek
from pushlane_dispatcher.clerk import Clerk
from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.config import own_dead_letter
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.explain import Explanation, Stats
from pushlane_dispatcher.core.looking import ConsumerInfo
from pushlane_dispatcher.endings import find_ending
from pushlane_dispatcher.lease_guard import LeaseGuard
from pushlane_dispatcher.open_queue import OpenQueue
from pushlane_dispatcher.publication import Publication
from pushlane_dispatcher.queues import Name, Queues, store_answers
from pushlane_dispatcher.recording.recorder import Recorder
from pushlane_dispatcher.redrive import Redrive, Redriven, redrive
from pushlane_dispatcher.retention import MOST, BucketName, Dropped, drop_buckets
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard_runner import ShardRunner
from pushlane_dispatcher.shards import Shards
from pushlane_dispatcher.stop import Stop
from pushlane_dispatcher.tools import Tools, make_prefix
from pushlane_dispatcher.transfers import Send
from pushlane_dispatcher.usage_report import UsagePoint
from pushlane_leases.interface import LeaseCache
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import SharedStore, Store, StoreError
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueConfig, QueueRow

log = logging.getLogger(__name__)


@asynccontextmanager
async def open_dispatcher(
    store: Store,
    leases: LeaseCache | None = None,
    *,
    clock: Clock | None = None,
    settings: Settings | None = None,
    bounds: Bounds | None = None,
    limits: Limits = DEFAULTS,
    chance: Callable[[], float] = random.random,
    prefix: Callable[[], str] = make_prefix,
    owner: str | None = None,
    recorder: Recorder | None = None,
) -> AsyncIterator[Dispatcher]:
    """`owner` names this process in the slots' rows."""
    clock = clock or Clock()
    settings = settings or Settings()
    guard = None if leases is None else LeaseGuard(leases, clock, settings)
    tools = Tools(
        store, guard, clock, settings, bounds or Bounds(), limits, chance, prefix, recorder
    )
    error: Exception | None = None
    async with trio.open_nursery() as nursery:
        dispatcher = Dispatcher(tools, nursery, owner or f"node-{secrets.token_hex(8)}")
        nursery.start_soon(dispatcher.sweep)
        if settings.usage:
            nursery.start_soon(dispatcher.clerk.run)
        if isinstance(store, SharedStore):
            nursery.start_soon(dispatcher.compare, store)
        if guard is not None and guard.instant is None:
            nursery.start_soon(dispatcher.catch_up, guard)
        try:
            yield dispatcher
            await dispatcher.aclose()
        except Exception as raised:
            error = raised  # not from inside the nursery: it would come out in a group
        nursery.cancel_scope.cancel()
    if error is not None:
        raise error


class Dispatcher:
    def __init__(self, tools: Tools, nursery: trio.Nursery, owner: str) -> None:
        self._tools = tools
        self.clock = tools.clock
        self.leases = tools.leases
        self._queues = Queues(tools)
        self.clerk = Clerk(tools, f"{owner}.{secrets.token_hex(4)}")
        self._shards = Shards(
            tools, nursery, owner, self._make_send, self._shard_stopped, self.clerk
        )
        self._open: dict[Name, OpenQueue] = {}
        self._locks: dict[Name, tuple[trio.Lock, int]] = {}

    @property
    def open_shards(self) -> int:
        return len(self._shards)

    def store_numbers(self) -> dict[str, int]:
        """What the store counts, and how big it is; nothing when it can't say."""
        stats = getattr(self._tools.store, "stats", None)
        return {} if stats is None else msgspec.structs.asdict(stats())

    def lease_numbers(self) -> dict[str, int]:
        """How the lease cache does; nothing when it is in this process, or there is none."""
        guard = self.leases
        if guard is None or guard.instant is not None:
            return {}
        return {
            "broken": guard.broken,
            "failures": guard.failures,
            "forgotten": guard.forgotten,
            "skipped": guard.skipped,
            "trips": guard.trips,
        }

    def usage_numbers(self) -> dict[str, int]:
        """How writing usage does."""
        return {"failures": self.clerk.failures, "lost": self.clerk.lost}

    def history_numbers(self) -> dict[str, int]:
        """How the recorder does; nothing when there is none."""
        recorder = self._tools.recorder
        return {} if recorder is None else recorder.numbers()

    async def aclose(self) -> None:
        """Finish what was accepted and close every shard. Nothing opens any more."""
        await self._shards.close()
        await self.clerk.flush()

    async def sweep(self) -> None:
        """A task: closes what nobody uses."""
        idle_ms = self._tools.settings.idle_ms
        while True:
            await trio.sleep(idle_ms / 2000)
            await self._shards.close_idle(idle_ms)

    async def compare(self, store: SharedStore) -> None:
        """A task: notices that slots are another process's, before a write would."""
        while True:
            await trio.sleep(self._tools.settings.compare_ms / 1000)
            try:
                await self._shards.compare(store)
            except StoreError as error:
                log.info("the slots were not compared: %s", error)

    async def catch_up(self, guard: LeaseGuard) -> None:
        """A task: a lease cache that is back is told what is out, also by shards that rest.

        Without it, one that nobody has anything to tell would never be tried again.
        """
        while True:
            await trio.sleep(self._tools.settings.cache_rest_ms / 1000)
            await self._shards.catch_up(guard)

    # Using queues

    def opened(self, tenant: str, name: str) -> OpenQueue | None:
        """A queue that is open anyway: what `open` would answer without waiting."""
        found = self._open.get((tenant, name))
        return found if found is not None and found.running else None

    async def open(self, tenant: str, name: str, *, create: bool = False) -> OpenQueue:
        """A queue with all its shards open. `create`: with defaults, when there is none."""
        found = self._open.get((tenant, name))
        if found is not None and found.running:
            return found
        if create:
            await self.ensure(tenant, name, QueueConfig())
        async with self._lock(tenant, name):
            found = self._open.get((tenant, name))
            if found is not None and found.running:
                return found
            row = await self._queues.get(tenant, name)
            dead_letter = await self._queues.dead_letter(row)
            runners = await self._open_shards(row, dead_letter)
            opened = OpenQueue(row, runners, self._tools.chance)
            self._open[tenant, name] = opened
            return opened

    async def _open_shards(self, row: QueueRow, dead_letter: str | None) -> list[ShardRunner]:
        """One after the other is begun, all recover together."""
        count = row.config.shards
        if count == 1:
            return [await self._shards.open(row, 0, dead_letter)]
        runners: dict[int, ShardRunner] = {}
        faults: list[Exception] = []

        async def open_one(number: int) -> None:
            try:
                runners[number] = await self._shards.open(row, number, dead_letter)
            except Exception as error:
                faults.append(error)

        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(open_one, number)
        if faults:
            raise faults[0]
        return [runners[number] for number in range(count)]

    async def publish(
        self,
        tenant: str,
        name: str,
        messages: list[Message],
        lanes: Sequence[int] | None = None,
        *,
        create: bool = False,
    ) -> Publication:
        return await (await self.open(tenant, name, create=create)).publish(messages, lanes)

    async def purge(self, tenant: str, name: str) -> None:
        await (await self.open(tenant, name)).purge()

    async def redrive(self, tenant: str, name: str, wanted: Redrive, after: str = "") -> Redriven:
        """Send dead letters back to where they came from, or to another queue.

        It may take several calls: `after` is where the last one said to go on.
        """
        if wanted.max < 1:
            raise BadRequest(f"max is {wanted.max}: at least 1")
        if wanted.to == name:
            raise BadRequest("dead letters can't be redriven to the queue they are in")
        if wanted.to is not None:
            await self._queues.get(tenant, wanted.to)
        return await redrive(self._tools.store, await self.open(tenant, name), wanted, after)

    async def drop_buckets(
        self, tenant: str, name: str, queue_id: str, names: Sequence[BucketName]
    ) -> Dropped:
        """Open the queue, so that what is past its retention ends, and drop what was archived."""
        if len(names) > MOST:
            raise BadRequest(f"{len(names)} buckets: at most {MOST}")
        queue = await self.open(tenant, name)
        with store_answers(name):
            return await drop_buckets(
                self._tools.store, queue, queue_id, names, self._tools.clock.wall()
            )

    async def stats(self, tenant: str, name: str) -> Stats:
        return (await self.open(tenant, name)).stats()

    async def explain(self, tenant: str, name: str, message_id: str) -> Explanation:
        """Where a message stands and why, or how it ended."""
        runner, place = lookup.place_of(await self.open(tenant, name), message_id)
        found = runner.explain(place.lane, place.seq)
        if found.state != "unknown":
            return found
        key = ShardKey(place.queue_id, place.shard)
        with store_answers(name):
            ending = await find_ending(self._tools.store, key, place.lane, place.seq)
        return ending or found

    async def message(self, tenant: str, name: str, message_id: str) -> tuple[Message, int]:
        """A message that has not ended, and how often it was started."""
        queue = await self.open(tenant, name)
        return await lookup.read_message(self._tools.store, queue, message_id)

    async def cancel(self, tenant: str, name: str, message_id: str) -> None:
        """End a delayed message. `Conflict` when it is not delayed (any more)."""
        await lookup.cancel(self._tools.store, await self.open(tenant, name), message_id)

    async def peek(self, tenant: str, name: str, limit: int, after: str = "") -> Page:
        """What would be delivered next; `after` is where another peek said to go on."""
        queue = await self.open(tenant, name)
        with trio.move_on_after(self._tools.settings.peek_ms / 1000):
            return await peek(self._tools.store, queue, limit, after)
        raise Unavailable(f"the store takes too long to read {name}", retry_ms=1_000)

    async def consumers(self, tenant: str, name: str) -> list[ConsumerInfo]:
        queue = await self.open(tenant, name)
        return [info for runner in queue.runners for info in runner.consumers()]

    async def usage(
        self, tenant: str, first: int, last: int, step: int, queue: str | None, most: int
    ) -> list[UsagePoint]:
        """What queues did from one minute to another, in stretches of `step` minutes.

        Of one queue it is exact up to now. `BadRequest` when there are more than `most` points.
        """
        if queue is not None:
            await self._settle_usage(tenant, queue)
        await self.clerk.flush()
        return await self.clerk.report(tenant, first, last, step, queue, most)

    async def _settle_usage(self, tenant: str, name: str) -> None:
        """Have written what a queue's shards know; one that is gone has nothing to tell."""
        try:
            opened = await self.open(tenant, name)
        except NotFound:
            return
        if not await self.clerk.flush_shards(runner.key for runner in opened.runners):
            raise Unavailable(f"the usage of {name} could not be written", retry_ms=1_000)

    # Managing queues

    async def create(self, tenant: str, name: str, config: QueueConfig | None = None) -> QueueRow:
        """A new queue; `Conflict` when there is one of this name."""
        row = await self._queues.create(tenant, name, config or QueueConfig())
        await self._reconfigure_target(row)
        return row

    async def ensure(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        """The queue of this name, made with this configuration when there is none."""
        try:
            return await self._queues.get(tenant, name)
        except NotFound:
            pass
        try:
            return await self.create(tenant, name, config)
        except Conflict:  # somebody was faster, or it is being deleted
            return await self._queues.get(tenant, name)

    async def get(self, tenant: str, name: str) -> QueueRow:
        return await self._queues.get(tenant, name)

    async def list(self, tenant: str, after: str = "", limit: int = 100) -> list[QueueRow]:
        return await self._queues.list(tenant, after, limit)

    async def update(
        self, tenant: str, name: str, config: QueueConfig, version: int | None = None
    ) -> QueueRow:
        """Replace the configuration, also that of open shards."""
        old = await self._queues.read(tenant, name)
        async with self._lock(tenant, name):
            row = await self._queues.update(tenant, name, config, version)
        await self._reconfigure(tenant, name)
        await self._reconfigure_target(old)
        await self._reconfigure_target(row)
        return row

    async def delete(self, tenant: str, name: str) -> None:
        """Delete a queue and all that it stored. Repeat it when it failed half-way."""
        async with self._lock(tenant, name):
            row = await self._queues.mark_deleting(await self._queues.read(tenant, name))
            await self._shards.close_queue(row, Stop.DELETED)
            await self.clerk.deleted(row)
            await self._queues.remove(row)
        await self._reconfigure_target(row)

    async def _reconfigure_target(self, row: QueueRow) -> None:
        """A queue that becomes a dead-letter queue loses its own, and the other way round."""
        target = own_dead_letter(row.name, row.config)
        if target is not None:
            await self._reconfigure(row.tenant, target)

    async def _reconfigure(self, tenant: str, name: str) -> None:
        async with self._lock(tenant, name):
            opened = self._open.get((tenant, name))
            if opened is None:
                return
            try:
                opened.row = await self._queues.get(tenant, name)
            except NotFound:  # its shards are as good as closed
                return
            dead_letter = await self._queues.dead_letter(opened.row)
            for runner in opened.runners:
                runner.configure(opened.row.config, dead_letter)

    # Behind the scenes

    def _shard_stopped(self, row: QueueRow) -> None:
        found = self._open.get((row.tenant, row.name))
        if found is not None and found.row.id == row.id:
            del self._open[row.tenant, row.name]

    def _make_send(self, tenant: str) -> Send:
        async def send(to: str, messages: list[Message]) -> list[bool]:
            if any(message.dead is not None for message in messages):
                limit = self._tools.limits.message_bytes
                await self.ensure(tenant, to, QueueConfig(dead_letter="", max_message_bytes=limit))
            publication = await self.publish(tenant, to, messages)
            return [id is not None for id in publication.ids]

        return send

    @asynccontextmanager
    async def _lock(self, tenant: str, name: str) -> AsyncIterator[None]:
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
