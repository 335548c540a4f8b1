"""The replicated back end: many processes, one keyspace."""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import msgspec
import trio

from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.cassandra import rows
from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.buckets import Buckets
from pushlane_storage.cassandra.connection import Connection
from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.driver_ring import DriverRing
from pushlane_storage.cassandra.home import ANYWHERE, Home, find_home
from pushlane_storage.cassandra.journal import Journal
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.membership import Membership, join
from pushlane_storage.cassandra.places import Places
from pushlane_storage.cassandra.queues import CassandraCatalog, Known, Queues, Removal
from pushlane_storage.cassandra.ring import Range, Ring, read_all, read_row
from pushlane_storage.cassandra.schedule import Schedule
from pushlane_storage.cassandra.schema import STEPS, Migration, Step
from pushlane_storage.cassandra.segments import Segments
from pushlane_storage.cassandra.slots import is_copying
from pushlane_storage.cassandra.tables import NOTES, SEALS, SETTLEMENTS
from pushlane_storage.cassandra.usage_rows import UsageRows
from pushlane_storage.damage import Damage, DamageReport
from pushlane_storage.errors import KeyspaceUnusable, Unreachable
from pushlane_storage.interface import Due, StoreError
from pushlane_storage.message import Message
from pushlane_storage.note import Note
from pushlane_storage.outcome import outcome_of
from pushlane_storage.seal import Outline, Seal
from pushlane_storage.segment import Segment, SegmentHead
from pushlane_storage.settlement import Settlement
from pushlane_storage.slot import slot_of
from pushlane_storage.wall import wall_clock
from pushlane_storage.work import together

log = logging.getLogger(__name__)


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What the store has done since it was opened, and what it is doing."""

    requests: int
    in_flight: int
    """Requests under way."""
    waiting: int
    """Requests that wait for room among them."""
    retries: int
    """Requests that were sent again because their outcome was unknown."""
    unknown: int
    """Requests whose outcome stayed unknown."""
    refused: int
    """Requests that Cassandra turned down, or that could not be sent."""
    nodes_down: int
    """Cassandra nodes to which there is no connection."""
    nodes_suspect: int
    """Cassandra nodes that left a request unanswered, and are asked last for a while."""
    fence_reads: int
    confirmed: int
    """Writes that those reads confirmed: `confirmed / fence_reads` is the mean size of a group."""
    beats: int
    slots: int
    """Slots that this process owns."""
    slots_lost: int
    """Slots that were another's when the rows were compared with what this process served."""
    fenced: int
    """How often this process was fenced by another one."""
    fencings: int
    """Processes that this one has fenced."""
    damaged: int
    """Damaged segments found."""


def _ignore(_: Damage) -> None:
    """Damage is logged and counted anyway."""


class CassandraStore:
    """The `Backend`. Opened by `open`, or by `over` a ring of another kind."""

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
        self.ownership = membership
        self._limits = limits
        known = Known(limits)
        self._report = DamageReport(damaged, wall, limits.damaged)
        places = Places(ring, limits)
        self._buckets = Buckets(ring, places, membership.slots, limits)
        self._schedule = Schedule(ring, places, limits, wall)
        self._segments = Segments(ring, self._report, limits)
        self.usage = UsageRows(ring, limits)
        self.catalog = CassandraCatalog(
            Queues(ring, decisions, randbytes), known, Removal(ring, places, self._buckets, limits)
        )
        self._journal = journal = Journal(
            ring, membership.slots, places, self._buckets, self._schedule, known, limits
        )
        self.append_soon, self.settle_soon = journal.append_soon, journal.settle_soon
        self.mark_bucket, self.drop = journal.mark_bucket, journal.drop

    @classmethod
    @asynccontextmanager
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
    ) -> AsyncIterator[CassandraStore]:
        """Serve a keyspace, which is made if need be and allowed; `OpenError` says why it can't be.

        A `connection` that is handed in stays open when the store is closed.
        """
        bounds = limits or Limits()
        async with AsyncExitStack() as stack:
            try:
                ring, used = await _connect(address, bounds, connection)
                stack.push_async_callback(_close, ring)
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
                opening = cls.over(
                    ring, bounds, home=home, damaged=damaged, randbytes=randbytes, wall=wall,
                    secret=await migration.secret(),
                )  # fmt: skip
                store = await stack.enter_async_context(opening)
            except StoreError as error:
                raise Unreachable(f"keyspace {address.keyspace}: {error}") from error
            yield store

    @classmethod
    @asynccontextmanager
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
        secret: bytes = b"",
    ) -> AsyncIterator[CassandraStore]:
        """The store on a ring that has the tables. `address` is where people find this process.

        In the end the slots are given back; the ring is left as it is.
        """
        decisions = Decisions(ring, limits.decisions)
        where = socket.gethostname() if address is None else address
        async with join(ring, decisions, limits, where, home, randbytes) as membership:
            membership.secret = secret
            yield cls(ring, membership, decisions, limits, damaged, randbytes, wall)

    def stats(self) -> Stats:
        numbers, membership = self._ring.numbers, self.ownership
        return Stats(
            requests=numbers.requests,
            in_flight=numbers.in_flight,
            waiting=numbers.waiting,
            retries=numbers.retries,
            unknown=numbers.unknown,
            refused=numbers.refused,
            nodes_down=numbers.nodes_down,
            nodes_suspect=numbers.nodes_suspect,
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

    # Writing shards

    async def write_seal(self, shard: ShardKey, seal: Seal) -> None:
        await outcome_of(lambda done: self._journal.seal_soon(shard, seal, done))
        with suppress(StoreError):  # whoever comes next does it
            await self._journal.drop_seals_before(shard, seal.owner)

    async def write_note(self, shard: ShardKey, note: Note) -> None:
        await outcome_of(lambda done: self._journal.note_soon(shard, note, done))

    # Reading shards

    async def outline(self, shard: ShardKey) -> Outline:
        """Read side by side: for an owner everything that counts was there before its claim."""

        async def read_seals() -> list[Seal]:
            found = await read_all(self._ring, Range(SEALS, shard, self._limits.page_rows))
            return [rows.seal_of(row) for row in found]

        async def read_note() -> Note | None:
            found = await read_row(self._ring, NOTES, (slot_of(shard), *shard))
            return None if found is None else rows.note_of(found)

        return Outline(*await together(read_seals, partial(self._buckets.read, shard), read_note))

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


async def _connect(
    address: Address, limits: Limits, connection: Connection | None
) -> tuple[DriverRing, Connection]:
    if connection is not None:
        return DriverRing(connection, limits, owns=False), connection
    made = await trio.to_thread.run_sync(Connection.connect, address, limits)
    return DriverRing(made, limits), made


async def _close(ring: Ring) -> None:
    """Finish what is under way, and let go of the connections."""
    with trio.CancelScope(shield=True):
        await ring.close()
