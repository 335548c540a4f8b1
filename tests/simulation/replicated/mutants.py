"""Bugs planted in the change of owners: on the models of Cassandra and Redis a rule must catch all.

They are the mistakes that the design rules out: each patch undoes one step of its argument
(docs/cassandra.md, "Change of owner").
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import trio

from pushlane_dispatcher import clock
from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.core import opening as core
from pushlane_dispatcher.core import recovered
from pushlane_dispatcher.core.effects import Append
from pushlane_dispatcher.core.opening import Opening, RecallMarks, Step, Table, read_rows
from pushlane_dispatcher.core.recovered import Recovered, RecoveredLease
from pushlane_dispatcher.core.shard import Setup, Shard
from pushlane_dispatcher.queues.queues import Queues
from pushlane_dispatcher.shard import engine, opening
from pushlane_dispatcher.shard.engine import Engine
from pushlane_dispatcher.shard.lease_guard import LeaseGuard
from pushlane_dispatcher.shard.opening import Opener, carry_out, reading
from pushlane_dispatcher.shard.repeat import never, until_decided
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_dispatcher.shard.shards import Held, Shards
from pushlane_dispatcher.shard.slots import Last, Slots
from pushlane_leases.interface import StaleEpoch
from pushlane_storage.bucket import CONTROL, Bucket, BucketKey, ShardKey
from pushlane_storage.cassandra import stamps
from pushlane_storage.cassandra.buckets import Buckets
from pushlane_storage.cassandra.decisions import Decided, Decisions, Verdict
from pushlane_storage.cassandra.journal import Journal
from pushlane_storage.cassandra.ring import Change, Level, Stage, write_stages
from pushlane_storage.cassandra.segments import Segments
from pushlane_storage.cassandra.tables import SLOTS
from pushlane_storage.cassandra.watch import Watches
from pushlane_storage.interface import (
    Fenced,
    Outcome,
    Store,
    StoreError,
    StoreRefused,
    StoreUnknown,
)
from pushlane_storage.queue import QueueRow
from pushlane_storage.seal import Seal, Seals
from pushlane_storage.segment import DedupMark, marks_of
from tests.simulation.mutants import Planter, anybodys_places
from tests.simulation.replicated.cache import SimulatedLeases

plant = Planter("cassandra")

Patches = list[tuple[Any, str, Any]]
Begin = Callable[[], tuple[list[Any], list[Stage]]]

LOST = ("lost", "ack_before_durable", "confirmed_settle_lost", "grant_after_ack")
"""What a zombie promises and its successor doesn't know of."""
TWICE = ("ended_twice", "grant_after_end", "two_leases", "dedup", "unacked_unknown", "phantom")
"""What two owners do both."""


async def nothing(*_: object) -> None:
    await trio.lowlevel.checkpoint()


@plant(*LOST, *TWICE, seed=1991)
def the_fence_is_asked_before_the_write() -> Patches:
    def hasty(self: Journal, shard: ShardKey, epoch: int, begin: Begin, outcome: Outcome) -> None:
        try:
            claim = self._slots.check(shard, epoch)
            names, stages = begin()
        except StoreError as error:
            trio.lowlevel.current_trio_token().run_sync_soon(outcome, error)
            return

        def durable(error: Exception | None) -> None:
            if error is None:
                self._places.note(names)
            outcome(error)

        def confirmed(error: Exception | None) -> None:
            if error is not None:
                outcome(error)
            else:
                write_stages(self._ring, stages, durable)

        claim.node.fence.confirm_soon(confirmed)

    return [(Journal, "_begin", hasty)]


@plant(*LOST, *TWICE, "key_order", "transfer", seed=120)
def the_seal_says_what_was_there_before_the_claim() -> Patches:
    read: dict[tuple[Any, ShardKey], dict[Step, Any]] = {}
    try_open = Shards._try_open

    async def early(self: Shards, held: Held) -> ShardRunner | None:
        tools = self._context
        table = reading(tools.store, tools.clock, held.key)
        answers = read[tools.store, held.key] = {}

        async def note(step: Step) -> Any:
            answers[step] = await table[type(step)](step)
            return answers[step]

        await carry_out(read_rows(), dict.fromkeys(table, note), tools.settings.recovery_reads)
        return await try_open(self, held)

    def repeating(store: Store, clock: Clock, key: ShardKey) -> Table:
        table, answers = reading(store, clock, key), read.pop((store, key), {})

        async def repeat(step: Step) -> Any:
            return answers[step] if step in answers else await table[type(step)](step)

        return dict.fromkeys(table, repeat)

    return [(Shards, "_try_open", early), (opening, "reading", repeating)]


