"""Copying a store: what is done in which order, so that it can be stopped at any point.

1. Both sides are opened. The source is locked, or every slot of it claimed: nobody serves it.
2. The target is empty, or holds an unfinished copy of the same source: its record says so.
3. The record is written. From here on servers refuse the target.
4. Units are copied, some at a time; after each group its end is noted in the record.
5. Both sides are read again and compared. The target gets an epoch that is above all of the
   source's, and is opened to servers.

Killed anywhere, the same command goes on behind the last note: what was copied since is copied
again, with the same result.

Before anything is touched, all that there is to copy is counted (`make_plan`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from hashlib import blake2b
from typing import Literal

import msgspec

from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.copy.errors import (
    CopyFailed,
    CopyTaken,
    EpochsExhausted,
    SidesDiffer,
    SourceChanged,
    SourceDamaged,
    TargetNotEmpty,
)
from pushlane_storage.copy.record import BURST, LAST_EPOCH, Counts, Place, Record
from pushlane_storage.copy.rows import Day, Rows
from pushlane_storage.copy.sides import Source, Target, check_different, open_source, open_target
from pushlane_storage.copy.transfer import Transfer
from pushlane_storage.copy.verification import Verification, Verified
from pushlane_storage.copy.walk import Unit, Walk
from pushlane_storage.interface import QueueExists, StoreDamaged, StoreError
from pushlane_storage.wall import wall_clock
from pushlane_storage.work import gather, patiently

COUNTED = 8
"""Open buckets that are counted at once: closed ones have their counts in their rows."""


class Plan(msgspec.Struct, frozen=True):
    counts: Counts
    fingerprint: str
    """Of the source: who it is, and all queues as they are."""


async def make_plan(source: Source) -> Plan:
    hashed = blake2b((await source.identity()).encode(), digest_size=16)
    counts = Counts()

    walk = Walk(source.rows)
    try:
        while group := await patiently(walk.group):
            for unit in group:
                if unit.shard is None:
                    hashed.update(msgspec.msgpack.encode(unit.queue))
            counts += await _count(source.rows, group)
    except StoreDamaged as error:
        raise SourceDamaged(
            f"{source.name}: {error}; without it that shard can't be served, here or there:"
            " restore a backup, or delete the queue"
        ) from error
    return Plan(counts, hashed.hexdigest())


async def _count(rows: Rows, group: list[Unit]) -> Counts:
    buckets = {unit.place: unit for unit in group if unit.bucket is not None}

    async def count(place: Place) -> int:
        unit = buckets[place]
        assert unit.shard is not None
        assert unit.bucket is not None
        if unit.bucket.closed:
            return unit.bucket.count
        return await patiently(partial(rows.count, unit.shard, unit.bucket.key))

    messages = await gather(count, buckets, COUNTED)
    queues = sum(unit.shard is None for unit in group)
    return Counts(
        queues=queues,
        shards=len(group) - queues - len(buckets),
        buckets=len(buckets),
        messages=sum(messages.values()),
    )


Progress = Callable[[str, int, int], None]
"""Told what is being done, how many messages of it are done, and how many there are."""

AT_ONCE = 8
"""Units that are copied at once. Each has a page in memory (`rows.PAGE_BYTES`)."""
COPY_BYTES = 8


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    target: str
    outcome: Literal["planned", "finished", "finished before"]
    plan: Counts
    """What there was to copy, as far as it is known without reading all of it."""
    record: Record | None = None
    verified: Verified | None = None
    """None unless this run has verified it."""


def silent(stage: str, done: int, total: int) -> None:
    """Progress that nobody wants to see."""


async def copy(
    source_url: str,
    target_url: str,
    *,
    dry_run: bool = False,
    progress: Progress = silent,
    limits: Limits | None = None,
    wall: Callable[[], int] = wall_clock,
) -> Copied:
    """Copy a store into another one, or go on with that; `CopyError` says why it isn't done."""
    bounds = limits or Limits()
    check_different(source_url, target_url)
    try:
        async with AsyncExitStack() as stack:
            source = await stack.enter_async_context(open_source(source_url, bounds))
            target = await stack.enter_async_context(open_target(target_url, bounds))
            return await Copy(source, target, progress, wall).run(dry_run)
    except QueueExists as error:
        raise CopyTaken(f"somebody made queue {error} in the target: choose another one") from error
    except StoreError as error:
        raise CopyFailed(f"a store doesn't answer as it should: {error}; run it again") from error


