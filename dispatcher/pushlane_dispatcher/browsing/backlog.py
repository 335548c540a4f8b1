"""The backlog: all messages of a queue that wait to be delivered, page by page.

A cursor says what is left to look at: by shard and lane, from which seq to which. The end is where
the lane ended when the first page was asked for, so whoever goes on reaches it, however many
messages come in meanwhile. It travels to clients and back as an opaque text; nothing is kept here.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from heapq import merge
from itertools import islice
from typing import NamedTuple

import msgspec

from pushlane.wire.errors import BadRequest
from pushlane_dispatcher.browsing.all_shards import Lookable
from pushlane_dispatcher.browsing.question import EVERYTHING, Peek
from pushlane_dispatcher.browsing.span import ANOTHER, Part, Span, Waiting
from pushlane_dispatcher.core.ident import make_id
from pushlane_storage.work import gather

AT_ONCE = 8
"""Shards that are read at once for one peek."""
CURSOR_BYTES = 64 * 1024
"""A cursor is never longer: 256 shards with ten lanes each."""


class Cursor(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    queue_id: str
    spans: list[Span]
    """By shard, and the highest lane first."""

    def text(self) -> str | None:
        """None: nothing is left."""
        if not self.spans:
            return None
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(self)).decode().rstrip("=")


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


async def begin(queue: Lookable, after: str = "") -> Cursor:
    """Where to go on; without a text, at the beginning. BadRequest: that is no cursor of ours."""
    parts = await _parts(queue, after, 0, EVERYTHING)
    return Cursor(queue.row.id, [span for part in parts.values() for span in part.spans])


async def peek(queue: Lookable, limit: int, after: str = "", most_bytes: int = EVERYTHING) -> Page:
    """The next messages: higher priorities first, then by time.

    It ends when about `most_bytes` were read. Each shard is read for a part of that; when they are
    used up twice over, as by one huge message of each shard, the others have to wait.
    """
    parts = await _parts(queue, after, limit, most_bytes)
    by_time = merge(
        *(part.messages for part in parts.values()),
        key=lambda one: (-one.lane, one.message.published_at),
    )
    return Page(queue.row.id, list(islice(by_time, limit)), parts)


async def _parts(queue: Lookable, after: str, limit: int, most_bytes: int) -> dict[int, Part]:
    """By shard, of those where something is left."""
    spans: dict[int, list[Span] | None] = dict.fromkeys(range(len(queue.shards)))
    if after:
        spans = _read(queue, after)
    used = 0

    async def ask(number: int) -> Part:
        nonlocal used
        most = limit if used < 2 * most_bytes else 0
        question = Peek(most, most_bytes // len(spans), spans[number])
        part = await queue.shards[number].ask(question)
        used += part.size
        return part

    found = await gather(ask, spans, AT_ONCE)
    return {number: found[number] for number in spans}


def _read(queue: Lookable, text: str) -> dict[int, list[Span] | None]:
    """What a cursor says is left, by shard."""
    try:
        if len(text) > CURSOR_BYTES:
            raise ValueError
        data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        cursor = msgspec.msgpack.decode(data, type=Cursor)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise BadRequest("`after` is not a `next` of an earlier answer") from None
    spans: dict[int, list[Span]] = {}
    for span in cursor.spans:
        spans.setdefault(span.shard, []).append(span)
    if cursor.queue_id != queue.row.id or any(not 0 <= n < len(queue.shards) for n in spans):
        raise BadRequest(ANOTHER)
    return {**spans}
