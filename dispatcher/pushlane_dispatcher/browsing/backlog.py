"""The backlog: all messages of a queue that wait to be delivered, page by page.

A cursor says what is left to look at: by shard and lane, from which seq to which. The end is where
the lane ended when the first page was asked for, so whoever goes on reaches it, however many
messages come in meanwhile. It travels to clients and back as an opaque text; nothing is kept here.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import NamedTuple

import msgspec

from pushlane.wire.errors import BadRequest
from pushlane_dispatcher.browsing.view import Lookable, Looking
from pushlane_dispatcher.core.ident import make_id
from pushlane_dispatcher.queues.queues import store_answers
from pushlane_storage.interface import Store
from pushlane_storage.message import Message, size_of

PAGE = 100
"""Messages read at once …"""
READ_BYTES = 4 << 20
"""… and what they may have together, if all are as large as their queue allows."""
LOOKS = 1_000
"""Reads of one shard for one peek: what is delayed, say, is looked at and not shown."""
EVERYTHING = 1 << 62
CURSOR_BYTES = 64 * 1024
"""A cursor is never longer: 256 shards with ten lanes each."""


class Span(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What is left of one lane of one shard."""

    shard: int
    lane: int
    start: int
    end: int
    """The first seq that no longer belongs to it."""


class Cursor(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    queue_id: str
    spans: list[Span]
    """By shard, and the highest lane first."""

    def text(self) -> str | None:
        """None: nothing is left."""
        if not self.spans:
            return None
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(self)).decode().rstrip("=")


class Waiting(NamedTuple):
    """A message that waits to be delivered."""

    shard: int
    lane: int
    seq: int
    attempts: int
    """How often a consumer has started it."""
    message: Message


class Part(NamedTuple):
    """What one shard has of a page."""

    messages: list[Waiting]
    spans: list[Span]
    """From where they were read …"""
    rest: list[Span]
    """… and what is left behind them."""
    size: int = 0
    """Bytes that were read for it."""

    def behind(self, count: int) -> list[Span]:
        """What is left when the first so many were shown."""
        if count == len(self.messages):
            return self.rest
        return _behind(self.spans, self.messages[count - 1]) if count else self.spans


class Page(NamedTuple):
    """Messages in the order in which they would go out."""

    queue_id: str
    messages: list[Waiting]
    parts: dict[int, Part]
    """By shard."""

    def id(self, found: Waiting) -> str:
        return make_id(self.queue_id, found.shard, found.lane, found.seq)

    def after(self, count: int) -> str | None:
        """The cursor behind the first so many; None: nothing is left."""
        shown = Counter(found.shard for found in self.messages[:count])
        left = [span for shard, part in self.parts.items() for span in part.behind(shown[shard])]
        return Cursor(self.queue_id, left).text()


def begin(queue: Lookable, text: str = "") -> Cursor:
    """Where to go on; without a text, at the beginning. BadRequest: that is no cursor of ours."""
    if text:
        return _read(queue, text)
    spans = [
        Span(runner.key.shard, lane, 0, stored)
        for runner in queue.runners
        for lane, stored in runner.lanes
        if runner.stretch(lane, 0) is not None
    ]
    return Cursor(queue.row.id, spans)


