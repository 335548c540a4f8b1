"""What a shard asks of the store while it serves: reads, and whether it still has its slot.

A read is repeated until the store can answer. A damaged segment is never delivered: the store
leaves it out (and reports it), and the core ends what is missing as damaged.

An answer that no write proves counts only while whoever gives it owns the shard: an extension, and
the word that a message was stored before, whose queue may have been deleted since, and made again.
A store in which nobody else can take the shard needs no question. Where one can, the owner asks
after it has decided. While it asks, the next ones gather: they share the next question.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pushlane_dispatcher.context import Context
from pushlane_dispatcher.core.effects import Confirm, Fetch, Page, Published, Schedule
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.repeat import until_decided, until_done
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Due
from pushlane_storage.message import Message
from pushlane_storage.ownership import Ownership
from pushlane_storage.segment import Segment

log = logging.getLogger(__name__)
Unstored = Confirm | Published
"""An answer that no write of this owner's proves."""


class Reader:
    def __init__(self, key: ShardKey, context: Context) -> None:
        self._key = key
        self._store = context.store
        self._settings = context.settings

    async def page(self, page: Page) -> list[Segment]:
        """Segments from the page's start on."""
        segments = await until_done(
            lambda: self._store.segments(self._key, page.bucket, page.start, page.limit, page.last),
            self._settings,
        )
        if not segments:
            log.error("%s %s: nothing is left from %d on", self._key, page.bucket, page.start)
        return segments

    async def fetch(self, fetch: Fetch) -> dict[int, Message]:
        """Single messages."""
        seqs = [entry.seq for entry in fetch.entries]
        found = await until_done(
            lambda: self._store.messages(self._key, fetch.bucket, seqs), self._settings
        )
        if len(found) < len(seqs):
            log.error(
                "%s %s: %s messages are lost", self._key, fetch.bucket, len(seqs) - len(found)
            )
        return found

    async def schedule(self, read: Schedule) -> list[Due]:
        return await until_done(
            lambda: self._store.due(self._key, read.start, read.end, read.limit), self._settings
        )


class Confirmer:
    def __init__(self, ownership: Ownership, key: ShardKey, settings: Settings) -> None:
        self._ownership = ownership
        self._key = key
        self._settings = settings
        self._waiting: list[Unstored] = []
        self._busy = False

    def add(self, effect: Unstored) -> bool:
        """Whether `run` must be started now."""
        self._waiting.append(effect)
        starts, self._busy = not self._busy, True
        return starts

    async def run(self, answer: Callable[[Unstored], None]) -> None:
        """Until nothing waits. `Fenced` and `Undecided` come through: nobody is answered then."""
        while self._waiting:
            group, self._waiting = self._waiting, []
            await until_decided(lambda: self._ownership.confirm(self._key), self._settings)
            for effect in group:
                answer(effect)
        self._busy = False
