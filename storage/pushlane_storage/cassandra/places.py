"""Which lanes and schedule slices a shard has: written down before anything is stored in them.

Who opens a shard reads the lanes that are there, and who removes a queue finds every partition of
it. This process remembers what it has written down, so that it does so once.
"""

from __future__ import annotations

from pushlane_storage.bucket import CONTROL, ShardKey
from pushlane_storage.cassandra import stamps
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.ring import Bound, Range, Ring, Write, read_all
from pushlane_storage.cassandra.tables import LANES, SLICES, keyed


class Places:
    def __init__(self, ring: Ring, limits: Limits) -> None:
        self._ring = ring
        self._limits = limits
        self._written: dict[tuple[object, ...], None] = {}

    def lane(self, shard: ShardKey, lane: int) -> list[Write]:
        """What must be written before anything is stored in a lane; mostly nothing."""
        if (shard, lane) in self._written:
            return []
        return [Write(LANES, [keyed(LANES, (*shard, lane), known=True)], stamps.ONCE)]

    def slice(self, shard: ShardKey, slice: int, ttl: int) -> list[Write]:
        if (shard, slice, "slice") in self._written:
            return []
        row = keyed(SLICES, (*shard, slice), known=True)
        return [Write(SLICES, [row], stamps.ONCE, ttl)]

    def note(self, writes: list[Write]) -> None:
        """These are durable."""
        for write in writes:
            row = write.rows[0]
            shard = ShardKey(row["queue_id"], row["shard"])
            if len(self._written) >= self._limits.places:
                del self._written[next(iter(self._written))]
            place = (shard, row["lane"]) if write.table is LANES else (shard, row["slice"], "slice")
            self._written[place] = None

    async def lanes(self, shard: ShardKey) -> list[int]:
        """The lanes in which a shard has ever stored something."""
        number = Bound((shard.shard,))
        size = self._limits.page_rows
        range = Range(LANES, (shard.queue_id,), size, low=number, high=number)
        rows = await read_all(self._ring, range)
        return [row["lane"] for row in rows if row["lane"] != CONTROL.lane]

    async def all(self, queue_id: str) -> dict[int, list[int]]:
        """Every shard of a queue that has ever stored something, and its lanes."""
        found: dict[int, list[int]] = {}
        for row in await read_all(self._ring, Range(LANES, (queue_id,), self._limits.page_rows)):
            lanes = found.setdefault(row["shard"], [])
            if row["lane"] != CONTROL.lane:
                lanes.append(row["lane"])
        return found

    async def slices(self, shard: ShardKey, low: int, high: int) -> list[int]:
        """Those from `low` to `high` in which something was ever scheduled."""
        range = Range(SLICES, shard, self._limits.page_rows, low=Bound((low,)), high=Bound((high,)))
        return [row["slice"] for row in await read_all(self._ring, range)]
