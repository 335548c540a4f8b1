"""Usage counters: one Cassandra counter for each name.

Adding is the one write here that is not idempotent. One with an unknown outcome is not repeated:
it counts once or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from pushlane_storage.cassandra.crowd import gather
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.ring import Range, Ring, Row, read_all
from pushlane_storage.cassandra.tables import USAGE
from pushlane_storage.interface import StoreRefused
from pushlane_storage.usage import Usage, UsageKey

MINUTES = 24 * 60
_THERE = ""
"""The name of a counter that only says that there is something under the key."""


class UsageRows:
    def __init__(self, ring: Ring, limits: Limits) -> None:
        self._ring = ring
        self._limits = limits

    async def add(self, usage: Sequence[Usage]) -> None:
        sums: dict[tuple[object, ...], int] = {}
        for added in usage:
            key = added.key
            place = (key.tenant, key.minute // MINUTES, key.queue, key.minute, key.node)
            for name, value in (added.counters or {_THERE: 0}).items():
                sums[*place, name] = sums.get((*place, name), 0) + value

        async def add(key: tuple[object, ...]) -> None:
            await self._ring.add(USAGE, key, sums[key])

        await gather(add, sums, self._limits.reads)

    async def read(self, tenant: str, first_minute: int, last_minute: int) -> list[Usage]:
        first, last = first_minute // MINUTES, last_minute // MINUTES
        if last - first >= self._limits.usage_days:
            raise StoreRefused(f"usage is read by up to {self._limits.usage_days} days at once")

        async def read(day: int) -> list[Row]:
            return await read_all(self._ring, Range(USAGE, (tenant, day), self._limits.page_rows))

        found: dict[UsageKey, dict[str, int]] = {}
        for rows in (await gather(read, range(first, last + 1), self._limits.reads)).values():
            for row in rows:
                if first_minute <= row["minute"] <= last_minute:
                    key = UsageKey(tenant, row["queue"], row["minute"], row["node"])
                    counters = found.setdefault(key, {})
                    if row["name"] != _THERE:
                        counters[row["name"]] = row["value"]
        return [Usage(key, found[key]) for key in sorted(found)]
