"""Writing segments, settlements and seals, each confirmed by the fence.

A flush of settlements is one row per bucket, in as many partitions, written side by side and not
as a logged batch. A batch would cost two more writes and still let a reader see half of it, so
recovery must tell a whole flush from one that was cut off anyway: flushes are numbered densely, one
is under way at a time, and every row names all parts (`Settlement.parts`). A flush of which a row
is missing doesn't count, and from the next owner's seal on it never will.

Who needs a confirmation: a publish and a settle, because somebody is told that they are durable; a
seal, because its writer serves from then on. Marks and drops of buckets change nothing that counts
(buckets.py); they ask too, so that an owner that was fenced notices early and deletes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from pushlane_storage.bucket import CONTROL, Bucket, BucketKey, ShardKey
from pushlane_storage.cassandra import rows, stamps
from pushlane_storage.cassandra.buckets import Buckets
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.places import Places
from pushlane_storage.cassandra.queues import Known
from pushlane_storage.cassandra.ring import (
    Bound,
    Delete,
    Range,
    Ring,
    Stage,
    Write,
    read_all,
    write_stages,
)
from pushlane_storage.cassandra.schedule import Schedule
from pushlane_storage.cassandra.slots import Slots
from pushlane_storage.cassandra.tables import NOTES, SEALS, SEGMENTS, SETTLEMENTS
from pushlane_storage.interface import Outcome, StoreError, StoreRefused
from pushlane_storage.note import Note
from pushlane_storage.seal import Seal
from pushlane_storage.segment import Segment, pack
from pushlane_storage.seq import epoch_of
from pushlane_storage.settlement import Settlement


class Journal:
    def __init__(
        self,
        ring: Ring,
        slots: Slots,
        places: Places,
        buckets: Buckets,
        schedule: Schedule,
        known: Known,
        limits: Limits,
    ) -> None:
        self._ring = ring
        self._slots = slots
        self._places = places
        self._buckets = buckets
        self._schedule = schedule
        self._known = known
        self._limits = limits

    def append_soon(
        self, shard: ShardKey, segment: Segment, opens: Bucket | None, outcome: Outcome
    ) -> None:
        assert segment.messages, "an empty segment"
        assert epoch_of(segment.first) == segment.bucket.epoch, "a seq of another epoch"
        assert opens is None or opens.key == segment.bucket, "a segment opens its own bucket only"

        def begin() -> tuple[list[Write], list[Stage]]:
            return self._append(shard, segment, opens)

        self._begin(shard, segment.bucket.epoch, begin, outcome)

    def _append(
        self, shard: ShardKey, segment: Segment, opens: Bucket | None
    ) -> tuple[list[Write], list[Stage]]:
        packed = pack(segment)
        size = len(packed.payload) + len(packed.marks)
        if size > self._limits.row_bytes:
            raise StoreRefused(f"a segment of {size} bytes: at most {self._limits.row_bytes}")
        traits = self._known.of(shard)
        row = rows.segment_row(shard, segment.bucket, packed)
        stamp = stamps.written(segment.bucket)
        last = [Write(SEGMENTS, [row], stamp, traits.ttl, traits.level)]
        # Whoever sees the segment counts its messages: by then those that wait must be found.
        names, entries = self._schedule.writes(shard, segment, traits.ttl)
        if opens is None:
            return names, [names, entries, last]
        names = self._places.lane(shard, opens.key.lane) + names
        return names, [names, [self._buckets.opened(shard, opens), *entries], last]

    def settle_soon(self, shard: ShardKey, flush: Sequence[Settlement], outcome: Outcome) -> None:
        first = flush[0]
        assert {row.bucket for row in flush} == set(first.parts), "a flush is all of its parts"
        for row in flush:
            assert (row.owner, row.n, row.parts) == (first.owner, first.n, first.parts)

        def begin() -> tuple[list[Write], list[Stage]]:
            names = self._places.lane(shard, CONTROL.lane) if CONTROL in first.parts else []
            return names, [names, [self._settlement(shard, row) for row in flush]]

        self._begin(shard, first.owner, begin, outcome)

    def _settlement(self, shard: ShardKey, row: Settlement) -> Write:
        traits = self._known.of(shard)
        # The shard's own partition is not dropped, and has no start to make a stamp of.
        stamp = None if row.bucket == CONTROL else stamps.written(row.bucket)
        # It must outlive the segments of which it speaks, also when the retention was longer then.
        ttl = self._limits.most_ttl
        return Write(SETTLEMENTS, [rows.settlement_row(shard, row)], stamp, ttl, traits.level)

    def seal_soon(self, shard: ShardKey, seal: Seal, outcome: Outcome) -> None:
        def begin() -> tuple[list[Write], list[Stage]]:
            names = self._places.lane(shard, CONTROL.lane)
            row = Write(SEALS, [rows.seal_row(shard, seal)], stamps.ONCE)
            return names, [names, [row]]

        self._begin(shard, seal.owner, begin, outcome)

    async def drop_seals_before(self, shard: ShardKey, owner: int) -> None:
        """Of older owners: the seal of this one has carried on what they say."""
        older = Bound((owner,), included=False)
        range = Range(SEALS, shard, self._limits.page_rows, ("owner",), high=older)
        for row in await read_all(self._ring, range):
            await self._ring.write(Delete(SEALS, (*shard, row["owner"]), stamps.ONCE_GONE))

    def note_soon(self, shard: ShardKey, note: Note, outcome: Outcome) -> None:
        def begin() -> tuple[list[Write], list[Stage]]:
            stamp = stamps.noted(note.owner, note.n)
            return [], [[Write(NOTES, [rows.note_row(shard, note)], stamp)]]

        self._begin(shard, note.owner, begin, outcome)

    def _begin(
        self,
        shard: ShardKey,
        epoch: int,
        begin: Callable[[], tuple[list[Write], list[Stage]]],
        outcome: Outcome,
    ) -> None:
        try:
            claim = self._slots.check(shard, epoch)
            names, stages = begin()
        except StoreError as error:  # not from inside the caller's call
            trio.lowlevel.current_trio_token().run_sync_soon(outcome, error)
            return

        def durable(error: Exception | None) -> None:
            if error is not None:
                outcome(error)
                return
            self._places.note(names)
            claim.node.fence.confirm_soon(confirmed)

        def confirmed(error: Exception | None) -> None:
            outcome(error or self._slots.fault(claim, shard, epoch))

        write_stages(self._ring, stages, durable)

    # Marks and drops

    async def mark_bucket(self, shard: ShardKey, bucket: Bucket) -> None:
        await self._buckets.mark(shard, bucket)
        await self._slots.confirm_if_claimed(shard)

    async def drop(
        self, shard: ShardKey, key: BucketKey, flushes: Sequence[tuple[int, int]] | None = None
    ) -> None:
        if flushes is None:
            await self._slots.confirm_if_claimed(shard)
            await self._buckets.drop(shard, key)
        for flush in flushes or ():
            await self._ring.write(Delete(SETTLEMENTS, (*shard, *key, *flush)))
        await self._slots.confirm_if_claimed(shard)
