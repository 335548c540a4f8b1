"""A shard's exact counters, written by the minute (see `pushlane_storage.tally`).

Rows are planned in stages, each durable before the next one. Where another process may take the
shard, a tally is confirmed as well before anything relies on it: then the next owner, who reads the
tally after its claim, knows of every minute that this one may still write to, and of every bucket
that this one may still mark. So what a paused owner writes is overwritten or ignored.

Nothing here fails a shard. What could not be written is written with the next flush; only the
marks of drained buckets wait for their tally.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import trio

from pushlane_dispatcher.core.shard import Shard
from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.interface import UsageStore
from pushlane_storage.ownership import Ownership
from pushlane_storage.tally import (
    STORED,
    Counters,
    Tally,
    add,
    difference,
    key_of,
    pack_tally,
    unpack_tally,
    version_of,
)
from pushlane_storage.usage import TALLY_MINUTE, Usage


class Standing(NamedTuple):
    """Where a predecessor stood."""

    tally: Tally | None
    minute: int
    row: Counters
    """Of that minute: the tally's, or the one that it is now."""
    version: int
    """The tally's."""

    def written(self, tally: Tally) -> Counters:
        """What all rows add up to, by its tally or by one that is made for it."""
        found = dict(tally.base)
        add(found, self.row)
        return found


async def read_standing(
    store: UsageStore, tenant: str, queue: str, shard: ShardKey, minute: int
) -> Standing:
    """To be read after the buckets: the tally has a drained one's numbers before it is marked."""
    found = await store.find(key_of(tenant, queue, shard))
    tally = unpack_tally(found)
    minute = minute if tally is None else tally.minute
    row = await store.find(key_of(tenant, queue, shard, minute))
    version = 0 if found is None else found.version
    return Standing(tally, minute, {} if row is None else row.counters, version)


async def write_off(
    store: UsageStore, tenant: str, queue: str, shard: ShardKey, minute: int
) -> None:
    """A shard is deleted, and nobody has it open: what lay in it lies there no longer."""
    standing = await read_standing(store, tenant, queue, shard, minute)
    tally = standing.tally
    if tally is None:
        return
    written = standing.written(tally)
    stored = written.get(STORED, 0)
    if stored:
        minute = max(minute, tally.minute + 1)
        after = msgspec.structs.replace(tally, minute=minute, base=written)
        rows = {TALLY_MINUTE: pack_tally(after), minute: {STORED: -stored}}
        for at, counters in rows.items():  # the tally is durable before the row
            key = key_of(tenant, queue, shard, at)
            await store.put([Usage(key, counters, standing.version + 1)])