@plant(*LOST, *TWICE, "transfer", seed=5)
def a_slot_is_claimed_without_a_fence() -> Patches:
    async def trusting(self: Watches, process: str) -> None:
        await trio.lowlevel.checkpoint()

    return [(Watches, "_fence", trusting)]


@plant("audit")
def a_process_is_judged_without_reading_its_row_again() -> Patches:
    is_there = Watches._is_there
    seen: dict[tuple[Watches, str], bool] = {}

    async def once(self: Watches, process: str) -> bool:
        if (self, process) not in seen:
            seen[self, process] = await is_there(self, process)
        return seen[self, process]

    return [(Watches, "_is_there", once)]


@plant(*LOST, *TWICE, "key_order", "transfer", seed=0)
def no_seal_is_written() -> Patches:
    def forgetful(self: Journal, shard: ShardKey, seal: Seal, outcome: Outcome) -> None:
        trio.lowlevel.current_trio_token().run_sync_soon(outcome, None)

    return [(Journal, "seal_soon", forgetful)]


@plant(*LOST, *TWICE, "key_order", "transfer", "stale_settle", seed=9)
def rows_beyond_a_seal_are_folded() -> Patches:
    return [
        (Seals, "counters", lambda self, lane, epoch: None),
        (Seals, "flushes", lambda self, epoch: None),
    ]


@plant(*LOST, *TWICE, "key_order", "dead_cause", "exception", "transfer", seed=583)
def a_time_out_is_taken_for_a_failure() -> Patches:
    async def hasty(
        write: Callable[[], Awaitable[None]],
        settings: Any,
        undo: Callable[[], bool] = never,
        failed: Exception | None = None,
    ) -> bool:
        async def once() -> None:
            try:
                await write()
            except StoreUnknown as error:
                raise StoreRefused(str(error)) from error

        first = StoreRefused(str(failed)) if isinstance(failed, StoreUnknown) else failed
        return await until_decided(once, settings, undo, first)

    return [(engine, "until_decided", hasty)]


@plant(*LOST, "transfer", "phantom", seed=1)
def a_time_out_is_taken_for_a_success() -> Patches:
    async def hopeful(
        write: Callable[[], Awaitable[None]],
        settings: Any,
        undo: Callable[[], bool] = never,
        failed: Exception | None = None,
    ) -> bool:
        if isinstance(failed, StoreUnknown):
            await trio.lowlevel.checkpoint()
            return True
        return await until_decided(write, settings, undo, failed)

    return [(engine, "until_decided", hopeful)]


@plant(*LOST, *TWICE, "fence", "exception", "audit", seed=2051)
def an_unknown_claim_is_not_read_again() -> Patches:
    decide = Decisions._decide

    async def hopeful(self: Decisions, change: Change, verdict: Verdict) -> Decided:
        if change.table is not SLOTS:
            return await decide(self, change, verdict)
        try:
            if await self._ring.change(change):
                return Decided(True, None)
        except StoreUnknown:
            return Decided(True, None)
        return Decided(False, await self._read(change.table, change.key))

    return [(Decisions, "_decide", hopeful)]


@plant("stale_settle", "two_leases", "audit", seed=856)
def an_old_cache_makes_voided_receipts_valid() -> Patches:
    """The cache knows all that ever was out: it is never told what ended."""

    async def untold(*_: object) -> None:
        await trio.lowlevel.checkpoint()

    restore_lease = recovered._restore_lease

    def unvoided(shard: Shard, lease: RecoveredLease, now: int, wall: int) -> None:
        bucket = shard.window.lane(lease.run.lane).bucket_of(lease.seq)
        void = None if bucket is None else bucket.state.voids.pop(lease.seq, None)
        restore_lease(shard, lease, now, wall)
        if bucket is not None and void is not None:
            bucket.state.voids[lease.seq] = void

    return [
        (core, "_places", anybodys_places),
        (recovered, "_restore_lease", unvoided),
        (SimulatedLeases, "release", untold),
    ]


