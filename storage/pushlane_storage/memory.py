"""The in-memory store: for tests, for trying things out, for `--store memory:`.

`MemoryTables` is the data and every operation on it, as plain calls: the simulator and the
benchmarks use it directly. `MemoryStore` is the back end over it. Tables outlive the store that
was opened on them, so closing one and opening another is a restart.

With `fencing` (the default) a writer whose epoch is older than its slot's newest claim gets
`Fenced` and nothing is stored. Without it such writes land silently, as those of a paused node
may in Cassandra; then only the seals keep them out.
"""

import secrets
from bisect import bisect_right, insort
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import trio

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.interface import (
    Due,
    Fenced,
    Outcome,
    QueueExists,
    QueueMissing,
    VersionConflict,
)
from pushlane_storage.memory_shard import BucketTable, ShardTable, merge
from pushlane_storage.message import Message
from pushlane_storage.note import DueShard, Note
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.seal import Outline, Seal
from pushlane_storage.segment import Segment, SegmentHead, head_of
from pushlane_storage.settlement import Settlement
from pushlane_storage.slot import SLOTS
from pushlane_storage.sole_ownership import SoleOwnership
from pushlane_storage.usage import Usage, UsageKey

QUEUE_ID_BYTES = 16
"""Random bytes in a queue's id: enough that no two queues ever made share one."""


