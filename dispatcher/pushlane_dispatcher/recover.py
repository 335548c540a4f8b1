"""Opening a shard: read what its predecessors stored, seal them, ask what is out.

The seal is durable before the shard serves anybody: from then on nothing that a predecessor still
writes exists. The lease cache is asked after it; when it can't answer, what was out is simply
ready again, earlier than need be.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

import trio

from pushlane_dispatcher.core.bounds import CLOCK_TOLERANCE_MS
from pushlane_dispatcher.core.meter import Meter
from pushlane_dispatcher.core.recovered import Recovered, RecoveredLease
from pushlane_dispatcher.core.recovery import recover, remember
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.wanted_marks import wanted_marks
from pushlane_dispatcher.mark_cache import recall
from pushlane_dispatcher.repeat import until_decided
from pushlane_dispatcher.tools import Tools
from pushlane_leases.interface import LeaseRun
from pushlane_storage.bucket import CONTROL, BucketKey, ShardKey
from pushlane_storage.existing import ShardRows, needs_heads, needs_settlements
from pushlane_storage.interface import SharedStore
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueRow
from pushlane_storage.segment import SegmentHead
from pushlane_storage.settlement import Settlement
from pushlane_storage.tally import Tally

log = logging.getLogger(__name__)
K = TypeVar("K")
V = TypeVar("V")


async def take_over(
    tools: Tools,
    row: QueueRow,
    number: int,
    dead_letter: str | None,
    epoch: int,
    rows: ShardRows,
    tally: Tally | None = None,
) -> Shard:
    """The shard, sealed, as its owner with this epoch. From here on the epoch is used.

    Errors of the store and `Undecided` come through.
    """
    key = ShardKey(row.id, number)
    seal, recovered = recover(rows, epoch)
    recovered.tally = tally
    await _read_marks(tools, key, row.config.dedup_window_ms, recovered)
    await until_decided(lambda: tools.store.write_seal(key, seal), tools.settings)
    recovered.leases = await _leases(tools, key, epoch, recovered)
    ahead = recovered.newest_at - tools.clock.wall()
    if ahead > CLOCK_TOLERANCE_MS:
        log.error(
            "%s: its newest message was stored %d s in the future. One of two clocks is wrong: "
            "until then expiry of what is there, retention and drops pause",
            key,
            ahead // 1000,
        )
    shard = Shard(
        key,
        row.name,
        row.config,
        dead_letter,
        epoch,
        recovered,
        tools.clock.now(),
        tools.clock.offset(),
        tools.chance,
        tools.bounds,
        tools.leases is not None,
        Meter() if tools.settings.usage else None,
        row.tenant,
        tools.clock.doubted,
    )
    if isinstance(tools.store, SharedStore) and rows.note is not None and rows.note.due is not None:
        shard.notes.repeat(rows.note)
    return shard


async def read_rows(tools: Tools, key: ShardKey) -> ShardRows:
    """What recovery needs, read after the slot was claimed. Changes nothing."""
    store = tools.store
    seals = await store.seals(key)
    buckets = await store.buckets(key)

    async def heads_of(bucket: BucketKey) -> list[SegmentHead]:
        return await store.heads(key, bucket)

    async def settlements_of(bucket: BucketKey) -> list[Settlement]:
        return await store.settlements(key, bucket)

    wanted = [row.key for row in buckets if needs_heads(row)]
    heads = await read_all(heads_of, wanted, tools.settings.recovery_reads)
    unsettled = [row.key for row in buckets if needs_settlements(row)]
    settlements = await read_all(
        settlements_of, [*unsettled, CONTROL], tools.settings.recovery_reads
    )
    return ShardRows(seals, buckets, heads, settlements, await store.read_note(key))


async def _read_marks(
    tools: Tools, key: ShardKey, dedup_window_ms: int, recovered: Recovered
) -> None:
    """One bucket after the other is taken in, so that all marks are never there at once."""
    wall = 0 if tools.clock.doubted else tools.clock.wall()  # at 0 none is too old
    bounds = tools.bounds
    found = wanted_marks(recovered, dedup_window_ms, wall, bounds.producer_seqs, bounds.dedup_ids)
    wanted = {row.key: row for row in found}

    async def take_in(bucket: BucketKey) -> None:
        heads = None
        if tools.leases is not None and tools.leases.instant is None:
            heads = await recall(tools.leases, key, wanted[bucket])
        if heads is None:
            heads = await tools.store.heads(key, bucket)
        remember(recovered, wanted[bucket], heads)

    await read_all(take_in, wanted, tools.settings.recovery_reads)


async def read_all(
    read: Callable[[K], Awaitable[V]], keys: Iterable[K], at_once: int
) -> dict[K, V]:
    """Read many rows, a few at a time. The first error ends it all, and not in a group."""
    found: dict[K, V] = {}
    faults: list[Exception] = []
    waiting = iter(keys)

    async def work(scope: trio.CancelScope) -> None:
        for key in waiting:
            try:
                found[key] = await read(key)
            except Exception as error:
                faults.append(error)
                scope.cancel()
                return

    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(work, nursery.cancel_scope)
    if faults:
        raise faults[0]
    return found


# What is out


async def _leases(
    tools: Tools, key: ShardKey, epoch: int, recovered: Recovered
) -> list[RecoveredLease]:
    if tools.leases is None:
        return []
    runs = await tools.leases.claim(key, epoch, tools.clock.wall())
    if runs is None:
        log.warning("%s opens without its lease cache: what is out may come again early", key)
        return []
    places = list(_places(runs, recovered))
    wanted: dict[BucketKey, list[int]] = {}
    for _, seq, _, bucket in places:
        wanted.setdefault(bucket, []).append(seq)

    async def bodies_of(bucket: BucketKey) -> dict[int, Message]:
        return await tools.store.messages(key, bucket, wanted[bucket])

    bodies = await read_all(bodies_of, wanted, tools.settings.recovery_reads)
    return [
        lease_of(run, n, seq, message)
        for run, seq, n, bucket in places
        if (message := bodies[bucket].get(seq)) is not None
    ]


def _places(
    runs: Iterable[LeaseRun], recovered: Recovered
) -> Iterator[tuple[LeaseRun, int, int, BucketKey]]:
    """Run, seq, receipt number and bucket of all that counts and that the log has not ended."""
    for run in runs:
        if run.owner != recovered.predecessor:
            continue
        for found in recovered.buckets:
            row = found.row
            low = max(run.seq, row.first)
            high = min(run.seq + run.count, row.first + row.count)
            if row.key.lane == run.lane:
                for seq in range(low, high):
                    if seq not in found.state.settled:
                        yield run, seq, run.n + seq - run.seq, row.key


def lease_of(run: LeaseRun, n: int, seq: int, message: Message) -> RecoveredLease:
    """One grant of a run that the lease cache knew."""
    return RecoveredLease(
        run.prefix,
        n,
        run.session,
        run.lane,
        seq,
        run.fence,
        run.attempts,
        run.deliveries,
        run.started,
        run.lease_ms,
        run.deadline,
        message,
        run.owner,
    )