class Copy:
    def __init__(
        self, source: Source, target: Target, progress: Progress, wall: Callable[[], int]
    ) -> None:
        self._source = source
        self._target = target
        self._progress = progress
        self._wall = wall

    async def run(self, dry_run: bool) -> Copied:
        record = await self._target.read_record()
        if record is None:
            await self._target.check_empty()
        id = secrets.token_hex(COPY_BYTES) if record is None else record.copy
        untouched = record is None or await self._source.is_untouched(id)
        if not dry_run and (record is None or record.state != "finished"):
            await self._source.hold(id)
        self._progress("counting", 0, 0)
        plan = await make_plan(self._source)
        await self._check_epochs()
        if record is not None:
            self._check_same(record, plan, untouched)
            if record.state == "finished":
                return self._copied("finished before", plan, record)
        if dry_run:
            return self._copied("planned", plan, record)
        if record is None:
            record = Record(
                copy=id,
                source=self._source.name,
                fingerprint=plan.fingerprint,
                begun_at=self._wall(),
            )
        return await self._copy(record, plan)

    def _copied(
        self,
        outcome: Literal["planned", "finished", "finished before"],
        plan: Plan,
        record: Record | None,
        verified: Verified | None = None,
    ) -> Copied:
        return Copied(
            source=self._source.name,
            target=self._target.name,
            outcome=outcome,
            plan=plan.counts,
            record=record,
            verified=verified,
        )

    def _check_same(self, record: Record, plan: Plan, untouched: bool) -> None:
        """The record in the target is of this source, as it is now."""
        if record.fingerprint == plan.fingerprint and untouched:
            return
        if record.source == self._source.name:
            raise SourceChanged(self._source.name, self._target.name)
        raise TargetNotEmpty(self._target.name, f"it holds a copy of {record.source}")

    async def _check_epochs(self) -> int:
        epoch = await self._source.epoch() + BURST
        if epoch > LAST_EPOCH:
            raise EpochsExhausted(epoch, LAST_EPOCH)
        return epoch

    async def _copy(self, record: Record, plan: Plan) -> Copied:
        rows = await self._target.begin(record)
        verified = None
        if record.state == "copying":
            record = await self._move_all(record, rows, plan.counts.messages)
            verified = await self._verify(record, rows, plan.counts.messages)
            await self._source.confirm()
            record = msgspec.structs.replace(
                record,
                state="verified",
                epoch=await self._check_epochs(),
                checksum=verified.checksum,
                copied=verified.counts,
            )
            await self._target.note(record)
        record = msgspec.structs.replace(record, state="finished", finished_at=self._wall())
        await self._target.finish(record)
        return self._copied("finished", plan, record, verified)

    async def _move_all(self, record: Record, rows: Rows, total: int) -> Record:
        walk = Walk(self._source.rows, record.place)
        transfer = Transfer(self._source.rows, self._target)
        while group := await patiently(walk.group):
            counts = await self._move(transfer, group, record.copied.messages, total)
            record = msgspec.structs.replace(
                record, place=group[-1].place, copied=record.copied + counts
            )
            await self._source.confirm()
            await self._target.note(record)
        await self._move_usage()
        await self._target.note(record)
        return record

    async def _move_usage(self) -> None:
        for day in await patiently(self._source.rows.days):
            await patiently(partial(self._move_day, day))

    async def _move_day(self, day: Day) -> None:
        await self._target.put_usage(day, await self._source.rows.usage(day))

    async def _move(self, transfer: Transfer, group: list[Unit], before: int, total: int) -> Counts:
        units = {unit.place: unit for unit in group}
        done = before

        async def move(place: Place) -> Counts:
            nonlocal done
            counts = await patiently(lambda: transfer.move(units[place]))
            done += counts.messages
            self._progress("copying", done, total)
            return counts

        return sum((await gather(move, units, AT_ONCE)).values(), Counts())

    async def _verify(self, record: Record, rows: Rows, total: int) -> Verified:
        def tell(done: int) -> None:
            self._progress("verifying", done, total)

        try:
            return await Verification(self._source.rows, rows, tell).run()
        except SidesDiffer:
            again = msgspec.structs.replace(record, place=None, copied=Counts())
            await self._target.note(again)
            raise
