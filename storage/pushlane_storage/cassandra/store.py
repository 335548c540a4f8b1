"""The replicated `Store`: many processes, one keyspace."""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

import trio

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.cassandra import rows
from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.buckets import Buckets
from pushlane_storage.cassandra.connection import Connection
from pushlane_storage.cassandra.damage_report import DamageReport
from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.driver_ring import DriverRing
from pushlane_storage.cassandra.errors import KeyspaceUnusable, Unreachable
from pushlane_storage.cassandra.home import ANYWHERE, Home, find_home
from pushlane_storage.cassandra.journal import Journal
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.membership import Membership
from pushlane_storage.cassandra.migrate import Migration
from pushlane_storage.cassandra.places import Places
from pushlane_storage.cassandra.queues import Queues
from pushlane_storage.cassandra.removal import Removal
from pushlane_storage.cassandra.ring import Range, Ring, read_all, read_row
from pushlane_storage.cassandra.schedule import Schedule
from pushlane_storage.cassandra.schema import STEPS, Step
from pushlane_storage.cassandra.segments import Segments
from pushlane_storage.cassandra.slots import is_copying
from pushlane_storage.cassandra.stages import outcome_of
from pushlane_storage.cassandra.stats import Stats
from pushlane_storage.cassandra.tables import NOTES, SEALS, SETTLEMENTS
from pushlane_storage.cassandra.traits import Known
from pushlane_storage.cassandra.usage_rows import UsageRows
from pushlane_storage.damage import Damage
from pushlane_storage.interface import Due, Outcome, StoreError
from pushlane_storage.message import Message
from pushlane_storage.note import DueShard, Note
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.seal import Seal
from pushlane_storage.segment import Segment, SegmentHead
from pushlane_storage.settlement import Settlement
from pushlane_storage.slot import slot_of
from pushlane_storage.usage import Usage, UsageKey
from pushlane_storage.wall import wall_clock

log = logging.getLogger(__name__)


def _ignore(_: Damage) -> None:
    """Damage is logged and counted anyway."""


