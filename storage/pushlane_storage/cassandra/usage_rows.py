"""Usage counters: a row per key, replaced as a whole, and kept for so many days; tallies stay.

The stamp of a row is its version, so what a predecessor still writes never replaces what its
successor wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

from pushlane_storage.cassandra import stamps
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.ring import Bound, Range, Ring, Row, Write, read_all, read_row
from pushlane_storage.cassandra.tables import USAGE, keyed
from pushlane_storage.interface import StoreRefused
from pushlane_storage.usage import TALLY_MINUTE, Usage, UsageKey, pack, unpack
from pushlane_storage.work import gather

MINUTES = 24 * 60


class UsageRows:
    def __init__(self, ring: Ring, limits: Limits) -> None:
        self._ring = ring
        self._limits = limits

    async def put(self, usage: Sequence[Usage]) -> None:
        """The last row of a key counts."""
        rows = {row.key: row for row in usage}

        async def put(key: UsageKey) -> None:
            await self._ring.write(self._write(rows[key]))

        await gather(put, rows, self._limits.reads)

    async def find(self, key: UsageKey) -> Usage | None:
        row = await read_row(self._ring, USAGE, _place(key))
        return None if row is None else unpack(key, row["counters"])

    async def read(
        self, tenant: str, first_minute: int, last_minute: int, queue: str | None = None
    ) -> list[Usage]:
        first, last = first_minute // MINUTES, last_minute // MINUTES
        if last - first >= self._limits.usage_days:
            raise StoreRefused(f"usage is read by up to {self._limits.usage_days} days at once")
        low = None if queue is None else Bound((queue, first_minute))
        high = None if queue is None else Bound((queue, last_minute))

        async def read(day: int) -> list[Row]:
            range = Range(USAGE, (tenant, day), self._limits.page_rows, low=low, high=high)
            return await read_all(self._ring, range)

        found: list[Usage] = []
        for rows in (await gather(read, range(first, last + 1), self._limits.reads)).values():
            for row in rows:
                if first_minute <= row["minute"] <= last_minute:
                    key = UsageKey(tenant, row["queue"], row["minute"], row["node"])
                    found.append(unpack(key, row["counters"]))
        return sorted(found, key=lambda usage: usage.key)

    def _write(self, row: Usage) -> Write:
        stamp = stamps.ONCE + row.version
        ttl = None if row.key.minute == TALLY_MINUTE else self._limits.usage_ttl
        return Write(USAGE, [keyed(USAGE, _place(row.key), counters=pack(row))], stamp, ttl)


def _place(key: UsageKey) -> tuple[object, ...]:
    return key.tenant, key.minute // MINUTES, key.queue, key.minute, key.node
