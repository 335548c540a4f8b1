"""The usage writer: writes down what queues and connections did, by the minute.

Exact counters are a shard's own (`ShardCounters`). The others are counted here, and a crash
loses those since the last flush: meters of shards, subscriptions, connections, and what is stored,
which is looked at with each flush. Their rows are of this process's own node, so nobody else
writes them.

A flush also comes at the turn of a minute: what happened since the one before belongs to the
minute in which that was.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import trio

from pushlane.wire.errors import BadRequest
from pushlane_dispatcher.queues.queues import store_answers
from pushlane_dispatcher.shard.opening import read_all
from pushlane_dispatcher.usage.counters import ShardCounters, write_off
from pushlane_dispatcher.usage.report import MINUTE_MS, Report, UsagePoint
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import StoreError
from pushlane_storage.queue import QueueRow
from pushlane_storage.usage import BILLING, Usage, UsageKey, merge

if TYPE_CHECKING:
    from pushlane_dispatcher.context import Context

log = logging.getLogger(__name__)

DAY = 24 * 60
"""Minutes. Usage is read day by day."""
TENANT = ""
"""In place of a queue: what is the tenant's own."""
Place = tuple[str, str, int]
"""Tenant, queue, minute."""


class _Present:
    """The connections of one tenant."""

    __slots__ = ("count", "ms", "since")

    def __init__(self, since: int) -> None:
        self.count = 0
        self.ms = 0
        self.since = since

    def advance(self, now: int) -> None:
        self.ms += self.count * (now - self.since)
        self.since = now


