"""A message on its way out: made from what the caller gave, checked before it is taken in.

Publishes of independent callers share a frame, and a mistake in form refuses a whole frame. So each
message is checked alone, as the server would, before it can harm others. Bodies are encoded at
the call: what the caller changes afterwards no longer matters.

NaN and the infinities have no JSON form and become null, as in JavaScript.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from pushlane.wire.errors import BadRequest, PushlaneError, TooLarge
from pushlane.wire.frames import Publish, PublishMessage
from pushlane.wire.limits import Limits
from pushlane.wire.names import parse_target
from pushlane.wire.validate import check_publish

FRAME_OVERHEAD = 1024
"""More than the op, the id and the name of a frame can take."""
_MESSAGE_OVERHEAD = 256
"""More than the names and numbers of a message can take."""
_WORST_ESCAPE = 6
"""A character can become \\u0000 in JSON."""

_ENCODER = msgspec.json.Encoder()


class Item(Struct, frozen=True, kw_only=True):
    """A message with options, for `publish_many`.

    >>> Item(body={"order": 17}, key="customer-5").key
    'customer-5'
    """

    body: Any = UNSET
    data: bytes | None = None
    key: str | None = None
    dedup: str | None = None
    priority: int | None = None
    delay_ms: int | None = None
    ttl_ms: int | None = None
    headers: Mapping[str, str] | None = None
    event_at: int | None = None


class Published(Struct, frozen=True, gc=False):
    """What became of one message of `publish_many`: an id, or an error.

    `duplicate`: its dedup id was known, and this is the id of the first one. When the connection
    was lost in between that can't be told from a repeat of ours, and is False.
    """

    id: str | None
    duplicate: bool = False
    error: PushlaneError | None = None


class Publication:
    """One message that waits to be sent or answered."""

    __slots__ = ("called_at", "cost", "failing_since", "failures", "is_over", "message", "repeated",
                 "ticket")  # fmt: skip

    def __init__(self, message: PublishMessage, cost: int, ticket: Any, now: float) -> None:
        self.message = message
        self.cost = cost
        self.ticket = ticket
        self.called_at = now
        self.repeated = False
        self.failing_since: float | None = None
        self.failures = 0
        self.is_over = False


def make_message(item: Item) -> PublishMessage:
    """The message of the wire; raises BadRequest for a body that JSON can't hold."""
    body: Raw | UnsetType = UNSET
    if item.body is not UNSET:
        try:
            body = Raw(_ENCODER.encode(item.body))
        except (ValueError, OverflowError, RecursionError) as fault:  # UnicodeError is a ValueError
            raise BadRequest(f"body can't be written as JSON: {fault}") from fault
    return PublishMessage(
        body=body, data=None if item.data is None else bytes(item.data), key=item.key,
        dedup=item.dedup, priority=item.priority, delay_ms=item.delay_ms, ttl_ms=item.ttl_ms,
        headers=None if item.headers is None else dict(item.headers), event_at=item.event_at,
    )  # fmt: skip


def check_message(queue: str, message: PublishMessage, limits: Limits) -> int:
    """What the message costs at most in a frame; raises BadRequest or TooLarge."""
    parse_target(queue)
    for failed in check_publish(Publish(1, queue, [message]), limits):
        raise TooLarge(failed.message)
    cost = _cost(message)
    if cost + FRAME_OVERHEAD > limits.frame_bytes:
        raise TooLarge(f"{cost} bytes with headers: more than a frame may have")
    return cost


def _cost(message: PublishMessage) -> int:
    """At least the bytes that it takes, in either encoding."""
    cost = _MESSAGE_OVERHEAD
    if message.body is not UNSET:
        cost += len(message.body)
    elif message.data is not None:
        cost += (len(message.data) + 2) // 3 * 4
    if message.key is not None:
        cost += _WORST_ESCAPE * len(message.key)
    if message.dedup is not None:
        cost += _WORST_ESCAPE * len(message.dedup)
    if message.headers is not None:
        texts = [*message.headers, *message.headers.values()]
        cost += sum(_WORST_ESCAPE * len(text) + 4 for text in texts)
    return cost
