"""What a server checks in a frame that types can't say, or that depends on its limits.

Two outcomes, after "Batches" of the protocol. A mistake in *form* (no body, a key with a priority,
a value outside its limit) is the sender's bug and refuses the whole frame: BadRequest, nothing was
stored. A message that is *too large* stands alone: it is returned as Failed and the rest of the
batch goes on. Clients gather publishes of independent callers into one frame, and while a client
can check form by itself, only the server knows the queue's max_message_bytes: one caller's big
message must not fail the others. Size is the bytes of body or data; key and headers have limits
of their own.

A session runs these on every frame, so a plain message (a body and nothing else) must pass in a
fraction of a microsecond: options are looked at only where there are any.

Not here: `to` and `from` (names.parse_target, whose result the router needs anyway), and whether
bodies are JSON (codec.py). The functions for receipts return them parsed: nobody parses twice.
"""

from __future__ import annotations

import re

from msgspec import UNSET

from .body import check_depth
from .errors import BadRequest
from .frames import (
    Ack,
    Credit,
    Extend,
    Failed,
    Hello,
    Nack,
    Publish,
    PublishMessage,
    Start,
    Subscribe,
)
from .limits import DEFAULTS, MAX_INT, Limits
from .receipts import ReceiptRun, parse_all

RESERVED = "pushlane:"
"""Dedup ids and producers that begin like this are the server's own: transfers between queues use
them."""

_SUB = re.compile(r"[1-9][0-9]{0,15}")


def check_hello(frame: Hello, limits: Limits = DEFAULTS) -> dict[int, list[ReceiptRun]]:
    """Check a hello; the receipts it holds, by sub."""
    if frame.token is not None:
        _bytes("token", frame.token, 1, limits.token_bytes, "token_bytes")
    if frame.producer is not None and frame.producer.startswith(RESERVED):
        raise BadRequest(f"producer starts with {RESERVED}, which is reserved")
    if frame.resume is None:
        return {}
    held = frame.resume.held
    _range("resume.held", len(held), 0, limits.subs, "subs")
    _range("resume.held", sum(map(len, held.values())), 0, limits.held, "held")
    return {
        _sub(sub): parse_all(receipts, limits.settle) if receipts else []
        for sub, receipts in held.items()
    }


def check_publish(
    frame: Publish,
    limits: Limits = DEFAULTS,
    max_message_bytes: int | None = None,
    *,
    has_producer: bool = True,
) -> list[Failed]:
    """Check a publish. BadRequest refuses it whole; what is returned failed alone.

    `max_message_bytes` is the queue's; `has_producer` says whether hello named a producer.
    """
    if not 1 <= len(frame.messages) <= limits.batch:
        _range("messages", len(frame.messages), 1, limits.batch, "batch")
    most = limits.message_bytes
    if max_message_bytes is not None:
        most = min(most, max_message_bytes)
    # So few bytes are not too many, and can't be nested too deeply.
    fine = min(most, 2 * limits.body_depth + 1)
    failed: list[Failed] = []
    try:
        for index, message in enumerate(frame.messages):
            body, data = message.body, message.data
            if body is not UNSET and data is None:
                size = len(body)
            elif body is UNSET and data is not None:
                size = len(data)
            else:
                raise BadRequest("give exactly one of body and data")
            if size > fine:
                if size > most:
                    failed.append(Failed(index, "too_large", f"{size} bytes: at most {most}"))
                elif body is not UNSET:
                    check_depth(body, limits.body_depth)
            if (
                message.seq is not None
                or message.key is not None
                or message.dedup is not None
                or message.headers is not None
                or message.priority is not None
                or message.delay_ms is not None
                or message.ttl_ms is not None
                or message.event_at is not None
            ):
                _check_options(message, limits, has_producer)
    except BadRequest as error:
        raise BadRequest(f"messages[{index}]: {error.message}", limit=error.limit) from None
    return failed


def check_subscribe(frame: Subscribe, limits: Limits = DEFAULTS) -> None:
    """Check a subscribe; with ack "none" the credit is ignored, whatever it is."""
    _one_of("ack", frame.ack, ("explicit", "none"))
    _one_of("start", frame.start, ("delivery", "explicit"))
    if frame.ack == "explicit":
        _range("credit", frame.credit, 1, limits.credit, "credit")
    if frame.lease_ms is not None:
        check_lease(frame.lease_ms, limits)