class Presence:
    """Who is connected, and for how long all of them together were, tenant by tenant."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Present] = {}

    def came(self, tenant: str, now: int) -> None:
        present = self._tenants.setdefault(tenant, _Present(now))
        present.advance(now)
        present.count += 1

    def left(self, tenant: str, now: int) -> None:
        present = self._tenants[tenant]
        present.advance(now)
        present.count -= 1

    def take(self, now: int) -> Iterator[tuple[str, int]]:
        """Milliseconds since the last time, of those who had any."""
        for tenant, present in list(self._tenants.items()):
            present.advance(now)
            if present.ms:
                yield tenant, present.ms
                present.ms = 0
            if not present.count:
                del self._tenants[tenant]


class UsageWriter:
    def __init__(self, context: Context, node: str) -> None:
        self._store = context.store.usage
        self._clock = context.clock
        self._settings = context.settings
        self._node = node
        self._shards: dict[ShardKey, ShardCounters] = {}
        self._rows: dict[Place, dict[str, int]] = {}
        """What this process counted, until its minute is over and written."""
        self._unwritten: set[Place] = set()
        self._presence = Presence()
        self._n = 0
        self._looked_at = self._clock.now()
        self._minute = self._clock.wall() // MINUTE_MS
        self._writing = trio.Lock()
        self.failures = 0
        """Flushes that could not be written; their counters went with a later one."""
        self.lost = 0
        """Rows of this process that were given up: too many could not be written."""

    # Who is there

    def opened(self, counters: ShardCounters) -> None:
        self._shards[counters.shard.key] = counters

    async def closed(self, counters: ShardCounters, in_order: bool) -> None:
        """A shard is over. Nothing of it is written after this; if it ended in order, all is."""
        self._take(counters)
        self._shards.pop(counters.shard.key, None)
        with trio.move_on_after(self._settings.close_ms / 1000):
            if in_order and await self._try([counters], self._minute):
                await self._attempt(partial(counters.rest, self._minute))
            async with counters.lock:
                pass

    async def deleted(self, row: QueueRow, first: int) -> None:
        """A queue is being deleted, and its shards from this one on are closed for good."""
        if not self._settings.usage:
            return
        for number in range(first, row.config.shards):
            key = ShardKey(row.id, number)
            place = row.tenant, row.name, key, self._minute
            await self._attempt(partial(write_off, self._store, *place))

    def connected(self, tenant: str) -> None:
        if not self._settings.usage:
            return
        self._count(tenant, TENANT, {"connections": 1})
        self._presence.came(tenant, self._clock.now())

    def disconnected(self, tenant: str) -> None:
        if not self._settings.usage:
            return
        self._presence.left(tenant, self._clock.now())

    # Writing

    async def run(self) -> None:
        """A task."""
        while True:
            wall = self._clock.wall()
            left = MINUTE_MS - wall % MINUTE_MS
            await trio.sleep(min(self._settings.usage_flush_ms, left) / 1000)
            await self.flush()

    async def flush(self) -> None:
        """Write everything; what can't be written comes with the next flush."""
        if not self._settings.usage:
            return
        minute = self._look()
        dirty = iter([counters for counters in self._shards.values() if counters.dirty])
        while group := list(islice(dirty, self._settings.usage_batch)):
            await self._try(group, minute)
        await self._write_rows()

    async def flush_shards(self, keys: Iterable[ShardKey]) -> bool:
        """Write the exact counters of some shards; whether that worked."""
        found = [self._shards[key] for key in keys if key in self._shards]
        return await self._try(found, self._minute)

    async def _try(self, all_counters: Sequence[ShardCounters], minute: int) -> bool:
        """Whether all of it was written."""
        together = [counters for counters in all_counters if not counters.staged]
        done = await self._attempt(partial(self._flush_together, together, minute))
        for counters in all_counters:
            if counters.staged:
                done &= await self._attempt(partial(counters.flush, minute))
        return done

    async def _attempt(self, write: Callable[[], Awaitable[None]]) -> bool:
        try:
            await write()
        except StoreError as error:
            self.failures += 1
            log.warning("usage could not be written, it will be with the next flush: %s", error)
            return False
        return True

    async def _flush_together(self, all_counters: Sequence[ShardCounters], minute: int) -> None:
        """All in one put: that is one commit."""
        held: list[ShardCounters] = []
        try:
            for counters in all_counters:
                await counters.lock.acquire()
                held.append(counters)
            sure = [counters for counters in held if not counters.staged]
            stages = [stage for counters in sure for stage in counters.stages(minute)]
            if stages:
                await self._store.put([row for stage in stages for row in stage])
        except BaseException:
            for counters in held:
                counters.doubt()
            raise
        finally:
            for counters in held:
                counters.lock.release()

    async def _write_rows(self) -> None:
        async with self._writing:
            places = list(self._unwritten)
            rows = [self._row(place) for place in places]
            self._unwritten.clear()
            try:
                for start in range(0, len(rows), self._settings.usage_batch):
                    await self._store.put(rows[start : start + self._settings.usage_batch])
            except BaseException as error:
                self._unwritten.update(places)
                if not isinstance(error, StoreError):
                    raise
                self.failures += 1
                log.warning("usage could not be written, it will be later: %s", error)
        self._forget()

    def _row(self, place: Place) -> Usage:
        self._n += 1
        tenant, queue, minute = place
        return Usage(UsageKey(tenant, queue, minute, self._node), dict(self._rows[place]), self._n)

    def _forget(self) -> None:
        """Rows of minutes that are over and written; and the oldest when there are too many."""
        for place in [place for place in self._rows if place[2] < self._minute]:
            if place not in self._unwritten:
                del self._rows[place]
        for place in list(islice(self._rows, max(0, len(self._rows) - self._settings.usage_rows))):
            del self._rows[place]
            self._unwritten.discard(place)
            self.lost += 1

    # Reading

    async def report(
        self, tenant: str, first: int, last: int, step: int, queue: str | None, most: int
    ) -> list[UsagePoint]:
        """What is written of these minutes; `BadRequest` when there are more than `most` points."""
        report = Report(step)
        for day in range(first // DAY, last // DAY + 1):
            low, high = max(first, day * DAY), min(last, (day + 1) * DAY - 1)
            with store_answers(queue or "usage"):
                report.add(await self._store.read(tenant, low, high, queue))
            if len(report) > most:
                raise BadRequest(f"that is more than {most} lines: ask for less, or for a queue")
        return report.points()

    # Bills

    async def put_bills(self, tenant: str, bills: Mapping[tuple[str, int], dict[str, int]]) -> None:
        """Costs by queue and minute, each in place of what was there.

        The version follows on that of the row, and not on the clock: one that was set back, or
        another server's that was ahead, would have a later bill ignored.
        """
        rows = {UsageKey(tenant, *place, BILLING): costs for place, costs in bills.items()}
        with store_answers("usage"):
            old = await read_all(self._store.find, rows, self._settings.recovery_reads)
            versions = {key: 0 if row is None else row.version for key, row in old.items()}
            await self._store.put(
                [Usage(key, costs, versions[key] + 1) for key, costs in rows.items()]
            )

    # Counting

    def _count(self, tenant: str, queue: str, counters: dict[str, int]) -> None:
        if counters:
            place = (tenant, queue, self._minute)
            merge(self._rows.setdefault(place, {}), counters)
            self._unwritten.add(place)

    def _take(self, counters: ShardCounters) -> None:
        if counters.shard.meter is not None:
            self._count(counters.tenant, counters.shard.name, counters.shard.meter.take())

    def _look(self) -> int:
        """Take in what meters counted, and look at what is stored and who is there.

        Answers the minute that all of it belongs to.
        """
        now = self._clock.now()
        elapsed, self._looked_at = now - self._looked_at, now
        wall = self._clock.wall()
        if elapsed > 2 * self._settings.usage_flush_ms:  # it was asleep: the time is now
            self._minute = wall // MINUTE_MS
        for counters in self._shards.values():
            self._take(counters)
            self._count(counters.tenant, counters.shard.name, _sample(counters, wall, elapsed))
        for tenant, ms in self._presence.take(now):
            self._count(tenant, TENANT, {"connection_ms": ms})
        minute, self._minute = self._minute, max(self._minute, wall // MINUTE_MS)
        return minute


def _sample(counters: ShardCounters, wall: int, elapsed: int) -> dict[str, int]:
    shard = counters.shard
    found: dict[str, int] = {}
    if shard.overflow.messages:
        found["stored_byte_s"] = shard.overflow.bytes * elapsed // 1000
        found["max.backlog"] = shard.overflow.messages
        oldest_at = shard.window.oldest_at()
        if oldest_at is not None:
            found["max.oldest_ms"] = max(0, wall - oldest_at)
    if shard.consumers.subscriptions and shard.key.shard == 0:
        found["subscription_ms"] = len(shard.consumers.subscriptions) * elapsed
    return found
