"""A message as it is stored: what the publisher sent, plus when it came."""

from collections.abc import Iterable

import msgspec

TRANSFER = "pushlane:transfer:"
"""How the dedup id of a message from another queue begins; the rest is its id there. The names
begin like this, too, under which shards number what they send to other queues."""
OWNED = "pushlane:key:"
"""How the names of producers begin that are some API key's; then the key's id, a colon, and the
name that the producer gave itself. So no key's numbers are taken for another's."""


def owned_producer(name: str, owner: str | None) -> str:
    """The name under which a producer of this owner is known."""
    return name if owner is None else f"{OWNED}{owner}:{name}"


def owner_of(producer: str) -> str:
    """Whose producer it is; empty when nobody's in particular."""
    return producer[len(OWNED) :].partition(":")[0] if producer.startswith(OWNED) else ""


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
    """Not what makes it recognisable, if it came from another queue with a number."""
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


def total_size(messages: Iterable[Message]) -> int:
    """`size_of` of all together. Every flush asks for it, and most have a body and no more."""
    size = 0
    for message in messages:
        if message.key is None and message.headers is None:
            size += MESSAGE_OVERHEAD + len(message.body)
        else:
            size += size_of(message)
    return size


def is_transfer(message: Message) -> bool:
    """Whether a message came from another queue."""
    return message.dedup is not None and message.dedup.startswith(TRANSFER)


def dedup_id(message: Message) -> str | None:
    """By which id a message is known when it is published again."""
    dedup = message.dedup
    if dedup is None or message.producer is None or not dedup.startswith(TRANSFER):
        return dedup
    return None