class ShardCounters:
    def __init__(
        self,
        store: UsageStore,
        ownership: Ownership,
        tenant: str,
        shard: Shard,
        standing: Standing,
    ) -> None:
        self.tenant = tenant
        self.shard = shard
        self._store = store
        self._ownership = ownership
        self._shared = ownership.shared
        self._n = 0
        self.is_new = standing.tally is None
        """Nobody counted before: the tally must be written before anything happens."""
        fresh = Tally(standing.minute, difference(shard.lifetime(), standing.row))
        self._tally = standing.tally or fresh
        self._written = standing.written(self._tally)
        self._claimed = False
        """The stored tally is `_tally`, as far as this owner knows."""
        self._sure = not self._shared
        """So is the row of its minute: `_written` less the tally's base."""
        self._marked: list[BucketKey] = []
        """Buckets whose mark the next owner might not see yet."""
        self.lock = trio.Lock()
        """Held while rows are planned and written."""

    @property
    def staged(self) -> bool:
        """Whether stages must be written one by one; else all in one put, in order.

        In doubt they must: a new minute is begun only when the last one's row surely is there.
        """
        return self._shared or not self._sure

    @property
    def dirty(self) -> bool:
        """Whether there may be something to write."""
        unclaimed = self._shared and not self._claimed
        return self.shard.account.changed or not self._sure or unclaimed

    def stages(self, minute: int) -> Iterator[list[Usage]]:
        """Rows to write, one stage after the other; `doubt` when one may not be durable."""
        if not self.dirty:
            return
        self.shard.account.changed = False
        lifetime = self.shard.lifetime()
        same = not difference(lifetime, self._written)
        if same and self._sure and (self._claimed or not self._shared):
            return
        if minute > self._tally.minute and not same:
            if not self._sure:
                yield from self._claim()
                yield self._row()
            self._tally = Tally(minute, self._written)
            self._claimed = False
        yield from self._claim()
        self._written = lifetime
        yield self._row()

    def _claim(self) -> Iterator[list[Usage]]:
        if not self._claimed:
            yield self._note()
            self._claimed = True

    def _note(self) -> list[Usage]:
        """The tally, with all that is drained by now."""
        account = self.shard.account
        drained, counted = dict(account.drained), frozenset(account.counted)
        self._tally = Tally(self._tally.minute, self._tally.base, drained, counted)
        return [self._usage(0, pack_tally(self._tally))]

    def _row(self) -> list[Usage]:
        self._sure = True
        counters = difference(self._written, self._tally.base)
        return [self._usage(self._tally.minute, counters)]

    def _usage(self, minute: int, counters: Counters) -> Usage:
        self._n += 1
        key = key_of(self.tenant, self.shard.name, self.shard.key, minute)
        return Usage(key, counters, version_of(self.shard.epoch, self._n))

    def doubt(self) -> None:
        """Something that was planned may not be there."""
        self._claimed = self._sure = False

    # Writing

    async def flush(self, minute: int) -> None:
        """Write what is to be written. Errors of the store come through, and harm nothing."""
        async with self.lock:
            await self._write(self.stages(minute))

    async def rest(self, minute: int) -> None:
        """When nobody will count for a while: a tally that needs no row, for rows don't last."""
        async with self.lock:
            await self._write(self._rest(minute))

    def _rest(self, minute: int) -> Iterator[list[Usage]]:
        counted = difference(self._written, self._tally.base)
        if counted and self._sure and minute > self._tally.minute:
            self._tally = Tally(minute, self._written)
            self._claimed = False
            yield from self._claim()

    async def begin(self) -> None:
        """The first tally of a shard, before it serves: what happens from now on is counted."""
        if self.is_new:
            await self._store.put(self._note())  # the first flush confirms it

    async def cover(self, key: BucketKey) -> None:
        """Have a drained bucket's numbers in the tally; it may be marked then."""
        async with self.lock:
            if not self._claimed or key not in self._tally.counted:
                self._claimed = False
                await self._write(self._claim())

    def marked(self, key: BucketKey) -> None:
        """A bucket's mark is durable. The tally forgets it when whoever comes next will see it."""
        if not self._shared:
            self.shard.account.marked(key)
        else:
            self._marked.append(key)

    async def _confirm(self) -> None:
        marked = len(self._marked)
        await self._ownership.confirm(self.shard.key)
        for key in self._marked[:marked]:
            self.shard.account.marked(key)
        del self._marked[:marked]

    async def _write(self, stages: Iterator[list[Usage]]) -> None:
        try:
            if not self.staged:
                rows = [row for stage in stages for row in stage]
                if rows:
                    await self._store.put(rows)
                return
            for stage in stages:
                await self._store.put(stage)
                if self._shared and not self._claimed:
                    await self._confirm()
        except BaseException:
            self.doubt()
            raise


class Uncounted:
    """For a shard whose usage nobody wants: who counts again later must know what is missing."""

    def __init__(self, store: UsageStore, tenant: str, shard: Shard) -> None:
        self._store = store
        self._account = shard.account
        self._row = Usage(key_of(tenant, shard.name, shard.key), {}, version_of(shard.epoch, 0))
        self._told = False

    async def cover(self, key: BucketKey) -> None:
        """Before the first bucket is marked whose numbers go with it."""
        if not self._told:
            await self._store.put([self._row])
            self._told = True

    def marked(self, key: BucketKey) -> None:
        self._account.marked(key)