class MemoryTables:
    """Every table, with the methods of a back end as plain synchronous calls."""

    def __init__(
        self, *, fencing: bool = True, randbytes: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self._fencing = fencing
        self._randbytes = randbytes
        self._queues: dict[tuple[str, str], QueueRow] = {}
        self._names: dict[str, list[str]] = {}
        self._epochs = [0] * SLOTS
        self._lowest = [0] * SLOTS
        """The epoch with which each slot was claimed."""
        self._owners: dict[int, str] = {}
        self._shards: dict[ShardKey, ShardTable] = {}
        self._usage: dict[UsageKey, Usage] = {}

    # Queues

    def create_queue(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        if (tenant, name) in self._queues:
            raise QueueExists(name)
        row = QueueRow(tenant, name, self._randbytes(QUEUE_ID_BYTES).hex(), config, version=1)
        self._queues[tenant, name] = row
        insort(self._names.setdefault(tenant, []), name)
        return row

    def read_queue(self, tenant: str, name: str) -> QueueRow | None:
        return self._queues.get((tenant, name))

    def list_queues(self, tenant: str, after: str, limit: int) -> list[QueueRow]:
        names = self._names.get(tenant, [])
        first = bisect_right(names, after)
        return [self._queues[tenant, name] for name in names[first : first + limit]]

    def update_queue(self, row: QueueRow, config: QueueConfig) -> QueueRow:
        stored = self._stored(row)
        if stored.version != row.version:
            raise VersionConflict(row.name)
        return self._replace(msgspec.structs.replace(stored, config=config))

    def mark_deleting(self, row: QueueRow) -> QueueRow:
        stored = self._stored(row)
        if stored.deleting:
            return stored
        if stored.version != row.version:
            raise VersionConflict(row.name)
        return self._replace(msgspec.structs.replace(stored, deleting=True))

    def remove_queue(self, row: QueueRow) -> None:
        stored = self._queues.get((row.tenant, row.name))
        if stored is not None and stored.id == row.id:
            assert stored.deleting, f"{row.name} is removed before it was marked"
            del self._queues[row.tenant, row.name]
            self._names[row.tenant].remove(row.name)
        for key in [key for key in self._shards if key.queue_id == row.id]:
            del self._shards[key]

    def _stored(self, row: QueueRow) -> QueueRow:
        stored = self._queues.get((row.tenant, row.name))
        if stored is None:
            raise QueueMissing(row.name)
        if stored.id != row.id:
            raise VersionConflict(row.name)
        return stored

    def _replace(self, row: QueueRow) -> QueueRow:
        row = msgspec.structs.replace(row, version=row.version + 1)
        self._queues[row.tenant, row.name] = row
        return row

    # Shards

    def claim(self, slot: int, owner: str) -> int:
        assert 0 <= slot < SLOTS
        self._epochs[slot] += 1
        self._lowest[slot] = self._epochs[slot]
        self._owners[slot] = owner
        return self._epochs[slot]

    def next_epoch(self, shard: ShardKey) -> int:
        table = self._shards.setdefault(shard, ShardTable(shard))
        self._epochs[table.slot] += 1
        table.lowest = self._epochs[table.slot]
        return table.lowest

    def append(self, shard: ShardKey, segment: Segment, opens: Bucket | None) -> None:
        self._writable(shard, segment.bucket.epoch).append(segment, opens)

    def settle(self, shard: ShardKey, rows: Sequence[Settlement]) -> None:
        first = rows[0]
        assert {row.bucket for row in rows} == set(first.parts), "a flush is all of its parts"
        for row in rows:
            assert (row.owner, row.n, row.parts) == (first.owner, first.n, first.parts)
        table = self._writable(shard, first.owner)
        for row in rows:
            table.bucket(row.bucket).add_settlement(row)

    def mark_bucket(self, shard: ShardKey, bucket: Bucket) -> None:
        table = self._bucket(shard, bucket.key)
        if table.row is not None:  # else it was dropped: a late mark doesn't bring it back
            table.row = merge(table.row, bucket)

    def drop(
        self, shard: ShardKey, key: BucketKey, flushes: Sequence[tuple[int, int]] | None = None
    ) -> None:
        if flushes is None:
            self._readable(shard).drop(key)
        else:
            self._bucket(shard, key).drop_settlements(flushes)

    def write_seal(self, shard: ShardKey, seal: Seal) -> None:
        seals = self._writable(shard, seal.owner).seals
        assert seals.get(seal.owner, seal) == seal, f"seal {seal.owner} again, with other content"
        seals.clear()
        seals[seal.owner] = seal

    def write_note(self, shard: ShardKey, note: Note) -> None:
        table = self._writable(shard, note.owner)
        old = table.note
        if old is None or (old.owner, old.n) < (note.owner, note.n):
            table.note = note

    def due_shards(self, slot: int, until: int, limit: int) -> list[DueShard]:
        found = [
            DueShard(note.due, note.tenant, note.queue, *key)
            for key, table in self._shards.items()
            if table.slot == slot and (note := table.note) is not None
            if note.due is not None and note.due < until
        ]
        return sorted(found)[:limit]

    def outline(self, shard: ShardKey) -> Outline:
        table = self._readable(shard)
        seals = [seal for _, seal in sorted(table.seals.items())]
        buckets = sorted(table.buckets.items(), key=lambda item: item[0])
        rows = [bucket.row for _, bucket in buckets if bucket.row is not None]
        return Outline(seals, rows, table.note)

    def heads(self, shard: ShardKey, key: BucketKey) -> list[SegmentHead]:
        return [head_of(segment) for segment in self._bucket(shard, key).segments_from(0)]

    def segments(
        self, shard: ShardKey, key: BucketKey, start: int, limit: int, last: int | None = None
    ) -> list[Segment]:
        found: list[Segment] = []
        count = 0
        for segment in self._bucket(shard, key).segments_from(start):
            found.append(segment)
            count += len(segment.messages)
            if count >= limit:
                break
        return found

    def messages(self, shard: ShardKey, key: BucketKey, seqs: Sequence[int]) -> dict[int, Message]:
        table = self._bucket(shard, key)
        found = ((seq, table.message(seq)) for seq in seqs)
        return {seq: message for seq, message in found if message is not None}

    def settlements(self, shard: ShardKey, key: BucketKey) -> list[Settlement]:
        return self._bucket(shard, key).settlements()

    def due(self, shard: ShardKey, start: int, end: int, limit: int) -> list[Due]:
        return self._readable(shard).schedule.window(start, end, limit)

    def _writable(self, shard: ShardKey, epoch: int) -> ShardTable:
        table = self._shards.get(shard) or ShardTable(shard)
        if self._fencing and epoch < max(self._lowest[table.slot], table.lowest):
            owner = self._owners[table.slot]
            raise Fenced(f"slot {table.slot}: {owner} has epoch {self._epochs[table.slot]}")
        self._shards[shard] = table
        return table

    def _readable(self, shard: ShardKey) -> ShardTable:
        return self._shards.get(shard) or ShardTable(shard)

    def _bucket(self, shard: ShardKey, key: BucketKey) -> BucketTable:
        return self._readable(shard).buckets.get(key) or BucketTable()

    # Usage

    def put_usage(self, usage: Sequence[Usage]) -> None:
        for row in usage:
            stored = self._usage.get(row.key)
            if stored is None or stored.version <= row.version:
                self._usage[row.key] = _own(row)

    def find_usage(self, key: UsageKey) -> Usage | None:
        found = self._usage.get(key)
        return None if found is None else _own(found)

    def usage(
        self, tenant: str, first_minute: int, last_minute: int, queue: str | None = None
    ) -> list[Usage]:
        keys = [
            key
            for key in self._usage
            if key.tenant == tenant
            and first_minute <= key.minute <= last_minute
            and queue in (None, key.queue)
        ]
        return [_own(self._usage[key]) for key in sorted(keys)]


def _own(row: Usage) -> Usage:
    """A copy: what a caller does to its counters is its own business."""
    return Usage(row.key, dict(row.counters), row.version)


Reach = Callable[[], Awaitable[MemoryTables]]


class Nothing(msgspec.Struct):
    """What this store counts."""


class MemoryCatalog:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def create(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        return (await self._reach()).create_queue(tenant, name, config)

    async def read(self, tenant: str, name: str) -> QueueRow | None:
        return (await self._reach()).read_queue(tenant, name)

    async def list(self, tenant: str, after: str, limit: int) -> list[QueueRow]:
        return (await self._reach()).list_queues(tenant, after, limit)

    async def update(self, row: QueueRow, config: QueueConfig) -> QueueRow:
        return (await self._reach()).update_queue(row, config)

    async def mark_deleting(self, row: QueueRow) -> QueueRow:
        return (await self._reach()).mark_deleting(row)

    async def remove(self, row: QueueRow) -> None:
        (await self._reach()).remove_queue(row)


class MemoryUsage:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def put(self, usage: Sequence[Usage]) -> None:
        (await self._reach()).put_usage(usage)

    async def find(self, key: UsageKey) -> Usage | None:
        return (await self._reach()).find_usage(key)

    async def read(
        self, tenant: str, first_minute: int, last_minute: int, queue: str | None = None
    ) -> list[Usage]:
        return (await self._reach()).usage(tenant, first_minute, last_minute, queue)


class MemoryStore:
    """The `Backend` over `MemoryTables`. Every call is one checkpoint, then the plain call."""

    def __init__(self, tables: MemoryTables | None = None) -> None:
        self.tables = MemoryTables() if tables is None else tables
        self._closed = False
        self.ownership = SoleOwnership(self._claim, self._next_epoch, self._due_shards)
        self.catalog = MemoryCatalog(self._reach)
        self.usage = MemoryUsage(self._reach)

    async def _reach(self) -> MemoryTables:
        """Pass a checkpoint. Whoever is cancelled here has certainly changed nothing."""
        await trio.lowlevel.checkpoint()
        assert not self._closed, "the store is closed"
        return self.tables

    async def _claim(self, slot: int, owner: str) -> int:
        return (await self._reach()).claim(slot, owner)

    async def _next_epoch(self, shard: ShardKey) -> int:
        return (await self._reach()).next_epoch(shard)

    async def _due_shards(self, slot: int, until: int, limit: int) -> list[DueShard]:
        return (await self._reach()).due_shards(slot, until, limit)

    def append_soon(
        self, shard: ShardKey, segment: Segment, opens: Bucket | None, outcome: Outcome
    ) -> None:
        self._soon(lambda: self.tables.append(shard, segment, opens), outcome)

    def settle_soon(self, shard: ShardKey, rows: Sequence[Settlement], outcome: Outcome) -> None:
        self._soon(lambda: self.tables.settle(shard, rows), outcome)

    def _soon(self, write: Callable[[], None], outcome: Outcome) -> None:
        def do() -> None:
            try:
                assert not self._closed, "the store is closed"
                write()
            except Exception as error:
                outcome(error)
            else:
                outcome(None)

        trio.lowlevel.current_trio_token().run_sync_soon(do)

    async def mark_bucket(self, shard: ShardKey, bucket: Bucket) -> None:
        (await self._reach()).mark_bucket(shard, bucket)

    async def drop(
        self, shard: ShardKey, key: BucketKey, flushes: Sequence[tuple[int, int]] | None = None
    ) -> None:
        (await self._reach()).drop(shard, key, flushes)

    async def write_seal(self, shard: ShardKey, seal: Seal) -> None:
        (await self._reach()).write_seal(shard, seal)

    async def write_note(self, shard: ShardKey, note: Note) -> None:
        (await self._reach()).write_note(shard, note)

    async def outline(self, shard: ShardKey) -> Outline:
        return (await self._reach()).outline(shard)

    async def heads(self, shard: ShardKey, key: BucketKey) -> list[SegmentHead]:
        return (await self._reach()).heads(shard, key)

    async def segments(
        self, shard: ShardKey, key: BucketKey, start: int, limit: int, last: int | None = None
    ) -> list[Segment]:
        return (await self._reach()).segments(shard, key, start, limit)

    async def messages(
        self, shard: ShardKey, key: BucketKey, seqs: Sequence[int]
    ) -> dict[int, Message]:
        return (await self._reach()).messages(shard, key, seqs)

    async def settlements(self, shard: ShardKey, key: BucketKey) -> list[Settlement]:
        return (await self._reach()).settlements(shard, key)

    async def due(self, shard: ShardKey, start: int, end: int, limit: int) -> list[Due]:
        return (await self._reach()).due(shard, start, end, limit)

    async def time(self) -> int | None:
        await self._reach()
        return None

    def stats(self) -> Nothing:
        return Nothing()

    async def close(self) -> None:
        self._closed = True
        await trio.lowlevel.checkpoint()
