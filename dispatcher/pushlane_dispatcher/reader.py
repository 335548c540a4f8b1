"""The reader: what a shard reads while it serves. It is repeated until the store can answer.

A damaged segment is never delivered. Single messages that can't be read are missing from the
answer, and the core ends them as damaged. A page that can't be read keeps its lane waiting, loudly:
what it holds is not known, so nothing can be decided about it.
"""

from __future__ import annotations

import logging

import trio

from pushlane_dispatcher.core.effects import Fetch, Page, Schedule
from pushlane_dispatcher.repeat import until_done
from pushlane_dispatcher.tools import Tools
from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.interface import Due
from pushlane_storage.message import Message
from pushlane_storage.segment import DamagedSegment, Segment

log = logging.getLogger(__name__)


class Reader:
    def __init__(self, key: ShardKey, tools: Tools) -> None:
        self._key = key
        self._store = tools.store
        self._settings = tools.settings

    async def page(self, page: Page) -> list[Segment]:
        """Segments from the page's start on. None at all: the core will ask again, not at once."""
        try:
            segments = await until_done(
                lambda: self._store.segments(self._key, page.bucket, page.start, page.limit),
                self._settings,
            )
        except DamagedSegment as error:
            log.error("%s %s: %s", self._key, page.bucket, error)
            segments = []
        if not segments:
            log.error("%s %s: can't read from %d on", self._key, page.bucket, page.start)
            await trio.sleep(self._settings.repeat_max_ms / 1000)
        return segments

    async def fetch(self, fetch: Fetch) -> dict[int, Message]:
        """Single messages. When one of them is damaged, the others are read without it."""
        seqs = [entry.seq for entry in fetch.entries]
        try:
            return await self._messages(fetch.bucket, seqs)
        except DamagedSegment:
            found: dict[int, Message] = {}
            for seq in seqs:
                try:
                    found |= await self._messages(fetch.bucket, [seq])
                except DamagedSegment as error:
                    log.error("%s %s: message %d is lost: %s", self._key, fetch.bucket, seq, error)
            return found

    async def _messages(self, bucket: BucketKey, seqs: list[int]) -> dict[int, Message]:
        return await until_done(
            lambda: self._store.messages(self._key, bucket, seqs), self._settings
        )

    async def schedule(self, read: Schedule) -> list[Due]:
        return await until_done(
            lambda: self._store.due(self._key, read.start, read.end, read.limit), self._settings
        )