class CassandraStore:
    """Made by `open`, or by `over` a ring of another kind."""

    def __init__(
        self,
        ring: Ring,
        membership: Membership,
        decisions: Decisions,
        limits: Limits,
        damaged: Callable[[Damage], None],
        randbytes: Callable[[int], bytes],
        wall: Callable[[], int],
    ) -> None:
        self._ring = ring
        self.membership = membership
        self._limits = limits
        self._known = Known(limits)
        self._report = DamageReport(damaged, wall, limits.damaged)
        self._queues = Queues(ring, decisions, randbytes)
        places = Places(ring, limits)
        self._buckets = Buckets(ring, places, membership.slots, limits)
        self._schedule = Schedule(ring, places, limits, wall)
        self._segments = Segments(ring, self._report, limits)
        self._usage = UsageRows(ring, limits)
        self._removal = Removal(ring, places, self._buckets, limits)
        self._journal = Journal(
            ring, membership.slots, places, self._buckets, self._schedule, self._known, limits
        )
        self._closed = False

    @classmethod
    async def open(
        cls,
        address: Address,
        limits: Limits | None = None,
        *,
        connection: Connection | None = None,
        damaged: Callable[[Damage], None] = _ignore,
        randbytes: Callable[[int], bytes] = secrets.token_bytes,
        wall: Callable[[], int] = wall_clock,
        steps: Sequence[Step] = STEPS,
    ) -> CassandraStore:
        """Serve a keyspace, which is made if need be and allowed; `OpenError` says why it can't be.

        A `connection` that is handed in stays open when the store is closed.
        """
        bounds = limits or Limits()
        ring, used = await _connect(address, bounds, connection)
        try:
            decisions = Decisions(ring, bounds.decisions)
            migration = Migration(used, ring, decisions, randbytes, steps)
            if address.migrate:
                await migration.run()
            else:
                await migration.check()
            if await is_copying(ring):
                raise KeyspaceUnusable(
                    f"a copy into keyspace {address.keyspace} is not finished: run it again"
                )
            home = await trio.to_thread.run_sync(find_home, used)
            return await cls.over(
                ring, bounds, home=home, damaged=damaged, randbytes=randbytes, wall=wall
            )
        except BaseException as error:
            with trio.CancelScope(shield=True):
                await ring.close()
            if isinstance(error, StoreError):
                raise Unreachable(f"keyspace {address.keyspace}: {error}") from error
            raise

    @classmethod
    async def over(
        cls,
        ring: Ring,
        limits: Limits,
        *,
        home: Home = ANYWHERE,
        address: str | None = None,
        damaged: Callable[[Damage], None] = _ignore,
        randbytes: Callable[[int], bytes] = secrets.token_bytes,
        wall: Callable[[], int] = wall_clock,
    ) -> CassandraStore:
        """The store on a ring that has the tables. `address` is where people find this process."""
        decisions = Decisions(ring, limits.decisions)
        where = socket.gethostname() if address is None else address
        membership = Membership(ring, decisions, limits, where, home, randbytes)
        await membership.join()
        return cls(ring, membership, decisions, limits, damaged, randbytes, wall)

    def stats(self) -> Stats:
        numbers, membership = self._ring.numbers, self.membership
        return Stats(
            requests=numbers.requests,
            in_flight=numbers.in_flight,
            waiting=numbers.waiting,
            retries=numbers.retries,
            unknown=numbers.unknown,
            refused=numbers.refused,
            fence_reads=membership.fence_reads,
            confirmed=membership.confirmed,
            beats=membership.beats,
            slots=len(membership.slots),
            slots_lost=membership.slots.lost,
            fenced=membership.fenced,
            fencings=membership.watches.fenced,
            damaged=self._report.count,
        )

    async def time(self) -> int:
        return await self._ring.time()

    async def close(self) -> None:
        """Give the slots back, finish what is under way, and let go of the connections."""
        if self._closed:
            return
        self._closed = True
        with trio.CancelScope(shield=True):
            await self.membership.leave()
            await self._ring.close()

    # Queues

    async def create_queue(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        return self._learn(await self._queues.create(tenant, name, config))

    async def read_queue(self, tenant: str, name: str) -> QueueRow | None:
        row = await self._queues.read(tenant, name)
        return None if row is None else self._learn(row)

    async def list_queues(self, tenant: str, after: str, limit: int) -> list[QueueRow]:
        return [self._learn(row) for row in await self._queues.list_after(tenant, after, limit)]

    async def update_queue(self, row: QueueRow, config: QueueConfig) -> QueueRow:
        return self._learn(await self._queues.update(row, config))

    async def mark_deleting(self, row: QueueRow) -> QueueRow:
        return self._learn(await self._queues.mark_deleting(row))

    def _learn(self, row: QueueRow) -> QueueRow:
        self._known.learn(row)
        return row

    async def remove_queue(self, row: QueueRow) -> None:
        await self._queues.check_removable(row)
        await self._removal.run(row.id)
        await self._queues.remove(row)
        self._known.forget(row)

    # Writing shards

    async def claim(self, slot: int, owner: str) -> int:
        return await self.membership.slots.claim(slot, owner)

    async def next_epoch(self, shard: ShardKey) -> int:
        return await self.membership.slots.next_epoch(shard)

    async def release(self, slot: int) -> None:
        """Give a slot back: the next owner need not wait."""
        await self.membership.slots.release(slot)

    async def append(self, shard: ShardKey, segment: Segment, opens: Bucket | None) -> None:
        await outcome_of(lambda done: self._journal.append_soon(shard, segment, opens, done))

    async def settle(self, shard: ShardKey, rows: Sequence[Settlement]) -> None:
        await outcome_of(lambda done: self._journal.settle_soon(shard, rows, done))

    def append_soon(
        self, shard: ShardKey, segment: Segment, opens: Bucket | None, outcome: Outcome
    ) -> None:
        self._journal.append_soon(shard, segment, opens, outcome)

    def settle_soon(self, shard: ShardKey, rows: Sequence[Settlement], outcome: Outcome) -> None:
        self._journal.settle_soon(shard, rows, outcome)

    async def mark_bucket(self, shard: ShardKey, bucket: Bucket) -> None:
        await self._journal.mark_bucket(shard, bucket)

    async def drop_bucket(self, shard: ShardKey, key: BucketKey) -> None:
        await self._journal.drop_bucket(shard, key)

    async def drop_purges(self, shard: ShardKey, flushes: Sequence[tuple[int, int]]) -> None:
        await self._journal.drop_purges(shard, flushes)

    async def write_seal(self, shard: ShardKey, seal: Seal) -> None:
        await outcome_of(lambda done: self._journal.seal_soon(shard, seal, done))
        with suppress(StoreError):  # whoever comes next does it
            await self._journal.drop_seals_before(shard, seal.owner)

    async def write_note(self, shard: ShardKey, note: Note) -> None:
        await outcome_of(lambda done: self._journal.note_soon(shard, note, done))

    async def lost_slots(self) -> list[tuple[int, int]]:
        return await self.membership.lost_slots()

    async def confirm(self, shard: ShardKey) -> None:
        """`Fenced` when this process owned the shard's slot and does so no longer."""
        await self._journal.confirm(shard)

    # Reading shards

    async def read_note(self, shard: ShardKey) -> Note | None:
        found = await read_row(self._ring, NOTES, (slot_of(shard), *shard))
        return None if found is None else rows.note_of(found)

    async def due_shards(self, slot: int, until: int, limit: int) -> list[DueShard]:
        names = ("due", "tenant", "queue", "queue_id", "shard")
        found = await read_all(self._ring, Range(NOTES, (slot,), self._limits.page_rows, names))
        due = [row for row in found if row["due"] is not None and row["due"] < until]
        return sorted(DueShard(*(row[name] for name in names)) for row in due)[:limit]

    async def seals(self, shard: ShardKey) -> list[Seal]:
        found = await read_all(self._ring, Range(SEALS, shard, self._limits.page_rows))
        return [rows.seal_of(row) for row in found]

    async def buckets(self, shard: ShardKey) -> list[Bucket]:
        return await self._buckets.read(shard)

    async def heads(self, shard: ShardKey, key: BucketKey) -> list[SegmentHead]:
        is_closed = self._buckets.is_closed(shard, key)
        return await self._segments.heads(shard, key, is_closed=is_closed)

    async def segments(
        self, shard: ShardKey, key: BucketKey, start: int, limit: int, last: int | None = None
    ) -> list[Segment]:
        return await self._segments.read(shard, key, start, limit, last)

    async def messages(
        self, shard: ShardKey, key: BucketKey, seqs: Sequence[int]
    ) -> dict[int, Message]:
        return await self._segments.messages(shard, key, seqs)

    async def settlements(self, shard: ShardKey, key: BucketKey) -> list[Settlement]:
        found = await read_all(
            self._ring, Range(SETTLEMENTS, (*shard, *key), self._limits.page_rows)
        )
        return [rows.settlement_of(key, row) for row in found]

    async def due(self, shard: ShardKey, start: int, end: int, limit: int) -> list[Due]:
        live = await self._buckets.live(shard)
        return await self._schedule.read(shard, start, end, limit, live)

    # Usage

    async def put_usage(self, usage: Sequence[Usage]) -> None:
        await self._usage.put(usage)

    async def find_usage(self, key: UsageKey) -> Usage | None:
        return await self._usage.find(key)

    async def usage(
        self, tenant: str, first_minute: int, last_minute: int, queue: str | None = None
    ) -> list[Usage]:
        return await self._usage.read(tenant, first_minute, last_minute, queue)


async def _connect(
    address: Address, limits: Limits, connection: Connection | None
) -> tuple[DriverRing, Connection]:
    if connection is not None:
        return DriverRing(connection, limits, owns=False), connection
    made = await trio.to_thread.run_sync(Connection.connect, address, limits)
    return DriverRing(made, limits), made
