"""Reading the backlog of one shard: all its messages that wait to be delivered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from pushlane.wire.errors import BadRequest
from pushlane_dispatcher.browsing.question import EVERYTHING, Peek
from pushlane_dispatcher.browsing.span import ANOTHER, Part, Span, Waiting, behind
from pushlane_dispatcher.core.explain import Explanation, Stats
from pushlane_dispatcher.core.looking import ConsumerInfo, Located, Stretch
from pushlane_dispatcher.queues.queues import store_answers
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Store
from pushlane_storage.message import Message, size_of
from pushlane_storage.queue import QueueConfig

PAGE = 100
"""Messages read at once …"""
READ_BYTES = 4 << 20
"""… and what they may have together, if all are as large as their queue allows."""
LOOKS = 1_000
"""Reads of one shard for one peek: what is delayed, say, is looked at and not shown."""


class Looking(Protocol):
    """What a shard in memory knows, open or a view of one that is not."""

    @property
    def key(self) -> ShardKey: ...

    @property
    def name(self) -> str:
        """Its queue's."""
        ...

    @property
    def config(self) -> QueueConfig: ...

    @property
    def lanes(self) -> list[tuple[int, int]]: ...

    def stretch(self, lane: int, start: int) -> Stretch | None: ...

    def in_line(self, lane: int, seq: int, not_before: int) -> int | None: ...

    def locate(self, lane: int, seq: int) -> Located | None: ...

    def explain(self, lane: int, seq: int, message: Message | None = None) -> Explanation: ...

    def stats(self) -> Stats: ...

    def consumers(self) -> list[ConsumerInfo]: ...


async def read_part(store: Store, shard: Looking, wanted: Peek) -> Part:
    """What one shard has of a page."""
    if wanted.spans is not None:
        check_spans(shard, wanted.spans)
    spans = _all_of(shard) if wanted.spans is None else wanted.spans
    if wanted.limit <= 0:
        return Part([], spans, spans)
    return await _read(store, shard, spans, wanted.limit, wanted.most_bytes)


def check_spans(shard: Looking, spans: list[Span]) -> None:
    """Raise unless these are of lanes that are there."""
    lanes = {lane for lane, _ in shard.lanes}
    if any(span.shard != shard.key.shard or span.lane not in lanes for span in spans):
        raise BadRequest(ANOTHER)


def _all_of(shard: Looking) -> list[Span]:
    """Everything that waits, the highest lane first."""
    return [
        Span(shard.key.shard, lane, 0, stored)
        for lane, stored in shard.lanes
        if shard.stretch(lane, 0) is not None
    ]


async def _read(
    store: Store, shard: Looking, spans: list[Span], limit: int, most_bytes: int
) -> Part:
    """Up to `limit` messages, and about `most_bytes`."""
    found: list[Waiting] = []
    rest = list(spans)
    looks = used = 0
    while rest and len(found) <= limit and looks < LOOKS and (used < most_bytes or not found):
        looks += 1
        more, rest[0] = await look(store, shard, rest[0])
        used += sum(size_of(one.message) for one in more)
        found += more
        if rest[0].over:
            rest.pop(0)
    if len(found) > limit:
        return Part(found[:limit], spans, behind(spans, found[limit - 1]), used)
    return Part(found, spans, rest, used)


async def look(store: Store, shard: Looking, span: Span) -> tuple[list[Waiting], Span]:
    """One read: what waits of a span, perhaps nothing, and what is left of it."""
    limit = max(1, min(PAGE, READ_BYTES // shard.config.max_message_bytes))
    stretch = shard.stretch(span.lane, span.start)
    if stretch is None or stretch.first >= span.end:
        return [], span.after(span.end)
    with store_answers(shard.name):
        segments = await store.segments(shard.key, stretch.bucket, stretch.first, limit)
    last = min(stretch.last, span.end - 1)
    start = last + 1  # unless the read ended before: what it lacks is damaged
    read = 0
    found: list[Waiting] = []
    for segment in segments:
        read += len(segment.messages)
        found += _in_line(shard, span.lane, segment.first, segment.messages, stretch.first, last)
    if read >= limit:
        start = min(start, segments[-1].first + len(segments[-1].messages))
    return found, span.after(start)


def _in_line(
    shard: Looking, lane: int, first: int, messages: list[Message], low: int, high: int
) -> Iterator[Waiting]:
    for seq, message in enumerate(messages, first):
        if low <= seq <= high:
            attempts = shard.in_line(lane, seq, message.not_before)
            if attempts is not None:
                yield Waiting(shard.key.shard, lane, seq, attempts, message)


async def oldest_at(store: Store, shard: Looking) -> int | None:
    """When the oldest message was published that is first in a lane, of those that wait."""
    oldest: int | None = None
    for span in _all_of(shard):  # one after the other: nothing of them is kept
        part = await _read(store, shard, [span], 1, EVERYTHING)
        for found in part.messages:
            at = found.message.published_at
            oldest = at if oldest is None else min(oldest, at)
    return oldest
