"""A message on its way out: made from what the caller gave, checked before it is taken in.

Publishes of independent callers share a frame, and a mistake in form refuses a whole frame. So each
message is checked alone, as the server would, before it can harm others. Bodies are encoded at
the call: what the caller changes afterwards no longer matters.

What would not arrive as it was given is refused: NaN and the infinities, for which JSON has no
form, and bytes in place of a body. So are fields that no message has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, StructMeta

from pushlane.wire.errors import BadRequest, PushlaneError, TooLarge
from pushlane.wire.frames import Publish, PublishMessage
from pushlane.wire.limits import Limits
from pushlane.wire.names import parse_target
from pushlane.wire.validate import check_publish

from .settings import no_option

FRAME_OVERHEAD = 1024
"""More than the op, the id and the name of a frame can take."""
_MESSAGE_OVERHEAD = 256
"""More than the names and numbers of a message can take."""
_WORST_ESCAPE = 6
"""A character can become \\u0000 in JSON."""

_ENCODER = msgspec.json.Encoder()
_NULL = b"null"
"""What msgspec writes for NaN, too."""
_PLAIN = (str, int, Raw)
"""What holds no float."""
_BYTES = (bytes, bytearray, memoryview)
_TEXTS = ("key", "dedup")
_NUMBERS = ("priority", "delay_ms", "ttl_ms", "event_at")


class Fields(Struct, frozen=True, kw_only=True):
    """A message with options, as it was given."""

    body: Any = UNSET
    data: bytes | None = None
    key: str | None = None
    dedup: str | None = None
    priority: int | None = None
    delay_ms: int | None = None
    ttl_ms: int | None = None
    headers: Mapping[str, str] | None = None
    event_at: int | None = None


class _Known(StructMeta):
    """Refuses fields that there aren't, with the nearest name that there is."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        refuse_unknown(fields)
        return super().__call__(*args, **fields)


class Item(Fields, frozen=True, kw_only=True, metaclass=_Known):
    """A message with options, for `publish_many`.

    >>> Item(body={"order": 17}, key="customer-5").key
    'customer-5'
    """


def refuse_unknown(given: Iterable[str]) -> None:
    """Raise BadRequest for an option that no message has."""
    for name in given:
        if name not in Fields.__struct_fields__:
            raise no_option(name, Fields.__struct_fields__)


class Published(Struct, frozen=True, gc=False):
    """What became of one message of `publish_many`: an id, or an error.

    `duplicate`: its dedup id was known, and this is the id of the first one. When the connection
    was lost in between that can't be told from a repeat of ours, and is False. A duplicate without
    an id and without an error is stored, too: an earlier try of ours did that, so long ago that the
    server no longer knows which id it got.
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


def make_message(item: Fields) -> PublishMessage:
    """The message of the wire; raises BadRequest for what can't be written."""
    if item.data is not None and not isinstance(item.data, _BYTES):
        raise BadRequest(f"data is {_kind(item.data)}: bytes are needed")
    if (
        item.key is not None
        or item.headers is not None
        or item.dedup is not None
        or item.priority is not None
        or item.delay_ms is not None
        or item.ttl_ms is not None
        or item.event_at is not None
    ):
        _check_options(item)
    return PublishMessage(
        body=UNSET if item.body is UNSET else _written(item.body),
        data=None if item.data is None else bytes(item.data), key=item.key,
        dedup=item.dedup, priority=item.priority, delay_ms=item.delay_ms, ttl_ms=item.ttl_ms,
        headers=None if item.headers is None else dict(item.headers), event_at=item.event_at,
    )  # fmt: skip


def _written(body: Any) -> Raw:
    if isinstance(body, _BYTES):
        raise BadRequest(f"body is {_kind(body)}: use data= for bytes")
    try:
        text = _ENCODER.encode(body)
        if _NULL in text:
            _check_numbers(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as fault:
        raise BadRequest(f"body can't be written as JSON: {fault}") from fault
    return Raw(text)


def _check_numbers(value: Any) -> None:
    """Raise ValueError for a float that is NaN or infinite, which msgspec writes as null."""
    if value is None or isinstance(value, _PLAIN):
        return
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{value} is not a number in JSON")
    elif isinstance(value, dict):
        for one in value.values():
            _check_numbers(one)
    elif isinstance(value, list | tuple):
        for one in value:
            _check_numbers(one)
    else:  # what is made of these: a struct, a set; or becomes a text, as a date does
        _check_numbers(msgspec.to_builtins(value, str_keys=True, enc_hook=_of_raw))


def _of_raw(_: object) -> None:
    """In place of a Raw inside a struct, the one thing that can be written and is no builtin."""


def _check_options(item: Fields) -> None:
    """Of the right type; the values are checked with the server's limits."""
    for name in _TEXTS:
        value = getattr(item, name)
        if value is not None and not isinstance(value, str):
            raise BadRequest(f"{name} is {_kind(value)}: a string is needed")
    for name in _NUMBERS:
        value = getattr(item, name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise BadRequest(f"{name} is {_kind(value)}: an integer is needed")
    headers: Any = item.headers
    if headers is None:
        return
    if not isinstance(headers, Mapping):
        raise BadRequest(f"headers is {_kind(headers)}: a dict of strings is needed")
    for header, value in headers.items():
        if not isinstance(header, str) or not isinstance(value, str):
            raise BadRequest(f"header {header!r} is {_kind(value)}: names and values are strings")


def _kind(value: object) -> str:
    return type(value).__name__


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
