"""The open shards of this process: each is opened when it is needed, and closed when it is idle."""

from __future__ import annotations

import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
    Set,
)
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

import trio

from pushlane.wire.errors import PushlaneError, Unavailable
from pushlane_dispatcher.clock import compare_clocks
from pushlane_dispatcher.context import Context
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.core.places import Claim, Claims, Places
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.snapshot import Snapshot
from pushlane_dispatcher.core.window import NUMBERS
from pushlane_dispatcher.queues.config import own_dead_letter
from pushlane_dispatcher.queues.queues import Elsewhere
from pushlane_dispatcher.queues.transfers import Send
from pushlane_dispatcher.recording.notes import Notes
from pushlane_dispatcher.shard.handed import Handed, pack
from pushlane_dispatcher.shard.lease_guard import LeaseGuard
from pushlane_dispatcher.shard.opening import Opener
from pushlane_dispatcher.shard.repeat import Undecided, until_decided
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_dispatcher.shard.shares import Shares
from pushlane_dispatcher.shard.slots import RELEASE_MS, Last, Slot, Slots
from pushlane_dispatcher.shard.stop import Stop
from pushlane_dispatcher.usage.counters import ShardCounters, Uncounted
from pushlane_dispatcher.usage.writer import UsageWriter
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Fenced, SlotOwned, StoreError
from pushlane_storage.member import Owner
from pushlane_storage.queue import QueueRow
from pushlane_storage.segment import DamagedSegment

log = logging.getLogger(__name__)

HandOver = Callable[[ShardKey, int, Sequence[bytes]], Awaitable[bool]]
"""Gives the snapshot of a shard, taken under an epoch, to whoever is to have it next, in pieces.
Whether it has it."""


class Lateness(NamedTuple):
    """How late shards are."""

    oldest_ms: int | None
    """Since when the oldest message was published that waits in memory; None: none waits."""
    lag_ms: int
    """How long the oldest write has waited for the store. What others read there is so far behind
    what the owner knows."""


class Held:
    """A shard that is opening, open, or closing."""

    def __init__(self, row: QueueRow, number: int, slot: Slot) -> None:
        self.row = row
        self.number = number
        self.key = ShardKey(row.id, number)
        self.slot = slot
        self.claims: Claims | None = None
        """For whom it counts; None: for nobody, it was opened on our own account."""
        self.runner: ShardRunner | None = None
        self.fault: PushlaneError | None = None
        """Why there is none, as far as clients should know."""
        self.opening = trio.CancelScope()
        self.opened = trio.Event()
        """Or could not be: then there is no runner."""
        self.gone = trio.Event()


