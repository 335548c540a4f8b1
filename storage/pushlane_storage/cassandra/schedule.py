"""The schedule index: which messages must wait, by when they are due.

An entry is written before its segment counts as stored. Entries are never deleted one by one: they
expire, and until then those of dropped buckets are left out. One whose segment was never stored is
of a seq that a live bucket doesn't have, or that has become another message: readers take an entry
for a hint, and look the message up.

A slice of time is a partition. Which slices there are is written down beside (places.py), so that
nobody looks through empty ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.cassandra import stamps
from pushlane_storage.cassandra.limits import DAY_SECONDS, Limits
from pushlane_storage.cassandra.live import Live
from pushlane_storage.cassandra.places import Places
from pushlane_storage.cassandra.ring import Bound, Range, Ring, Row, Write
from pushlane_storage.cassandra.tables import SCHEDULED, keyed
from pushlane_storage.interface import Due
from pushlane_storage.segment import Segment

SLICE_MS = 6 * 60 * 60 * 1000
"""Part of the stored format."""


class Schedule:
    def __init__(self, ring: Ring, places: Places, limits: Limits, wall: Callable[[], int]) -> None:
        self._ring = ring
        self._places = places
        self._limits = limits
        self._wall = wall

    def writes(
        self, shard: ShardKey, segment: Segment, ttl: int
    ) -> tuple[list[Write], list[Write]]:
        """What names new slices, and the entries."""
        waiting = [
            (message.not_before, seq)
            for seq, message in enumerate(segment.messages, segment.first)
            if message.not_before
        ]
        return self.entries(shard, segment.bucket, waiting, ttl)

    def entries(
        self, shard: ShardKey, bucket: BucketKey, waiting: Sequence[tuple[int, int]], ttl: int
    ) -> tuple[list[Write], list[Write]]:
        """What names new slices, and the entries, of messages by when each is due and its seq."""
        slices: dict[int, list[Row]] = {}
        for due, seq in waiting:
            key = (*shard, due // SLICE_MS, due, *bucket, seq)
            slices.setdefault(due // SLICE_MS, []).append(keyed(SCHEDULED, key, known=True))
        names: list[Write] = []
        entries: list[Write] = []
        for slice, rows in slices.items():
            keep = self._ttl(slice, ttl)
            names += self._places.slice(shard, slice, min(keep + DAY_SECONDS, self._most))
            stamp = stamps.written(bucket)
            chunks = _chunks(rows, self._limits.batch_rows)
            entries += [Write(SCHEDULED, chunk, stamp, keep) for chunk in chunks]
        return names, entries

    @property
    def _most(self) -> int:
        return self._limits.most_ttl

    def _ttl(self, slice: int, ttl: int) -> int:
        """Until the whole slice is due, and then as long as any message."""
        ahead = max(0, (slice + 1) * SLICE_MS - self._wall()) // 1000
        return min(ahead + ttl, self._most - DAY_SECONDS)

    async def read(
        self, shard: ShardKey, start: int, end: int, limit: int, live: Live
    ) -> list[Due]:
        """start <= due < end, the earliest first."""
        found: list[Due] = []
        if end <= start:
            return found
        low, high = start // SLICE_MS, (end - 1) // SLICE_MS
        for slice in await self._places.slices(shard, low, high):
            await self._read_slice((*shard, slice), start, end, limit, live, found)
            if len(found) >= limit:
                break
        return found

    async def _read_slice(
        self,
        partition: tuple[object, ...],
        start: int,
        end: int,
        limit: int,
        live: Live,
        found: list[Due],
    ) -> None:
        low, high = Bound((start,)), Bound((end,), included=False)
        while len(found) < limit:
            size = min(limit - len(found), self._limits.page_rows)
            rows = await self._ring.read(Range(SCHEDULED, partition, size, low=low, high=high))
            found += [due for due in map(_due_of, rows) if due.bucket in live]
            if len(rows) < size:
                return
            last = rows[-1]
            low = Bound(tuple(last[name] for name in SCHEDULED.clustering), included=False)


def _due_of(row: Row) -> Due:
    bucket = BucketKey(row["lane"], row["epoch"], row["start"])
    return Due(row["due"], row["lane"], bucket, row["seq"])


def _chunks(rows: list[Row], size: int) -> Iterator[list[Row]]:
    for first in range(0, len(rows), size):
        yield rows[first : first + size]
