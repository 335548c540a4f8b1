"""The reader: what a shard reads while it serves. It is repeated until the store can answer.

A damaged segment is never delivered. The store leaves it out (and reports it), and the core ends
what is missing as damaged.
"""

from __future__ import annotations

import logging

from pushlane_dispatcher.context import Context
from pushlane_dispatcher.core.effects import Fetch, Page, Schedule
from pushlane_dispatcher.shard.repeat import until_done
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Due
from pushlane_storage.message import Message
from pushlane_storage.segment import Segment

log = logging.getLogger(__name__)


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
