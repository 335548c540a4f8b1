"""Segments into messages: checked, unpacked, and told what became of each.

A segment that is not what was written is left out and reported, as the dispatcher does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pushlane_spark import frames
from pushlane_spark.frames import BUCKET, Batches, batched, rows_of
from pushlane_spark.outcomes import Outcome, outcomes
from pushlane_spark.states import bucket_key, stored_segment
from pushlane_storage.message import Dead, Message, size_of
from pushlane_storage.message_id import make_id
from pushlane_storage.segment import DamagedSegment, Segment

_DAMAGE = frames.struct(first=frames.LONG, count=frames.LONG, reason=frames.TEXT)
DECODED = frames.struct(frames.MESSAGES, damage=_DAMAGE)
"""A row is a message, or a damaged segment: then `damage` is there."""
BATCH = 1_000
LAST_MS = 253_402_300_799_999
"""The end of the year 9999: what lies behind it is no time that Python or Spark can show."""
_SLICED = ("acked", "gone", "voids", "leaving")


def decode(segments: DataFrame, states: DataFrame) -> DataFrame:
    """`DECODED`: what exists of these segments. One of a bucket that has no state is left out."""
    return place(segments, states).mapInArrow(_decode, DECODED)


def place(segments: DataFrame, states: DataFrame) -> DataFrame:
    """What exists of these segments, each with what the state of its bucket says of it."""
    placed = segments.join(states, BUCKET).where(F.col("first") < F.col("bucket_end"))
    return placed.withColumns({name: _slice(name) for name in _SLICED})


def _slice(name: str) -> Column:
    """What a bucket's state says of one segment. It is cut before it goes to Python: a bucket may
    have many segments, and thousands of ranges."""
    low, high = ("low", "high") if name in ("acked", "gone") else ("seq", "seq")
    end = F.col("first") + F.col("count")
    return F.filter(name, lambda found: (found[high] >= F.col("first")) & (found[low] < end))


def _decode(batches: Batches) -> Batches:
    def found() -> Iterator[dict[str, Any]]:
        for row in rows_of(batches):
            yield from _messages(row)

    return batched(found(), DECODED, BATCH)


def _messages(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = {name: row[name] for name in BUCKET}
    try:
        segment = unpack(row)
    except DamagedSegment as error:
        damage = {"first": row["first"], "count": row["count"], "reason": str(error)}
        yield {**place, "damage": damage}
        return
    ends = outcomes(row, segment.first, len(segment.messages))
    shard = row["queue_id"], row["shard"], row["lane"]
    for seq, (message, end) in enumerate(zip(segment.messages, ends, strict=True), segment.first):
        if seq < row["bucket_end"]:
            yield {**place, "id": make_id(*shard, seq), "seq": seq, **_message(message, end)}


def unpack(row: dict[str, Any]) -> Segment:
    """The segment of a row of `SEGMENTS`; `DamagedSegment`."""
    segment = stored_segment(row).unpack_all(bucket_key(row))
    if len(segment.messages) != row["count"]:
        raise DamagedSegment(
            f"segment {segment.first}: {len(segment.messages)} of {row['count']} messages"
        )
    return segment


def _message(message: Message, end: Outcome) -> dict[str, Any]:
    body, data = _content(message)
    return {
        "key": message.key,
        "headers": None if message.headers is None else list(message.headers.items()),
        "body": body,
        "data": data,
        "published_at": time_of(message.published_at),
        "not_before": time_of(max(message.not_before, end.not_before) or None),
        "expires_at": time_of(message.expires_at or None),
        "event_at": time_of(message.event_at),
        "state": end.state,
        "cause": end.cause,
        "attempts": end.attempts,
        "deliveries": end.deliveries,
        "error": end.error,
        "dedup": message.dedup,
        "producer": message.producer,
        "producer_seq": message.producer_seq if message.producer is not None else None,
        "size": size_of(message),
        "dead": None if message.dead is None else _dead(message.dead),
    }


def _content(message: Message) -> tuple[str | None, bytes | None]:
    """Text or bytes. Gateways take no text that is none; what got past them is bytes."""
    try:
        return (None, message.body) if message.is_data else (message.body.decode(), None)
    except UnicodeDecodeError:
        return None, message.body


def _dead(dead: Dead) -> dict[str, Any]:
    found = {name: getattr(dead, name) for name in dead.__struct_fields__}
    return {**found, "dead_at": time_of(dead.dead_at)}


def time_of(ms: int | None) -> int | None:
    """Microseconds, as Arrow has them."""
    return None if ms is None or not 0 <= ms <= LAST_MS else ms * 1_000
