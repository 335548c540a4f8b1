"""The walk over a store: its parts, in one order that is the same for both sides.

A unit is the row of a queue, what belongs to a whole shard, or a bucket: something small enough
(a bucket has 20,000 messages or 16 MiB) to be copied again if it was cut off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from pushlane_storage.bucket import Bucket, ShardKey
from pushlane_storage.copy.errors import shard_name
from pushlane_storage.copy.record import WHOLE, Place
from pushlane_storage.copy.rows import Rows, settled
from pushlane_storage.interface import StoreDamaged
from pushlane_storage.queue import QueueRow
from pushlane_storage.work import gather

QUEUES = 200
"""Queue rows that are read at once."""
SHARDS = 8
"""Shards of a queue whose buckets are looked up at once."""
GROUP_UNITS = 256
"""Units that are copied before progress is written down."""
GROUP_BYTES = 32 << 20
"""Bytes that are copied before progress is written down, about."""
OPEN_BYTES = 4 << 20
"""What a bucket counts for whose size is not known: it is not closed."""


class Unit(NamedTuple):
    queue: QueueRow
    shards: list[int]
    """Of the queue."""
    shard: ShardKey | None = None
    """None: the queue's row."""
    buckets: Sequence[Bucket] = ()
    """Of the shard."""
    bucket: Bucket | None = None
    """None: what belongs to the whole shard."""

    @property
    def place(self) -> Place:
        if self.shard is None:
            return Place(self.queue.tenant, self.queue.name)
        key = (WHOLE, 0, 0) if self.bucket is None else self.bucket.key
        return Place(self.queue.tenant, self.queue.name, self.shard.shard, *key)


class Walk:
    """Everything behind a place, or everything."""

    def __init__(self, rows: Rows, after: Place | None = None) -> None:
        self._rows = rows
        self._after = after
        self._tenants: list[str] | None = None
        self._page: deque[QueueRow] = deque()
        self._last = ""
        self._units: deque[Unit] = deque()

    async def group(self) -> list[Unit]:
        """The next units, enough to be worth a note of progress. None are left: none.

        After an error it can be asked again: nothing is left out.
        """
        count = size = 0
        while count < GROUP_UNITS and size < GROUP_BYTES and await self._reach(count):
            unit = self._units[count]
            count += 1
            if unit.bucket is not None:
                size += unit.bucket.size if unit.bucket.closed else OPEN_BYTES
        return [self._units.popleft() for _ in range(count)]

    async def _reach(self, count: int) -> bool:
        """Whether there are more units than this."""
        while len(self._units) <= count:
            queue = await self._queue()
            if queue is None:
                return False
            for unit in await self._units_of(queue):
                if self._after is None or unit.place > self._after:
                    self._units.append(unit)
            self._page.popleft()
        return True

    async def _queue(self) -> QueueRow | None:
        """The next queue, from that of the place on. It stays the next until it was dealt with."""
        if self._tenants is None:
            found = await self._rows.tenants()
            first = None if self._after is None else self._after.tenant
            self._tenants = [name for name in found if first is None or name >= first]
        while self._tenants:
            if not self._page:
                self._page += await self._rows.queues(self._tenants[0], self._last, QUEUES)
            if not self._page:
                self._tenants.pop(0)
                self._last = ""
                continue
            row = self._page[0]
            self._last = row.name
            if self._after is None or (row.tenant, row.name) >= self._after[:2]:
                return row
            self._page.popleft()
        return None

    async def _units_of(self, queue: QueueRow) -> list[Unit]:
        numbers = await self._rows.shards(queue.id)

        async def read(number: int) -> list[Bucket]:
            shard = ShardKey(queue.id, number)
            try:
                found = await self._rows.buckets(shard)
            except StoreDamaged as error:
                raise StoreDamaged(f"{shard_name(shard)} ({queue.name}): {error}") from error
            return [settled(bucket) for bucket in found]

        buckets = await gather(read, numbers, SHARDS)
        units = [Unit(queue, numbers)]
        for number in numbers:
            whole = Unit(queue, numbers, ShardKey(queue.id, number), buckets[number])
            units.append(whole)
            units += [whole._replace(bucket=bucket) for bucket in buckets[number]]
        return units
