"""Opening a shard on trio: what `core.opening` wants is asked of the store and the lease cache."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.context import Context
from pushlane_dispatcher.core import opening as steps
from pushlane_dispatcher.core.bounds import CLOCK_TOLERANCE_MS
from pushlane_dispatcher.core.meter import Meter
from pushlane_dispatcher.core.opening import Opening, Table
from pushlane_dispatcher.core.shard import Moment, Setup, Shard
from pushlane_dispatcher.core.snapshot import Snapshot
from pushlane_dispatcher.shard.mark_cache import recall
from pushlane_dispatcher.shard.repeat import until_decided
from pushlane_dispatcher.usage.counters import Standing, read_standing
from pushlane_dispatcher.usage.report import MINUTE_MS
from pushlane_leases.interface import LeaseRun
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Store
from pushlane_storage.queue import QueueRow
from pushlane_storage.segment import SegmentHead
from pushlane_storage.tally import Tally

log = logging.getLogger(__name__)
K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class Opener:
    """Opens a shard for its owner."""

    def __init__(
        self,
        context: Context,
        row: QueueRow,
        number: int,
        dead_letter: str | None,
        epoch: int,
        spend: Callable[[], bool],
        snapshot: Snapshot | None = None,
    ) -> None:
        """`spend`: whether the slot is still ours; then the shard's epoch is used. `snapshot` is
        what an owner before handed over."""
        self._context = context
        self._setup = Setup(
            key=ShardKey(row.id, number),
            name=row.name,
            config=row.config,
            dead_letter=dead_letter,
            epoch=epoch,
            chance=context.chance,
            bounds=context.bounds,
            cached=context.leases is not None,
            meter=Meter() if context.settings.usage else None,
            tenant=row.tenant,
            shared=context.store.ownership.shared,
            snapshot=snapshot,
        )
        self._spend = spend
        self.standing: Standing | None = None
        """Where its usage stood, if that is counted."""

    async def open(self) -> Shard | None:
        """The shard, sealed; None: the slot was lost. Errors of the store, and `Undecided`, come
        through."""
        context, setup = self._context, self._setup
        table = reading(context.store, context.clock, setup.key) | {
            steps.SpendEpoch: self._spend_epoch,
            steps.ReadTally: self._read_tally,
            steps.RecallMarks: self._recall_marks,
            steps.WriteSeal: self._write_seal,
            steps.ClaimLeases: self._claim_leases,
        }
        shard = await carry_out(steps.open_shard(setup), table, context.settings.recovery_reads)
        if shard is not None:
            self._compare_time(shard)
        return shard

    def _compare_time(self, shard: Shard) -> None:
        ahead = shard.newest_at - self._context.clock.wall()
        if ahead > CLOCK_TOLERANCE_MS:
            log.error(
                "%s: its newest message was stored %d s in the future. One of two clocks is wrong: "
                "until then expiry of what is there, retention and drops pause",
                shard.key,
                ahead // 1000,
            )

    async def _spend_epoch(self, _: steps.SpendEpoch) -> bool:
        return self._spend()

    async def _read_tally(self, _: steps.ReadTally) -> Tally | None:
        context, setup = self._context, self._setup
        if not context.settings.usage:
            return None
        minute = context.clock.wall() // MINUTE_MS
        self.standing = await read_standing(
            context.store.usage, setup.tenant, setup.name, setup.key, minute
        )
        return self.standing.tally

    async def _recall_marks(self, step: steps.RecallMarks) -> list[SegmentHead] | None:
        leases = self._context.leases
        if leases is None or leases.instant is not None:
            return None
        return await recall(leases, self._setup.key, step.bucket)

    async def _write_seal(self, step: steps.WriteSeal) -> None:
        store, key = self._context.store, self._setup.key
        await until_decided(lambda: store.write_seal(key, step.seal), self._context.settings)

    async def _claim_leases(self, _: steps.ClaimLeases) -> list[LeaseRun] | None:
        leases, key = self._context.leases, self._setup.key
        if leases is None:
            return None
        runs = await leases.claim(key, self._setup.epoch, self._context.clock.wall())
        if runs is None:
            log.warning("%s opens without its lease cache: what is out may come again early", key)
        return runs


def reading(store: Store, clock: Clock, key: ShardKey) -> Table:
    """The steps that change nothing."""

    async def ask_time(_: steps.AskTime) -> Moment:
        return Moment(clock.now(), clock.offset(), clock.doubted)

    return {
        steps.ReadOutline: lambda _: store.outline(key),
        steps.ReadHeads: lambda step: store.heads(key, step.bucket),
        steps.ReadSettlements: lambda step: store.settlements(key, step.bucket),
        steps.ReadMessages: lambda step: store.messages(key, step.bucket, step.seqs),
        steps.AskTime: ask_time,
    }


async def carry_out(opening: Opening[T], table: Table, at_once: int) -> T:
    """Do what an opening wants, up to so many reads at a time."""

    async def one(part: Opening[None]) -> None:
        await carry_out(part, table, at_once)

    answer = None
    while True:
        try:
            step = opening.send(answer)
        except StopIteration as end:
            found: T = end.value
            return found
        if type(step) is steps.Together:
            answer = None
            await read_all(one, step.openings, at_once)
        else:
            answer = await table[type(step)](step)


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
