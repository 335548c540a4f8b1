"""The open shards of this process, and the slots that it claimed for them.

An epoch belongs to a slot, and a shard uses an epoch once: its counters start from 0 in each. So a
shard that stopped and opens again needs a new epoch, and with it every other shard of its slot.
That is why idle shards are closed by whole slots, and why the rest of a slot is closed in good
order before it is claimed anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import trio

from pushlane.wire.errors import Throttled, Unavailable
from pushlane_dispatcher.clerk import MINUTE_MS, Clerk
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.lease_guard import LeaseGuard
from pushlane_dispatcher.ledger import Ledger, Unkept, read_standing
from pushlane_dispatcher.recording.notes import Notes
from pushlane_dispatcher.recording.runner import RecordedRunner
from pushlane_dispatcher.recover import read_rows, take_over
from pushlane_dispatcher.repeat import Undecided, until_decided
from pushlane_dispatcher.shard_runner import ShardRunner
from pushlane_dispatcher.stop import Stop
from pushlane_dispatcher.tools import Tools
from pushlane_dispatcher.transfers import Send
from pushlane_leases.interface import StaleEpoch
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Fenced, SharedStore, StoreError
from pushlane_storage.queue import QueueRow
from pushlane_storage.segment import DamagedSegment
from pushlane_storage.slot import slot_of

log = logging.getLogger(__name__)


class Slot:
    def __init__(self, number: int) -> None:
        self.number = number
        self.claiming = trio.Lock()
        self.epoch: int | None = None
        self.used: set[ShardKey] = set()
        """Shards that have written under this epoch."""


class Held:
    """A shard that is opening, open, or closing."""

    def __init__(self, row: QueueRow, number: int, dead_letter: str | None, slot: Slot) -> None:
        self.row = row
        self.number = number
        self.key = ShardKey(row.id, number)
        self.dead_letter = dead_letter
        self.slot = slot
        self.runner: ShardRunner | None = None
        self.opening = trio.CancelScope()
        self.opened = trio.Event()
        """Or could not be: then there is no runner."""
        self.gone = trio.Event()


class Shards:
    def __init__(
        self,
        tools: Tools,
        nursery: trio.Nursery,
        owner: str,
        send: Callable[[str], Send],
        stopped: Callable[[QueueRow], None],
        clerk: Clerk,
    ) -> None:
        """`send` makes the way out of a tenant's shards; `stopped` is told of each that ends."""
        self._tools = tools
        self._nursery = nursery
        self._owner = owner
        self._send = send
        self._stopped = stopped
        self._clerk = clerk
        self._held: dict[ShardKey, Held] = {}
        self._slots: dict[int, Slot] = {}
        self._openings = trio.Semaphore(tools.settings.openings)
        self._closed = False

    def __len__(self) -> int:
        return len(self._held)

    async def open(self, row: QueueRow, number: int, dead_letter: str | None) -> ShardRunner:
        """The runner of a shard, opened if need be. Whoever gives up waiting stops nothing."""
        key = ShardKey(row.id, number)
        while True:
            held = self._held.get(key)
            if held is None:
                held = await self._begin(row, number, dead_letter)
            await held.opened.wait()
            if held.runner is None:
                raise Unavailable(f"queue {row.name} could not be opened", retry_ms=1_000)
            if held.runner.running:
                return held.runner
            await held.gone.wait()

    async def _begin(self, row: QueueRow, number: int, dead_letter: str | None) -> Held:
        if len(self._held) >= self._tools.settings.open_shards:
            await self.close_idle(0, at_most=1)
        if self._closed:
            raise Unavailable("the dispatcher is closing", retry_ms=1_000)
        key = ShardKey(row.id, number)
        if key in self._held:  # somebody else began while we made room
            return self._held[key]
        if len(self._held) >= self._tools.settings.open_shards:
            raise Throttled("too many queues are in use", retry_ms=1_000, limit="open_shards")
        slot_number = slot_of(key)
        slot = self._slots.setdefault(slot_number, Slot(slot_number))
        held = self._held[key] = Held(row, number, dead_letter, slot)
        self._nursery.start_soon(self._serve, held)
        return held

    async def _serve(self, held: Held) -> None:
        """A shard's whole life here."""
        try:
            held.runner = await self._open(held)
            if held.runner is not None:
                held.opened.set()
                await self._run(held, held.runner)
        finally:
            del self._held[held.key]
            held.opened.set()
            held.gone.set()
            self._stopped(held.row)

    async def _run(self, held: Held, runner: ShardRunner) -> None:
        ledger = runner.ledger
        if isinstance(ledger, Ledger):
            self._clerk.opened(ledger)
        reason = await runner.run()
        if reason.gives_up:
            held.slot.epoch = None
        if isinstance(ledger, Ledger):
            await self._clerk.closed(ledger, in_order=not reason.gives_up)

    # Opening

    async def _open(self, held: Held) -> ShardRunner | None:
        """The runner; None when it could not be had."""
        error: Exception | None = None
        held.opening.deadline = trio.current_time() + self._tools.settings.open_ms / 1000
        with held.opening:
            async with self._openings:
                for _ in range(self._tools.settings.claims):
                    try:
                        runner = await self._try_open(held)
                    except (Fenced, StaleEpoch) as fault:
                        error = fault
                        held.slot.epoch = None
                    except (StoreError, Undecided, DamagedSegment) as fault:
                        error = fault
                        break
                    else:
                        if runner is not None:
                            return runner
        log.warning("%s could not be opened: %r", held.key, error or "it took too long")
        return None

    async def _try_open(self, held: Held) -> ShardRunner | None:
        """None: the slot was claimed anew meanwhile."""
        tools, slot, row = self._tools, held.slot, held.row
        epoch = await self._claim(slot, held.key)
        rows = await read_rows(tools, held.key)
        if slot.epoch != epoch:
            return None
        slot.used.add(held.key)
        standing = None
        if tools.settings.usage:
            minute = tools.clock.wall() // MINUTE_MS
            standing = await read_standing(tools.store, row.tenant, row.name, held.key, minute)
        tally = None if standing is None else standing.tally
        shard = await take_over(tools, row, held.number, held.dead_letter, epoch, rows, tally)
        ledger: Ledger | Unkept = Unkept(tools.store, row.tenant, shard)
        if standing is not None:
            ledger = Ledger(tools.store, row.tenant, shard, standing)
            await until_decided(ledger.begin, tools.settings)
        if slot.epoch != epoch:
            return None
        return self._make_runner(row, shard, ledger)

    def _make_runner(self, row: QueueRow, shard: Shard, ledger: Ledger | Unkept) -> ShardRunner:
        tools, send = self._tools, self._send(row.tenant)
        recorder = tools.recorder
        if recorder is None or not recorder.follows(row.tenant, row.name):
            return ShardRunner(shard, tools, send, ledger)
        notes = Notes(recorder, row.tenant, row.name, shard, tools.clock.wall)
        notes.opened(self._owner, alone=not isinstance(tools.store, SharedStore))
        return RecordedRunner(shard, tools, send, ledger, notes)

    async def _claim(self, slot: Slot, key: ShardKey) -> int:
        """An epoch that this shard has not used."""
        async with slot.claiming:
            if slot.epoch is None or key in slot.used:
                slot.epoch = None
                others = [held for held in self._held.values() if held.slot is slot]
                await self._close_all([held for held in others if held.runner is not None])
                slot.used.clear()
                slot.epoch = await self._tools.store.claim(slot.number, self._owner)
            return slot.epoch

    async def catch_up(self, guard: LeaseGuard) -> None:
        """Tell the lease cache what it missed. While it is gone, one shard tries for all."""
        settings = self._tools.settings
        behind = 0
        for held in list(self._held.values()):
            if held.runner is not None and held.runner.running and held.runner.catch_up():
                behind += 1
                if guard.broken:
                    return
                if behind % settings.catch_ups == 0:
                    await trio.sleep(settings.cache_ms / 1000)

    async def compare(self, store: SharedStore) -> None:
        """Step down where another process owns the slot by now, also where nobody writes."""
        for number, epoch in await store.lost_slots():
            slot = self._slots.get(number)
            if slot is None or slot.epoch != epoch:
                continue
            slot.epoch = None
            for held in self._held.values():
                if held.slot is slot and held.runner is not None:
                    held.runner.step_down()

    # Closing

    async def close_queue(self, row: QueueRow, reason: Stop) -> None:
        """Close the shards of a queue, and come back when they are gone."""
        shards = [held for held in self._held.values() if held.key.queue_id == row.id]
        await self._close_all(shards, reason)

    async def close_idle(self, idle_ms: int, at_most: int = 256) -> None:
        """Close slots none of whose shards was used lately, the longest unused first."""
        slots: dict[Slot, list[Held]] = {}
        for held in self._held.values():
            slots.setdefault(held.slot, []).append(held)
        horizon = self._tools.clock.now() - idle_ms
        idle = [
            (used_at, slot.number, group)
            for slot, group in slots.items()
            if (used_at := _used_at(group)) is not None and used_at <= horizon
        ]
        for _, _, group in sorted(idle, key=lambda item: item[:2])[:at_most]:
            await self._close_all(group)

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


def _used_at(group: list[Held]) -> int | None:
    """When a slot's shards were last used; None when one of them is busy."""
    times = []
    for held in group:
        if held.runner is None or not held.runner.running or not held.runner.idle:
            return None
        times.append(held.runner.used_at)
    return max(times)
