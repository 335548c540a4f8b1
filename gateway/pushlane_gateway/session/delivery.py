"""Delivery: runs of granted messages as `deliver` frames.

A frame is cut when it has enough bytes, so that it stays below what a client accepts and a slow
socket can be seen to move. Where it is cut is estimated from above: JSON may write a control
character of a header in six bytes, and bytes as base64.

Nearly all messages are a JSON body and nothing else. Their frames are written by hand, as text
around the bodies: in a run of 64 that takes a quarter of the time (what msgspec takes for them is
little; it is the objects that cost).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from msgspec import UNSET, Raw

from pushlane.wire.codec import JSON, Codec
from pushlane.wire.frames import DeadInfo, Deliver, DeliverMessage
from pushlane_dispatcher.port import Message, Run

ENVELOPE = 420
"""Bytes that a message takes besides body, key and headers: field names, ids, receipt, numbers."""
ESCAPED = 6
"""Bytes that JSON may take for one of a string's."""


def deliver_frames(
    codec: Codec,
    sub: int,
    runs: Sequence[Run],
    place: str,
    prefix: str | None,
    lease_ms: int | None,
    most: int,
) -> Sequence[bytes]:
    """`place` is how ids of this shard begin; `prefix` how receipts do, None without receipts."""
    if codec is JSON and prefix is not None and lease_ms is not None:
        text = _written(sub, runs, place, prefix, lease_ms, most)
        if text is not None:
            return (text,)
    return [codec.encode(frame) for frame in _frames(sub, runs, place, prefix, lease_ms, most)]


def _written(
    sub: int, runs: Sequence[Run], place: str, prefix: str, lease_ms: int, most: int
) -> bytes | None:
    """One frame of plain messages; None when they are more than that."""
    texts: list[bytes] = []
    for run in runs:
        published_at, pattern = -1, b""
        for seq, n, message in zip(count(run.seq), count(run.n), run.messages, strict=False):
            if (
                message.is_data
                or message.key is not None
                or message.headers is not None
                or message.dead is not None
            ):
                return None
            if message.published_at != published_at:  # nearly all of a run came together
                published_at = message.published_at
                pattern = _pattern(run, published_at, place, prefix, lease_ms)
            texts.append(pattern % (seq, n, message.body))
    frame = b'{"op":"deliver","sub":%d,"messages":[%b]}' % (sub, b",".join(texts))
    return frame if len(frame) <= most else None


def _pattern(run: Run, published_at: int, place: str, prefix: str, lease_ms: int) -> bytes:
    """A message as text, but for its seq, its receipt's number and its body."""
    place, prefix = place.replace("%", "%%"), prefix.replace("%", "%%")
    return (
        f'{{"id":"{place}{run.lane:x}-%x","attempt":{run.attempt},"published_at":{published_at}'
        f',"receipt":"{prefix}.%d","fence":{run.fence},"lease_ms":{lease_ms},"body":%b}}'
    ).encode()


def _frames(
    sub: int,
    runs: Sequence[Run],
    place: str,
    prefix: str | None,
    lease_ms: int | None,
    most: int,
) -> Iterator[Deliver]:
    messages: list[DeliverMessage] = []
    size = 0
    for run in runs:
        start = f"{place}{run.lane:x}-"
        for i, message in enumerate(run.messages):
            more = size_of(message)
            if messages and size + more > most:
                yield Deliver(sub, messages)
                messages, size = [], 0
            found = message_object(f"{start}{run.seq + i:x}", message, run.attempt)
            if prefix is not None:
                found.receipt = f"{prefix}.{run.n + i}"
                found.fence = run.fence
                found.lease_ms = lease_ms
            messages.append(found)
            size += more
    yield Deliver(sub, messages)


def message_object(id: str, message: Message, attempt: int) -> DeliverMessage:
    """A message as it goes to a client, without receipt, fence and lease."""
    return DeliverMessage(
        id,
        attempt,
        message.published_at,
        UNSET if message.is_data else Raw(message.body),
        message.body if message.is_data else None,
        key=message.key,
        headers=message.headers,
        dead=dead_info(message),
    )


def dead_info(message: Message) -> DeadInfo | None:
    """Why it died; None: it did not."""
    dead = message.dead
    if dead is None:
        return None
    return DeadInfo(dead.cause, dead.queue, dead.id, dead.attempts, dead.dead_at, dead.error)


def size_of(message: Message) -> int:
    """The most bytes that it takes in a frame or an answer."""
    size = len(message.body)
    if message.is_data:
        size = (size + 2) // 3 * 4
    strings = len((message.key or "").encode())
    for name, value in (message.headers or {}).items():
        strings += len(name.encode()) + len(value.encode()) + 1
    if message.dead is not None:
        strings += ENVELOPE + len((message.dead.error or "").encode())
    return size + ENVELOPE + ESCAPED * strings