async def look(store: Store, queue: Lookable, span: Span) -> list[Waiting]:
    """One read: what waits of a span, perhaps nothing. The span's start moves behind it."""
    runner = queue.runners[span.shard]
    limit = max(1, min(PAGE, READ_BYTES // queue.row.config.max_message_bytes))
    stretch = runner.stretch(span.lane, span.start)
    if stretch is None or stretch.first >= span.end:
        span.start = span.end
        return []
    with store_answers(queue.row.name):
        segments = await store.segments(runner.key, stretch.bucket, stretch.first, limit)
    last = min(stretch.last, span.end - 1)
    read = 0
    found: list[Waiting] = []
    span.start = last + 1  # unless the read ended before: what it lacks is damaged
    for segment in segments:
        read += len(segment.messages)
        found += _in_line(runner, span.lane, segment.first, segment.messages, stretch.first, last)
    if read >= limit:
        span.start = min(span.start, segments[-1].first + len(segments[-1].messages))
    return found


async def peek(
    store: Store, queue: Lookable, limit: int, after: str = "", most_bytes: int = EVERYTHING
) -> Page:
    """The next messages: higher priorities first, then by time.

    It ends when about `most_bytes` were read. Each shard is read for a part of that; when they are
    used up twice over, as by one huge message of each shard, the others have to wait.
    """
    by_shard: dict[int, list[Span]] = {}
    for span in begin(queue, after).spans:
        by_shard.setdefault(span.shard, []).append(span)
    parts: dict[int, Part] = {}
    used = 0
    for shard, spans in by_shard.items():
        if used < 2 * most_bytes:
            parts[shard] = await _part(store, queue, spans, limit, most_bytes // len(by_shard))
            used += parts[shard].size
        else:
            parts[shard] = Part([], spans, spans)
    by_time = merge(
        *(part.messages for part in parts.values()),
        key=lambda one: (-one.lane, one.message.published_at),
    )
    return Page(queue.row.id, list(islice(by_time, limit)), parts)


async def _part(
    store: Store, queue: Lookable, spans: list[Span], limit: int, most_bytes: int = EVERYTHING
) -> Part:
    """Up to `limit` messages of one shard, and about `most_bytes`."""
    found: list[Waiting] = []
    rest = [Span(*msgspec.structs.astuple(span)) for span in spans]
    looks = used = 0
    while rest and len(found) <= limit and looks < LOOKS and (used < most_bytes or not found):
        looks += 1
        more = await look(store, queue, rest[0])
        used += sum(size_of(one.message) for one in more)
        found += more
        if rest[0].start >= rest[0].end:
            rest.pop(0)
    if len(found) > limit:
        return Part(found[:limit], spans, _behind(spans, found[limit - 1]), used)
    return Part(found, spans, rest, used)


def _in_line(
    runner: Looking, lane: int, first: int, messages: list[Message], low: int, high: int
) -> Iterator[Waiting]:
    for seq, message in enumerate(messages, first):
        if low <= seq <= high:
            attempts = runner.in_line(lane, seq, message.not_before)
            if attempts is not None:
                yield Waiting(runner.key.shard, lane, seq, attempts, message)


def _behind(spans: list[Span], last: Waiting) -> list[Span]:
    """What is left of a shard's spans when all up to one message was seen."""
    left: list[Span] = []
    for span in spans:
        if span.lane < last.lane:
            left.append(span)
        elif span.lane == last.lane and last.seq + 1 < span.end:
            left.append(Span(span.shard, span.lane, last.seq + 1, span.end))
    return left


def _read(queue: Lookable, text: str) -> Cursor:
    try:
        if len(text) > CURSOR_BYTES:
            raise ValueError
        data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        cursor = msgspec.msgpack.decode(data, type=Cursor)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise BadRequest("`after` is not a `next` of an earlier answer") from None
    lanes = [{lane for lane, _ in runner.lanes} for runner in queue.runners]
    fits = cursor.queue_id == queue.row.id and all(
        0 <= span.shard < len(lanes) and span.lane in lanes[span.shard] for span in cursor.spans
    )
    if not fits:
        raise BadRequest(
            "`after` is of another queue, or an earlier one of this name: start without it"
        )
    return cursor


async def oldest_at(store: Store, queue: Lookable) -> int | None:
    """When the oldest message was published that is first in a lane, of those that wait."""
    oldest: int | None = None
    for span in begin(queue).spans:  # one after the other: nothing of them is kept
        part = await _part(store, queue, [span], 1)
        for found in part.messages:
            at = found.message.published_at
            oldest = at if oldest is None else min(oldest, at)
    return oldest