class Shards:
    def __init__(
        self,
        context: Context,
        nursery: trio.Nursery,
        owner: str,
        send: Callable[[str], Send],
        stopped: Callable[[QueueRow, ShardRunner | None], None],
        confirm: Callable[[QueueRow], Awaitable[QueueRow]],
        usage_writer: UsageWriter,
    ) -> None:
        """`send` makes the way out of a tenant's shards; `stopped` is told of each that ends.

        `confirm` reads a queue's row anew: it may have changed until its slot was ours.
        """
        self._context = context
        self._nursery = nursery
        self._owner = owner
        self._send = send
        self._stopped = stopped
        self._confirm = confirm
        self._usage_writer = usage_writer
        self._held: dict[ShardKey, Held] = {}
        self._shares: dict[str, Shares] = {}
        """By queue id: how those of its shards that are open share its limits."""
        self._places = Places("open_shards", context.settings.open_shards, "open queues")
        self._slots = Slots(context.store.ownership, owner)
        self._openings = trio.Semaphore(context.settings.openings)
        self._closed = False
        self.handed = Handed(context.settings)
        """What others know of shards that are to open here."""
        self.not_handed = 0
        """Shards whose next owner did not get what was out."""
        self.lost_at: int | None = None
        """Monotonic: when a slot was last found to be another process's."""

    def window_numbers(self) -> dict[str, int]:
        """Over all open shards (see `Window.numbers`)."""
        sums = dict.fromkeys(NUMBERS, 0)
        for held in self._held.values():
            if held.runner is not None:
                for name, number in held.runner.window_numbers().items():
                    sums[name] += number
        return sums

    def lateness(self) -> Lateness:
        """Over all open shards."""
        open_here = [held.runner for held in self._held.values() if held.runner is not None]
        oldest_at = [at for runner in open_here if (at := runner.oldest_at) is not None]
        return Lateness(
            max(0, self._context.clock.wall() - min(oldest_at)) if oldest_at else None,
            max((runner.lag_ms for runner in open_here), default=0),
        )

    def wake(self, refused: Set[object]) -> None:
        """Have those look whether they can go on whose windows are named."""
        for held in self._held.values():
            if held.runner is not None and held.runner.running:
                held.runner.wake_if_in(refused)

    def wake_all(self) -> None:
        """Have all look whether they can go on."""
        for held in self._held.values():
            if held.runner is not None and held.runner.running:
                held.runner.wake()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: ShardKey) -> bool:
        """Whether a shard is opening, open, or closing."""
        return key in self._held

    def has_slot(self, key: ShardKey) -> bool:
        """Whether the slot of a shard is ours, and stays so for now."""
        slot = self._slots.of(key)
        return slot.is_ours and not slot.leaving

    def is_leaving(self, key: ShardKey) -> bool:
        """Whether its slot is about to be given up."""
        return self._slots.of(key).leaving

    def slots_since(self) -> dict[int, int]:
        """Our slots, and since when (in milliseconds of trio's time)."""
        return {slot.number: int(slot.since * 1000) for slot in self._slots.ours()}

    def running(self, key: ShardKey) -> ShardRunner | None:
        """A shard that is open here, and serves."""
        held = self._held.get(key)
        if held is None or held.runner is None or not held.runner.running:
            return None
        return held.runner

    @property
    def leaving(self) -> int:
        """Messages on their way to other queues."""
        runners = [held.runner for held in self._held.values() if held.runner is not None]
        return sum(runner.leaving for runner in runners)

    @property
    def clock_suspects(self) -> int:
        """Shards in which nothing ends for its age."""
        runners = (held.runner for held in self._held.values())
        return sum(runner is not None and runner.clock_suspect for runner in runners)

    async def open(self, row: QueueRow, number: int, claims: Claims | None = None) -> ShardRunner:
        """The runner of a shard, opened if need be. Whoever gives up waiting stops nothing.

        It counts for these claims; one that was opened for nobody does so from now on.
        """
        key = ShardKey(row.id, number)
        while True:
            held = self._held.get(key)
            if held is None:
                held = await self._begin(row, number, claims)
            elif held.claims is None and claims is not None:
                await self._make_room(claims)
                self._adopt(held, claims)
            await held.opened.wait()
            if held.runner is None:
                raise held.fault or Unavailable(
                    f"queue {row.name} could not be opened", retry_ms=1_000
                )
            if held.runner.running:
                return held.runner
            await held.gone.wait()

    async def _begin(self, row: QueueRow, number: int, claims: Claims | None) -> Held:
        await self._free_a_place(claims or ())
        if self._closed:
            raise Unavailable("the dispatcher is closing", retry_ms=1_000)
        key = ShardKey(row.id, number)
        if key in self._held:  # somebody else began while we made room
            return self._held[key]
        if self.is_leaving(key):
            raise Unsent(f"queue {row.name} moves to another server", retry_ms=100)
        refusal = self._places.refusal(claims or ())
        if refusal is not None:
            raise refusal
        held = self._held[key] = Held(row, number, self._slots.of(key))
        held.claims = claims
        self._places.take(claims or ())
        self._nursery.start_soon(self._serve, held)
        return held

    def _adopt(self, held: Held, claims: Claims) -> None:
        """A shard that was opened for nobody counts for somebody from now on."""
        if held.claims is not None or held.gone.is_set():
            return
        self._places.give_back(())
        refusal = self._places.refusal(claims)
        self._places.take(claims if refusal is None else ())
        if refusal is not None:
            raise refusal
        held.claims = claims

    async def check_room(self, claims: Claims) -> None:
        """Raise unless these may open one more shard."""
        await self._free_a_place(claims)
        refusal = self._places.refusal(claims)
        if refusal is not None:
            raise refusal

    async def _free_a_place(self, claims: Claims) -> None:
        """What is idle makes room, where there is none."""
        if self._places.is_full:
            await self._close_one()
        await self._make_room(claims)

    async def _make_room(self, claims: Claims) -> None:
        """Who has a share of all open shards closes an idle one of theirs for another."""
        claim = self._places.over(claims)
        if claim is not None:
            await self._close_one(claim)

    async def _serve(self, held: Held) -> None:
        """A shard's whole life here."""
        try:
            with held.slot.using():
                held.runner = await self._open(held)
                if held.runner is not None:
                    self._share(held, held.runner)
                    held.opened.set()
                    await self._run(held, held.runner)
        finally:
            del self._held[held.key]
            self._places.give_back(held.claims or ())
            if held.runner is not None:
                self._unshare(held)
                held.runner.leave_budget()
            held.opened.set()
            held.gone.set()
            self._stopped(held.row, held.runner)

    def _share(self, held: Held, runner: ShardRunner) -> None:
        """It shares the limits of its queue with the other shards that are open here."""
        row = held.row
        shares = self._shares.get(row.id)
        if shares is None:
            most = self._context.bounds.max_limit
            shares = self._shares[row.id] = Shares(row.config, most, row.version)
        elif shares.version < row.version:
            shares.configure(row.config, row.version)
        shares.join(held.number, runner)

    def _unshare(self, held: Held) -> None:
        if self._shares[held.row.id].leave(held.number):
            del self._shares[held.row.id]

    async def _run(self, held: Held, runner: ShardRunner) -> None:
        counters = runner.counters
        if isinstance(counters, ShardCounters):
            self._usage_writer.opened(counters)
        reason = await runner.run()
        if reason is Stop.FENCED:
            self._end_tenure(held.slot)
        if isinstance(counters, ShardCounters):
            await self._usage_writer.closed(counters, in_order=not reason.gives_up)

    # Opening

    async def _open(self, held: Held) -> ShardRunner | None:
        """The runner; None when it could not be had."""
        error: Exception | None = None
        held.opening.deadline = trio.current_time() + self._context.settings.open_ms / 1000
        with held.opening:
            for _ in range(self._context.settings.claims):
                try:
                    runner = await self._try_open(held)
                except Fenced as fault:
                    error = fault
                    self._end_tenure(held.slot)
                except SlotOwned as fault:
                    error, held.fault = fault, Elsewhere(held.row.name, fault.owner)
                    break
                except PushlaneError as fault:
                    error = held.fault = fault
                    break
                except (StoreError, Undecided, DamagedSegment) as fault:
                    error = fault
                    break
                else:
                    if runner is not None:
                        return runner
        log.warning("%s could not be opened: %r", held.key, error or "it took too long")
        return None

    async def _try_open(self, held: Held) -> ShardRunner | None:
        """None: the slot was lost meanwhile."""
        epoch = await held.slot.epoch_for(held.key, partial(self._outlast, held.slot))
        async with self._openings:  # not before: a claim may wait for another process to be judged
            return await self._recover(held, epoch)

    async def _recover(self, held: Held, epoch: int) -> ShardRunner | None:
        context, slot = self._context, held.slot
        await compare_clocks(context.clock, context.store)
        held.row = row = await self._confirm(held.row)

        def spend() -> bool:
            if slot.holds(epoch):
                slot.used(held.key)
                return True
            return False

        dead_letter = own_dead_letter(row.name, row.config)
        snapshot = self.handed.find(held.key, context.clock.wall())
        opener = Opener(context, row, held.number, dead_letter, epoch, spend, snapshot)
        shard = await opener.open()
        if shard is None:
            return None
        runner = None
        try:
            counters: ShardCounters | Uncounted = Uncounted(context.store.usage, row.tenant, shard)
            if opener.standing is not None:
                counters = ShardCounters(
                    context.store.usage, context.store.ownership, row.tenant, shard, opener.standing
                )
                await until_decided(counters.begin, context.settings)
            if slot.holds(epoch):
                runner = self._make_runner(row, shard, counters)
                self.handed.drop(held.key)
        finally:
            if runner is None:  # nobody else would (see `Entry`)
                shard.dispose()
        return runner

    def _make_runner(
        self, row: QueueRow, shard: Shard, counters: ShardCounters | Uncounted
    ) -> ShardRunner:
        context, send = self._context, self._send(row.tenant)
        recorder, notes = context.recorder, None
        if recorder is not None and recorder.follows(row.tenant, row.name):
            notes = Notes(recorder, row.tenant, row.name, shard, context.clock.wall)
            notes.opened(self._owner, alone=not context.store.ownership.shared)
        flush = partial(self._usage_writer.flush_shards, [shard.key])
        return ShardRunner(shard, context, send, counters, flush, notes)

    def _end_tenure(self, slot: Slot) -> None:
        """Another process has the slot, or may have: nothing that is open in it counts."""
        slot.lose()
        self.lost_at = self._context.clock.now()
        for held in self._held.values():
            if held.slot is slot and held.runner is not None:
                held.runner.stop(Stop.FENCED)

    async def _outlast(self, slot: Slot) -> None:
        """Come back when what was open in an older tenure is gone."""
        for held in list(self._held.values()):
            if held.slot is slot and held.runner is not None:
                await held.gone.wait()

    async def catch_up(self, guard: LeaseGuard) -> None:
        """Tell the lease cache what it missed. While it is gone, one shard tries for all."""
        settings = self._context.settings
        behind = 0
        for held in list(self._held.values()):
            if held.runner is not None and held.runner.running and held.runner.catch_up():
                behind += 1
                if guard.broken:
                    return
                if behind % settings.catch_ups == 0:
                    await trio.sleep(settings.cache_ms / 1000)

    async def compare(self) -> None:
        """Step down where another process owns the slot by now, also where nobody writes."""
        for number, epoch in await self._context.store.ownership.lost():
            slot = self._slots.lost(number, epoch)
            if slot is not None:
                self._end_tenure(slot)

    @asynccontextmanager
    async def owning_last(self, row: QueueRow) -> AsyncIterator[Last]:
        """The slots of a queue's last shards are ours meanwhile, of as many as can be."""
        at_once = self._context.settings.openings
        async with self._slots.owning_last(_keys(row), self._outlast, at_once) as last:
            yield last

    async def confirm_slots(self, row: QueueRow, first: int) -> None:
        """`Fenced` unless those from this shard on were ours after this call began."""
        await self._slots.confirm(_keys(row)[first:])

    async def others(self, row: QueueRow) -> set[Owner]:
        """Who else has slots of a queue."""
        return await self._slots.others(_keys(row), self._context.settings.openings)

    def rows(self) -> list[QueueRow]:
        """Of the queues of which something is open: the oldest that one of their shards goes by."""
        rows: dict[str, QueueRow] = {}
        for held in self._held.values():
            row = rows.get(held.row.id, held.row)
            if held.runner is not None and held.row.version <= row.version:
                rows[row.id] = held.row
        return list(rows.values())

    def configure(self, row: QueueRow) -> None:
        """Those shards of a queue that are open have another configuration."""
        for held in self._of(row):
            if held.runner is not None and held.row.version <= row.version:
                held.row = row
                held.runner.configure(row.config, own_dead_letter(row.name, row.config))
        shares = self._shares.get(row.id)
        if shares is not None and shares.version <= row.version:
            shares.configure(row.config, row.version)

    def forget(self, row: QueueRow, first: int) -> None:
        """The shards of a queue from this one on are no more."""
        for key in _keys(row)[first:]:
            self._slots.of(key).forget(key)

    # Closing

    async def close_queue(self, row: QueueRow, reason: Stop) -> None:
        """Close the shards of a queue, and come back when they are gone."""
        await self._close_all(self._of(row), reason)

    def stop_queue(self, row: QueueRow, reason: Stop) -> None:
        """Stop the shards of a queue here and now, but for those that close in good order."""
        for held in self._of(row):
            if held.runner is not None and held.runner.running:
                held.runner.stop(reason)

    def _of(self, row: QueueRow) -> list[Held]:
        return [held for held in self._held.values() if held.key.queue_id == row.id]

    async def close_unused(self, idle_ms: int, at_most: int = 256) -> None:
        """Close queues that nobody used lately, the longest unused first, about so many shards.

        All shards of a queue go together: who uses it next would wait for any that is missing.
        """
        now = self._context.clock.now()
        used = {held: used_at for used_at, held in self._idle()}
        queues: dict[str, list[Held]] = {}
        for held in self._held.values():
            queues.setdefault(held.key.queue_id, []).append(held)
        unused = [
            (used_at, group)
            for group in queues.values()
            if all(held in used for held in group)
            and (used_at := max(used[held] for held in group)) <= now - idle_ms
            and used_at <= now - self._patience(group, idle_ms)
        ]
        unused.sort(key=lambda item: item[0])
        found: list[Held] = []
        for _, group in unused:
            if len(found) < at_most:
                found += group
        await self._close_all(found)

    def _patience(self, group: list[Held], idle_ms: int) -> int:
        """How long a queue stays open that nobody uses.

        Each opening begins new buckets, and the next one reads those of all openings before it that
        are not drained: a slow producer without consumers would read more with every message. So
        each time such a queue stays open for longer, until the producer comes back in time.
        """
        runners = [held.runner for held in group if held.runner is not None]
        openings = max(runner.tenures for runner in runners)
        return min(idle_ms * max(1, openings), max(idle_ms, self._context.bounds.bucket_ms))

    async def _close_one(self, of: Claim | None = None) -> None:
        """Close the shard that was unused for the longest time; `of`: one of theirs."""
        idle = [item for item in self._idle() if of is None or of in (item[1].claims or ())]
        if idle:
            await self._close_all([min(idle, key=lambda item: item[0])[1]])

    async def close_idle_of(self, row: QueueRow) -> None:
        """Close the shards of a queue that nobody uses, and give their slots back."""
        await self._close_all([held for _, held in self._idle() if held.key.queue_id == row.id])
        await self._slots.release_idle(dict.fromkeys(map(self._slots.of, _keys(row))))

    def _idle(self) -> Iterator[tuple[int, Held]]:
        """What nobody uses, and since when.

        Messages that can't leave keep a shard open only where nobody else could have it: the queue
        that they are for may be another server's, and then that one needs this one's slot.
        """
        shared = self._context.store.ownership.shared
        for held in self._held.values():
            runner = held.runner
            if runner is None or not runner.running:
                continue
            if runner.unused if shared else runner.idle:
                yield runner.used_at, held

    async def release_idle(self) -> None:
        await self._slots.release_idle()

    async def give_up(self, numbers: Collection[int], hand_over: HandOver) -> None:
        """Close what is open in these slots, in good order, and give them back: each as soon as it
        is ready, and after the next owner was handed what is out."""
        async with trio.open_nursery() as nursery:
            for slot in self._slots.ours():
                if slot.number in numbers:
                    slot.leaving = True
                    nursery.start_soon(self._give_up, slot, hand_over)

    async def _give_up(self, slot: Slot, hand_over: HandOver) -> None:
        group = [held for held in self._held.values() if held.slot is slot]
        try:
            await self._close_all(group, Stop.MOVED)
            for held in group:
                if held.runner is not None and held.runner.snapshot is not None:
                    await self._hand_over(held.key, held.runner.snapshot, hand_over)
        finally:
            with trio.move_on_after(RELEASE_MS / 1000, shield=True):
                await self._slots.release_idle([slot])
            slot.leaving = False

    async def _hand_over(self, key: ShardKey, snapshot: Snapshot, hand_over: HandOver) -> None:
        """Also to ourselves: should nobody else take the shard, it opens here again."""
        if not snapshot.holders:
            return
        pieces = list(pack(snapshot))
        if sum(map(len, pieces)) > self._context.settings.hand_bytes:
            log.warning("%s: too much is out to be handed over (hand_bytes)", key)
            self.not_handed += 1
            return
        wall = self._context.clock.wall()
        for piece in pieces:
            self.handed.take(key, snapshot.epoch, piece, wall, last=piece is pieces[-1])
        if not await hand_over(key, snapshot.epoch, pieces):
            log.warning("%s: its next owner did not confirm what it was handed over", key)
            self.not_handed += 1

    async def close(self) -> None:
        """Close everything, in good order; nothing opens any more."""
        self._closed = True
        for held in self._held.values():
            held.opening.cancel()
        await self._close_all(list(self._held.values()))

    async def _close_all(self, group: Iterable[Held], reason: Stop = Stop.CLOSED) -> None:
        async def close(held: Held) -> None:
            await held.opened.wait()
            if held.runner is not None:
                await held.runner.close(reason)
            await held.gone.wait()

        async with trio.open_nursery() as nursery:
            for held in group:
                nursery.start_soon(close, held)


def _keys(row: QueueRow) -> list[ShardKey]:
    return [ShardKey(row.id, number) for number in range(row.config.shards)]
