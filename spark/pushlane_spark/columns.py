"""Where each column of a message comes from.

Messages become columns segment by segment, never a dictionary each: there are millions of them.
Whoever needs few columns pays for few.

What became of each message of a segment (`outcomes`) follows from the part of its bucket's state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from pushlane_spark.frames import BUCKET
from pushlane_storage.message import Dead, Message, size_of
from pushlane_storage.seq import make_id

DEAD = "dead:"
"""How causes begin of what went to the dead letters, or would have."""


class Outcome(NamedTuple):
    state: str = "open"
    """`open`, `leaving`, or how it ended: `acked`, `dead`, `expired`, `dropped`, `purged`, …"""
    cause: str | None = None
    attempts: int = 0
    deliveries: int = 0
    not_before: int = 0
    error: str | None = None


OPEN = Outcome()
ACKED = Outcome("acked")


def outcomes(state: Mapping[str, Any], first: int, count: int) -> list[Outcome]:
    """Of the messages from seq `first` on; `state` has the ranges of `STATES`."""
    found = [OPEN] * count
    for void in state["voids"]:
        numbers = void["attempts"], void["deliveries"], void["not_before"]
        _set(found, first, void["seq"], void["seq"], Outcome("open", None, *numbers, void["error"]))
    for row in state["leaving"]:
        outcome = Outcome("leaving", row["cause"], row["attempts"], error=row["error"])
        _set(found, first, row["seq"], row["seq"], outcome)
    for span in state["acked"]:
        _set(found, first, span["low"], span["high"], ACKED)
    for gone in state["gone"]:
        _set(found, first, gone["low"], gone["high"], _gone(gone["cause"]))
    return found


def _gone(cause: str) -> Outcome:
    if cause.startswith(DEAD):
        return Outcome("dead", cause.removeprefix(DEAD))
    return Outcome(cause)


def _set(found: list[Outcome], first: int, low: int, high: int, outcome: Outcome) -> None:
    start, end = max(low - first, 0), min(high - first + 1, len(found))
    if start < end:
        found[start:end] = [outcome] * (end - start)


LAST_MS = 253_402_300_799_999
"""The end of the year 9999: what lies behind it is no time that Python or Spark can show."""


class Part(NamedTuple):
    """What exists of one segment."""

    place: tuple[Any, ...]
    """Its `BUCKET`."""
    first: int
    messages: list[Message]
    ends: list[Outcome]


def batch_of(parts: Sequence[Part], schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema, of these messages. One that messages don't have is null."""
    count = sum(len(part.messages) for part in parts)
    arrays = [_array(parts, field, count) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(parts: Sequence[Part], field: pa.Field, count: int) -> pa.Array:
    if field.name not in COLUMNS:
        return pa.nulls(count, field.type)
    make = COLUMNS[field.name]
    values: list[Any] = []
    for part in parts:
        values += make(part)
    return pa.array(values, field.type)


def time_of(ms: int | None) -> int | None:
    """Microseconds, as Arrow has them."""
    return None if ms is None or not 0 <= ms <= LAST_MS else ms * 1_000


def _place(index: int) -> Callable[[Part], list[Any]]:
    return lambda part: [part.place[index]] * len(part.messages)


def _ids(part: Part) -> list[str]:
    queue_id, shard, lane, *_ = part.place
    return [make_id(queue_id, shard, lane, seq) for seq in _seqs(part)]


def _seqs(part: Part) -> list[int]:
    return list(range(part.first, part.first + len(part.messages)))


def _body(message: Message) -> str | None:
    """Text. Gateways take no text that is none; what got past them is bytes."""
    try:
        return None if message.is_data else message.body.decode()
    except UnicodeDecodeError:
        return None


def _data(message: Message) -> bytes | None:
    if not message.is_data and (message.body.isascii() or _body(message) is not None):
        return None
    return message.body


def _headers(message: Message) -> list[tuple[str, str]] | None:
    return None if message.headers is None else list(message.headers.items())


def _dead(dead: Dead | None) -> dict[str, Any] | None:
    if dead is None:
        return None
    found = {name: getattr(dead, name) for name in dead.__struct_fields__}
    return {**found, "dead_at": time_of(dead.dead_at)}


def _not_before(part: Part) -> list[int | None]:
    both = zip(part.messages, part.ends, strict=True)
    return [time_of(max(message.not_before, end.not_before) or None) for message, end in both]


COLUMNS: Mapping[str, Callable[[Part], list[Any]]] = {
    "id": _ids,
    "seq": _seqs,
    "key": lambda part: [m.key for m in part.messages],
    "headers": lambda part: [_headers(m) for m in part.messages],
    "body": lambda part: [_body(m) for m in part.messages],
    "data": lambda part: [_data(m) for m in part.messages],
    "published_at": lambda part: [time_of(m.published_at) for m in part.messages],
    "not_before": _not_before,
    "expires_at": lambda part: [time_of(m.expires_at or None) for m in part.messages],
    "event_at": lambda part: [time_of(m.event_at) for m in part.messages],
    "state": lambda part: [end.state for end in part.ends],
    "cause": lambda part: [end.cause for end in part.ends],
    "attempts": lambda part: [end.attempts for end in part.ends],
    "deliveries": lambda part: [end.deliveries for end in part.ends],
    "error": lambda part: [end.error for end in part.ends],
    "dedup": lambda part: [m.dedup for m in part.messages],
    "producer": lambda part: [m.producer for m in part.messages],
    "producer_seq": lambda part: [
        None if m.producer is None else m.producer_seq for m in part.messages
    ],
    "size": lambda part: [size_of(m) for m in part.messages],
    "dead": lambda part: [_dead(m.dead) for m in part.messages],
    **{name: _place(index) for index, name in enumerate(BUCKET)},
}
