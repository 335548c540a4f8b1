"""Slots: what this process owns, and the epochs under which its shards open.

Claiming a slot begins a tenure. A shard uses an epoch once, for its counters start from 0 in each:
so one that opens again takes one more epoch of its slot, and the other shards of the slot go on
under theirs. A tenure ends when another process has the slot, or when it is given back.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import NamedTuple

import trio

from pushlane_dispatcher.shard.opening import read_all
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Fenced, SlotOwned, StoreError
from pushlane_storage.member import Owner
from pushlane_storage.ownership import Ownership
from pushlane_storage.slot import slot_of

log = logging.getLogger(__name__)

RELEASE_MS = 5_000
"""How long giving back slots may hold up whoever needed them for a moment."""


class Last(NamedTuple):
    """Of some shards, those whose slots are ours."""

    first: int
    """From this one on …"""
    other: str
    """… for this process has the slot of the one before it."""


class Slot:
    def __init__(self, number: int, ownership: Ownership, owner: str) -> None:
        self.number = number
        self._ownership = ownership
        self._owner = owner
        self._claiming = trio.Lock()
        self._lowest: int | None = None
        """The first epoch of the tenure; None: it is not ours."""
        self._newest = 0
        self._opened: set[ShardKey] = set()
        """Shards that used an epoch of this tenure."""
        self._users = 0
        """Shards that are open, and others who need it to stay ours."""
        self.since = 0.0
        """Trio's time: since when it is ours."""
        self.leaving = False
        """Another node is to have it: nothing of it opens here any more."""

    @property
    def in_use(self) -> bool:
        return self._users > 0

    @property
    def is_ours(self) -> bool:
        return self._lowest is not None

    def holds(self, epoch: int) -> bool:
        """Whether the tenure lasts in which this epoch was taken."""
        return self._lowest is not None and epoch >= self._lowest

    @contextmanager
    def using(self) -> Iterator[None]:
        """It is not given back meanwhile."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1

    async def epoch_for(self, key: ShardKey, alone: Callable[[], Awaitable[None]]) -> int:
        """An epoch that this shard has not used. `alone` waits for what an older tenure left."""
        async with self._claiming:
            if self._lowest is None:
                await alone()
                await self._claim()
            elif key in self._opened:
                self._newest = await self._ownership.next_epoch(key)
            return self._newest

    async def own(self, alone: Callable[[], Awaitable[None]]) -> None:
        """Come back when it is ours."""
        async with self._claiming:
            if self._lowest is None:
                await alone()
                await self._claim()

    async def _claim(self) -> None:
        self._opened.clear()
        self.leaving = False
        self._lowest = self._newest = await self._ownership.claim(self.number, self._owner)
        self.since = trio.current_time()

    def used(self, key: ShardKey) -> None:
        """The shard's epoch is spent."""
        self._opened.add(key)

    def forget(self, key: ShardKey) -> None:
        """Its queue is no more."""
        self._opened.discard(key)

    def lose(self) -> None:
        """The tenure is over."""
        self._lowest = None
        self.leaving = False

    async def release(self) -> None:
        """Give it back, unless somebody needs it by now."""
        async with self._claiming:
            if self._lowest is not None and not self._users:
                self.lose()  # first: nothing may be begun in a tenure that ends
                await self._ownership.release(self.number)


class Slots:
    """Those that this process has, or had."""

    def __init__(self, ownership: Ownership, owner: str) -> None:
        self._ownership = ownership
        self._owner = owner
        self._slots: dict[int, Slot] = {}

    def of(self, key: ShardKey) -> Slot:
        number = slot_of(key)
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = Slot(number, self._ownership, self._owner)
        return slot

    def ours(self) -> list[Slot]:
        return [slot for slot in self._slots.values() if slot.is_ours and not slot.leaving]

    def lost(self, number: int, epoch: int) -> Slot | None:
        """The slot that was lost with this epoch; None: that is known, or it is ours again."""
        slot = self._slots.get(number)
        if slot is None or not slot.is_ours or slot._newest > epoch:
            return None
        return slot

    @asynccontextmanager
    async def owning_last(
        self, keys: Sequence[ShardKey], alone: Callable[[Slot], Awaitable[None]], at_once: int
    ) -> AsyncIterator[Last]:
        """The slots of as many of the last shards as nobody else has are ours, and stay so; those
        that nobody uses go back then.

        Nothing is claimed before the last one is ours: others may be about to serve there. Where
        nobody else could have any there is nothing to do.
        """
        if not self._ownership.shared:
            yield Last(0, "")
            return
        slots = list(dict.fromkeys(map(self.of, reversed(keys))))  # the same in every run
        others: dict[Slot, str] = {}

        async def own(slot: Slot) -> None:
            try:
                await slot.own(partial(alone, slot))
            except SlotOwned as error:
                others[slot] = error.owner.name

        try:
            with ExitStack() as stack:
                for slot in slots:
                    stack.enter_context(slot.using())
                await own(slots[0])
                if not others:
                    await read_all(own, slots[1:], at_once)
                first = len(keys)
                while first and self.of(keys[first - 1]) not in others:
                    first -= 1
                yield Last(first, others[self.of(keys[first - 1])] if first else "")
        finally:
            with trio.move_on_after(RELEASE_MS / 1000, shield=True):
                await self.release_idle(slots)

    async def others(self, keys: Iterable[ShardKey], at_once: int) -> set[Owner]:
        """Who else has slots of these shards, alive or not."""
        if not self._ownership.shared:
            return set()
        numbers = [slot.number for slot in dict.fromkeys(map(self.of, keys)) if not slot.is_ours]
        found = await read_all(self._ownership.owner_of, numbers, at_once)
        mine = self._ownership.process
        return {owner for owner in found.values() if owner is not None and owner.process != mine}

    async def confirm(self, keys: Iterable[ShardKey]) -> None:
        """`Fenced` unless the slots of these shards were ours after this call began."""
        if self._ownership.shared:
            for slot, key in {self.of(key): key for key in keys}.items():
                await self._ownership.confirm(key)
                if not slot.is_ours:
                    raise Fenced(f"slot {slot.number} is not ours any more")

    async def release_idle(self, slots: Iterable[Slot] | None = None) -> None:
        """Give back what no shard needs, where others may want it."""
        if not self._ownership.shared:
            return
        for slot in list(self._slots.values() if slots is None else slots):
            if slot.is_ours and not slot.in_use:
                try:
                    await slot.release()
                except StoreError as error:  # the store tries again
                    log.info("slot %d could not be given back: %s", slot.number, error)
