"""A message as it is stored: what the publisher sent, plus when it came."""

import msgspec


class Dead(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Why a message stands in a dead-letter queue, and where it came from."""

    cause: str
    queue: str
    id: str
    attempts: int
    error: str | None
    dead_at: int


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One stored message. The body is kept as received, never parsed or re-encoded."""

    body: bytes
    published_at: int
    is_data: bool = False
    key: str | None = None
    headers: dict[str, str] | None = None
    dedup: str | None = None
    producer: str | None = None
    producer_seq: int = 0
    not_before: int = 0
    """Wall-clock milliseconds before which it must not be granted; 0 is at once."""
    expires_at: int = 0
    """Wall-clock milliseconds after which it is not granted any more; 0 is never."""
    event_at: int | None = None
    dead: Dead | None = None


MESSAGE_OVERHEAD = 64
"""Bytes that a stored message costs besides its parts: times, lengths, its share of the row."""


def size_of(message: Message) -> int:
    """What a message counts for in byte limits."""
    size = MESSAGE_OVERHEAD + len(message.body)
    if message.key is not None:
        size += len(message.key)
    if message.headers is not None:
        size += sum(len(name) + len(value) for name, value in message.headers.items())
    return size