def check_credit(frame: Credit, limits: Limits = DEFAULTS) -> None:
    """Check a credit; 0 is allowed here, and pauses."""
    _range("credit", frame.credit, 0, limits.credit, "credit")


def check_lease(lease_ms: int, limits: Limits = DEFAULTS) -> None:
    """Check how long a lease is to be."""
    least, most = limits.lease_ms_min, limits.lease_ms_max
    if not least <= lease_ms <= most:
        limit = "lease_ms_min" if lease_ms < least else "lease_ms_max"
        raise BadRequest(f"lease_ms is {lease_ms}: {least} to {most}", limit=limit)


def check_receipts(
    frame: Start | Ack | Nack | Extend, limits: Limits = DEFAULTS
) -> list[ReceiptRun]:
    """Check the receipts of a frame (all there is to check in start and ack)."""
    return parse_all(frame.receipts, limits.settle)


def check_nack(frame: Nack, limits: Limits = DEFAULTS) -> list[ReceiptRun]:
    """Check a nack; its receipts."""
    if frame.delay_ms is not None:
        if frame.dead:
            raise BadRequest(
                "delay_ms can't be combined with dead: a dead letter doesn't come again"
            )
        _range("delay_ms", frame.delay_ms, 0, limits.delay_ms_max, "delay_ms_max")
    if frame.error is not None:
        _bytes("error", frame.error, 0, limits.error_bytes, "error_bytes")
    return check_receipts(frame, limits)


def check_extend(frame: Extend, limits: Limits = DEFAULTS) -> list[ReceiptRun]:
    """Check an extend; its receipts."""
    check_lease(frame.lease_ms, limits)
    return check_receipts(frame, limits)


def _check_options(message: PublishMessage, limits: Limits, has_producer: bool) -> None:
    if message.seq is not None:
        _range("seq", message.seq, 1, MAX_INT)
        if not has_producer:
            raise BadRequest("seq needs a producer in hello")
    if message.key is not None:
        _bytes("key", message.key, 1, limits.key_bytes, "key_bytes")
        if message.priority is not None or message.delay_ms is not None:
            raise BadRequest(
                "key can't be combined with priority or delay_ms: they would break its order"
            )
    if message.dedup is not None:
        _bytes("dedup", message.dedup, 1, limits.dedup_bytes, "dedup_bytes")
        if message.dedup.startswith(RESERVED):
            raise BadRequest(f"dedup starts with {RESERVED}, which is reserved")
    if message.headers is not None:
        _headers(message.headers, limits.header_bytes)
    if message.priority is not None:
        _range("priority", message.priority, 0, limits.priority_max, "priority_max")
    if message.delay_ms is not None:
        _range("delay_ms", message.delay_ms, 0, limits.delay_ms_max, "delay_ms_max")
    if message.ttl_ms is not None:
        _range("ttl_ms", message.ttl_ms, 1, limits.ttl_ms_max, "ttl_ms_max")
    if message.event_at is not None:
        _range("event_at", message.event_at, 0, MAX_INT)


def _headers(headers: dict[str, str], most: int) -> None:
    size = 0
    for name, value in headers.items():
        size += len(name.encode()) + len(value.encode())
    if size > most:
        raise BadRequest(f"headers has {size} bytes: at most {most}", limit="header_bytes")


def _bytes(field: str, text: str, least: int, most: int, limit: str) -> None:
    size = len(text.encode())
    if not least <= size <= most:
        reached = limit if size > most else None
        raise BadRequest(f"{field} has {size} bytes: {least} to {most}", limit=reached)


def _range(field: str, value: int, least: int, most: int, limit: str | None = None) -> None:
    if not least <= value <= most:
        reached = limit if value > most else None
        raise BadRequest(f"{field} is {value}: {least} to {most}", limit=reached)


def _one_of(field: str, value: str, values: tuple[str, ...]) -> None:
    if value not in values:
        raise BadRequest(f"{field} is {value!r}: {' or '.join(values)}")


def _sub(text: str) -> int:
    if _SUB.fullmatch(text) is None:
        raise BadRequest(f"resume.held has {text[:32]!a}: a sub is an integer, written as a string")
    return int(text)
