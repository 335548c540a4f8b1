"""A replicated store as the target of a copy.

Until it is finished all slots belong to `COPYING`, which no server outlives, and no server opens
the keyspace. Progress is noted by lightweight transactions, of which two copies at once notice.

Rows are written with the stamps and the time to live that a server would give them; small ones of
one partition go together.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import trio

from pushlane_storage.bucket import CONTROL, Bucket, BucketKey, ShardKey
from pushlane_storage.cassandra import rows as columns
from pushlane_storage.cassandra import stamps
from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.queues import Known, Queues, Traits
from pushlane_storage.cassandra.ring import (
    Change,
    Level,
    Ring,
    Row,
    Table,
    Write,
    write_stages,
)
from pushlane_storage.cassandra.schedule import Schedule
from pushlane_storage.cassandra.schema import STATEMENT_SECONDS, create_table
from pushlane_storage.cassandra.slots import COPYING, NOBODY, NONCE_BYTES
from pushlane_storage.cassandra.tables import (
    BUCKETS,
    LANES,
    NOTES,
    QUEUES,
    SEALS,
    SEGMENTS,
    SETTLEMENTS,
    USAGE,
    keyed,
)
from pushlane_storage.cassandra.tables import SLOTS as SLOT_ROWS
from pushlane_storage.cassandra.usage_rows import UsageRows
from pushlane_storage.copy import record as records
from pushlane_storage.copy.errors import (
    CopyFailed,
    CopyTaken,
    TargetNotEmpty,
    TargetServed,
    TargetUnusable,
    bucket_name,
)
from pushlane_storage.copy.keyspace import CassandraRows, Keyspace, connected
from pushlane_storage.copy.record import Record
from pushlane_storage.copy.rows import Day, LogRow, due_of
from pushlane_storage.errors import OpenError
from pushlane_storage.interface import Due
from pushlane_storage.outcome import outcome_of
from pushlane_storage.queue import QueueRow
from pushlane_storage.segment import StoredSegment
from pushlane_storage.slot import SLOTS, slot_of
from pushlane_storage.usage import Usage
from pushlane_storage.wall import wall_clock
from pushlane_storage.work import gather

BATCH_BYTES = 4_000
"""Rows of one partition that are written together, about: Cassandra warns from 5 KiB on."""
ROW_BYTES = 120
"""What a row without its blobs takes of that."""


class CassandraWriter:
    def __init__(self, keyspace: Keyspace) -> None:
        self._keyspace = keyspace
        self._ring: Ring = keyspace.ring
        self._limits = keyspace.limits
        self._known = Known(self._limits)
        self._queues = Queues(self._ring, keyspace.decisions, secrets.token_bytes)
        self._schedule = Schedule(self._ring, keyspace.places, self._limits, wall_clock)
        self._usage = UsageRows(self._ring, self._limits)

    async def put_queue(self, row: QueueRow) -> None:
        await self._queues.put(row)

    async def put_shard(
        self, queue: QueueRow, shard: ShardKey, seals: Sequence[LogRow], note: LogRow | None
    ) -> None:
        rows = [
            keyed(SEALS, (*shard, seal.owner), checksum=seal.checksum, body=seal.body)
            for seal in seals
        ]
        writes = [Write(SEALS, chunk, stamps.ONCE) for chunk in _chunks(rows)]
        if note is not None:
            row = keyed(
                NOTES, (slot_of(shard), *shard), due=due_of(note), tenant=queue.tenant,
                queue=queue.name, **note._asdict(),
            )  # fmt: skip
            writes.append(Write(NOTES, [row], stamps.noted(note.owner, note.n)))
        await self._write(self._keyspace.places.lane(shard, CONTROL.lane) + writes)

    async def put_bucket(self, shard: ShardKey, bucket: Bucket) -> None:
        row = columns.opened_row(shard, bucket)
        marked = columns.marked_row(shard, bucket, bucket.key.epoch)
        whole = row if marked is None else {**row, **marked}
        write = Write(BUCKETS, [whole], stamps.written(bucket.key))
        await self._write([*self._keyspace.places.lane(shard, bucket.key.lane), write])

    async def put_log(
        self, queue: QueueRow, shard: ShardKey, key: BucketKey, rows: Sequence[LogRow]
    ) -> None:
        found = [
            keyed(
                SETTLEMENTS, (*shard, *key, row.owner, row.n), checksum=row.checksum, body=row.body
            )
            for row in rows
        ]
        stamp = None if key == CONTROL else stamps.written(key)
        ttl, level = self._limits.most_ttl, self._traits(queue).level
        await self._write(
            [Write(SETTLEMENTS, chunk, stamp, ttl, level) for chunk in _chunks(found)]
        )

    async def put_segments(
        self, queue: QueueRow, shard: ShardKey, key: BucketKey, rows: Sequence[StoredSegment]
    ) -> None:
        for row in rows:
            size = len(row.body or b"") + len(row.marks)
            if size > self._limits.row_bytes:
                raise CopyFailed(
                    f"a segment of {bucket_name(shard, key)} has {size} bytes, and Cassandra takes"
                    f" {self._limits.row_bytes}: have its messages consumed first"
                )
        traits, stamp = self._traits(queue), stamps.written(key)
        found = [columns.stored_row(shard, key, row) for row in rows]
        await self._write(
            [
                Write(SEGMENTS, chunk, stamp, traits.ttl, traits.level)
                for chunk in _chunks(found, "payload", "marks")
            ]
        )

    async def put_due(self, queue: QueueRow, shard: ShardKey, rows: Sequence[Due]) -> None:
        waiting: dict[BucketKey, list[tuple[int, int]]] = {}
        for row in rows:
            waiting.setdefault(row.bucket, []).append((row.due, row.seq))
        for key, entries in waiting.items():
            names, writes = self._schedule.entries(shard, key, entries, self._traits(queue).ttl)
            await self._write(names)
            self._keyspace.places.note(names)
            await self._write(writes)

    async def put_usage(self, day: Day, usage: Sequence[Usage]) -> None:
        await self._usage.put(usage)

    def _traits(self, queue: QueueRow) -> Traits:
        """Of the queue; but a copy that is said to be verified stands on a quorum at least."""
        self._known.learn(queue)
        traits = self._known.of(ShardKey(queue.id, 0))
        return traits._replace(level=Level.QUORUM) if traits.level is Level.ONE else traits

    async def _write(self, writes: Sequence[Write]) -> None:
        if writes:
            await outcome_of(lambda done: write_stages(self._ring, [writes], done))


def _chunks(rows: Sequence[Row], *blobs: str) -> Iterator[list[Row]]:
    """Rows that go together, by their size."""
    chunk: list[Row] = []
    size = 0
    for row in rows:
        more = ROW_BYTES + sum(len(row[name] or b"") for name in blobs or ("body",))
        if chunk and size + more > BATCH_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += more
    if chunk:
        yield chunk


RECORD = Table(
    "copy_record",
    ("id",),
    (),
    {"id": "text", "record": "text", "nonce": "text"},
    lightweight=True,
    options="read_repair = 'BLOCKING'",
)
"""Made by the first copy into a keyspace, and kept: who runs it again learns that it is finished.
No part of the schema: servers never look at it."""
_KEY = ("copy",)


class CassandraTarget(CassandraWriter):
    """Made by `open_target`."""

    def __init__(self, name: str, keyspace: Keyspace) -> None:
        super().__init__(keyspace)
        self.name = name
        self._nonce = ""

    # What is there

    async def read_record(self) -> Record | None:
        if RECORD.name not in await self._keyspace.tables():
            return None
        row = await self._keyspace.decisions.read(RECORD, _KEY)
        if row is None:
            return None
        self._nonce = row["nonce"]
        try:
            return records.decode(row["record"])
        except ValueError as error:
            raise TargetNotEmpty(self.name, f"a copy of another version: {error}") from error

    async def check_empty(self) -> None:
        there = await self._keyspace.tables()
        for table in (QUEUES, LANES, SLOT_ROWS, USAGE):
            if table.name in there and await self._keyspace.has_rows(table):
                raise TargetNotEmpty(self.name, f"there are rows in {table.name}")

    # Beginning and ending

    async def begin(self, record: Record) -> CassandraRows:
        await self._make_tables()
        if record.state == "copying":
            await self._check_quiet()
            await self.note(record)
            await self._close_slots(record.copy)
        return self._keyspace.rows()

    async def _check_quiet(self) -> None:
        found = await self._keyspace.beating()
        if found is not None:
            raise TargetServed(self.name, f"process {found['process']} on {found['address']}")

    async def _make_tables(self) -> None:
        keyspace, address = self._keyspace, self._keyspace.connection.address
        try:
            if address.migrate:
                await keyspace.migration.run()
            else:
                await keyspace.migration.check()
            salt = UUID(bytes=bytes.fromhex(await keyspace.salt()))
            text = create_table(keyspace.name, RECORD, salt)

            def run() -> list[Row]:
                return keyspace.connection.execute(text, STATEMENT_SECONDS)

            await trio.to_thread.run_sync(run)
        except OpenError as error:
            raise TargetUnusable(f"{self.name} can't be used: {error}") from error

    async def _close_slots(self, copy: str) -> None:
        """Keep servers out, from here until it is finished."""

        async def close(slot: int) -> None:
            row = {"epoch": 0, "process": COPYING, "owner": copy, "dc": self._keyspace.dc}
            change = Change(SLOT_ROWS, (slot,), None, {**row, "nonce": _nonce()})

            def is_ours(found: Row | None) -> bool:
                return found is not None and (found["process"], found["owner"]) == (COPYING, copy)

            decided = await self._keyspace.decisions.decide(change, is_ours)
            if not decided.applied and not is_ours(decided.row):
                raise TargetServed(self.name, f"slot {slot} was claimed")

        await gather(close, range(SLOTS), self._limits.reads)

    async def note(self, record: Record) -> None:
        nonce = _nonce()
        expect = {"nonce": self._nonce} if self._nonce else None
        change = Change(RECORD, _KEY, expect, {"record": records.encode(record), "nonce": nonce})

        def verdict(found: Row | None) -> bool:
            return found is not None and found["nonce"] == nonce

        if not (await self._keyspace.decisions.decide(change, verdict)).applied:
            raise CopyTaken(f"another copy into {self.name} has begun: run only one")
        self._nonce = nonce

    async def finish(self, record: Record) -> None:
        async def open_slot(slot: int) -> None:
            row = {"epoch": record.epoch, "process": NOBODY, "nonce": _nonce()}
            change = Change(SLOT_ROWS, (slot,), {"process": COPYING}, row)
            await self._keyspace.decisions.decide(change, lambda _: True)  # or it was open before

        await gather(open_slot, range(1, SLOTS), self._limits.reads)
        await open_slot(0)
        await self.note(record)


def _nonce() -> str:
    return secrets.token_bytes(NONCE_BYTES).hex()


@asynccontextmanager
async def open_target(
    name: str, address: Address, limits: Limits
) -> AsyncIterator[CassandraTarget]:
    try:
        async with connected(address, limits) as keyspace:
            yield CassandraTarget(name, keyspace)
    except OpenError as error:
        raise TargetUnusable(f"{name} can't be used: {error}") from error