@plant("dedup", "phantom", "lost", "ack_before_durable", "transfer", seed=2876)
def a_dedup_id_in_the_cache_proves_that_it_was_stored() -> Patches:
    """The cache is told of ids before their segment is stored, and then believed."""
    append_soon, read_marks = Engine._append_soon, core._read_marks
    recall_marks, every = Opener._recall_marks, Bucket(CONTROL, 0)
    encode = msgspec.msgpack.encode
    decode = msgspec.msgpack.Decoder(list[tuple[int, DedupMark]]).decode
    names: dict[ShardKey, list[str]] = {}

    def hasty(self: Engine, append: Append) -> None:
        segment, key = append.segment, self.shard.key
        lot = [(segment.bucket.lane, mark) for mark in marks_of(segment.first, segment.messages)]
        name = f"early/{segment.first}"
        if lot:
            names.setdefault(key, []).append(name)
            self._nursery.start_soon(tell, self, name, encode(lot))
        append_soon(self, append)

    async def tell(self: Engine, name: str, lot: bytes) -> None:
        guard = self._context.leases
        assert guard is not None
        with suppress(Fenced):
            await guard.remember(self.shard.key, self.shard.epoch, [(name, lot)], 600_000)

    def trusting(setup: Setup, found: Recovered) -> Opening[None]:
        yield from read_marks(setup, found)
        found.marks += yield RecallMarks(every)

    async def recall(self: Opener, step: RecallMarks) -> Any:
        if step.bucket is not every:
            return await recall_marks(self, step)
        guard, key = self._context.leases, self._setup.key
        assert guard is not None
        lots = await guard.recall(key, names.get(key, []))
        return [mark for lot in lots.values() for mark in decode(lot)]

    return [
        (Engine, "_append_soon", hasty),
        (core, "_read_marks", trusting),
        (Opener, "_recall_marks", recall),
    ]


@plant(*LOST, *TWICE, "audit", seed=57)
def clocks_decide_whose_bucket_wins() -> Patches:
    """A predecessor whose clock is ahead outlives the deletion of its bucket."""

    def by_the_clock(bucket: BucketKey) -> None:
        return None

    return [(stamps, "written", by_the_clock), (stamps, "dropped", by_the_clock)]


@plant("dead_cause", "lost", "ack_before_durable", "exception", "transfer", seed=126)
def an_open_bucket_is_read_without_its_bodies() -> Patches:
    """What was seen counts, but a later read need not see it: only heads were repaired.

    Nor is it looked for on every replica.
    """
    read: Any = Segments._read
    messages: Any = Segments._messages

    async def read_few(self: Segments, *args: Any) -> Any:
        return await read(self, *args[:4], Level.QUORUM, args[5])

    async def few_messages(self: Segments, *args: Any) -> Any:
        return await messages(self, *args[:3], Level.QUORUM, args[4])

    return [
        (Buckets, "is_closed", lambda self, shard, key: True),
        (Segments, "_read", read_few),
        (Segments, "_messages", few_messages),
    ]


@plant("dedup", "lost", "dead_cause", "drain", seed=370)
def a_successor_that_trusts_its_own_clock() -> Patches:
    """Two hours ahead, everything is old: backlogs expire, and repeats are stored again."""

    return [(clock, "_ask", nothing)]


@plant("audit", seed=0)
def a_cache_that_is_ahead_keeps_the_owner_out() -> Patches:
    """It is believed without asking the store. (Only not to overwrite it keeps nobody out: whoever
    the store confirms goes on without the cache.)"""

    async def gullible(self: LeaseGuard, shard: ShardKey, epoch: int, stale: StaleEpoch) -> None:
        await trio.lowlevel.checkpoint()
        raise Fenced(str(stale))

    return [(LeaseGuard, "_overrule", gullible)]


# Queues and slots


@asynccontextmanager
async def careless(self: Shards, row: QueueRow) -> AsyncIterator[Last]:
    """All slots are ours, as far as we care."""
    await trio.lowlevel.checkpoint()
    yield Last(0, "")


@plant("deleted", "lost", "ack_before_durable", seed=51)
def who_deletes_does_not_wait_for_the_owner() -> Patches:
    """Who serves the queue learns of it some day; until then it confirms what is lost."""
    return [(Shards, "owning_last", careless), (Shards, "confirm_slots", nothing)]


@plant("deleted", "lost", "ack_before_durable", seed=35)
def a_deletion_closes_nothing() -> Patches:
    """Whoever serves the queue goes on, here and elsewhere."""

    return [
        (Shards, "owning_last", careless),
        (Shards, "confirm_slots", nothing),
        (Shards, "close_queue", nothing),
        (Shards, "stop_queue", lambda self, row, reason: None),
    ]


@plant("deleted", seed=358, among=lambda world: world.annex and world.unsure and world.sound)
def a_repeat_is_answered_by_whoever_remembers_it() -> Patches:
    """Also by a process that was paused while the queue was deleted, and perhaps made again."""
    return [(Engine, "_published", Engine._answer)]


@plant("deleted", "stalled", "drain", "audit", seed=17)
def rows_are_remembered_for_ever() -> Patches:
    """Also those of queues that were deleted or changed through another process."""
    read = Queues.read

    async def once(self: Queues, tenant: str, name: str) -> QueueRow:
        await trio.lowlevel.checkpoint()
        found = self._rows.get((tenant, name))
        return await read(self, tenant, name) if found is None else found[0]

    return [(Queues, "read", once)]


@plant("audit", "drain", seed=1)
def a_slot_is_never_released() -> Patches:
    """Who was asked for a queue once keeps all others out."""
    return [(Slots, "release_idle", nothing)]
