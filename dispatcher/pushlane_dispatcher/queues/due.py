"""Opening what is due: messages expire and leave also in queues that nobody uses.

A shard's note in the store says by when somebody must have it open. Every so often the notes of
all slots are read, and what is due is opened here; it does what there is to do, and is closed again
when it was idle for long enough.

A node of a cluster reads the notes of the slots that belong to it. Elsewhere every process reads
all of them: a slot that nobody owns belongs to whoever looks first. That is one read a slot, one
after the other: 256 in a minute, each of them of a few columns of a row per shard.
A slot that another process owns is that one's business. Its notes may say that something is due all
the time, for they are not written again while a shard is open; so one shard is tried, which is
refused, and the others of its slot are left alone until the next look.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from pushlane.wire.errors import PushlaneError
from pushlane_dispatcher.queues.queues import Elsewhere
from pushlane_dispatcher.settings import Settings
from pushlane_storage.interface import StoreError
from pushlane_storage.note import DueShard
from pushlane_storage.ownership import Ownership
from pushlane_storage.slot import SLOTS

log = logging.getLogger(__name__)

Open = Callable[[DueShard], Awaitable[bool]]
"""Open a shard; False: it was open, or is gone."""


class DueShards:
    def __init__(
        self, ownership: Ownership, settings: Settings, wall: Callable[[], int], open_one: Open,
        belongs_here: Callable[[int], bool] = lambda _: True,
    ) -> None:  # fmt: skip
        """`belongs_here`: whether a slot is this process's business."""
        self._belongs_here = belongs_here
        self._ownership = ownership
        self._settings = settings
        self._wall = wall
        self._open = open_one
        self.opened = 0
        """Shards that were opened because of their notes."""

    async def run(self) -> None:
        """A task."""
        while True:
            await trio.sleep(self._settings.due_ms / 1000)
            await self.look()

    async def look(self) -> None:
        """Open all that is due, one after the other: nobody waits for them."""
        for slot in filter(self._belongs_here, range(SLOTS)):
            try:
                found = await self._ownership.due_shards(
                    slot, self._wall() + 1, self._settings.due_shards
                )
            except StoreError as error:
                log.info("what is due can't be read: %s", error)
                return
            await self._see_to(found)

    async def _see_to(self, found: list[DueShard]) -> None:
        """What is due in one slot."""
        for due in found:
            try:
                self.opened += await self._open(due)
            except PushlaneError as error:
                log.info("shard %d of %s is due, and not opened: %s", due.shard, due.queue, error)
                if isinstance(error, Elsewhere):
                    return
