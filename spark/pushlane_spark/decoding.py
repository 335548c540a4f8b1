"""Segments into messages: checked, unpacked, and told what became of each.

A segment that is not what was written is left out and reported, as the dispatcher does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pushlane_spark import frames
from pushlane_spark.columns import Part, batch_of, outcomes
from pushlane_spark.frames import BUCKET, Batches, rows_of
from pushlane_spark.states import bucket_key, stored_segment
from pushlane_storage.segment import DamagedSegment, Segment

_DAMAGE = frames.struct(first=frames.LONG, count=frames.LONG, reason=frames.TEXT)
DECODED = frames.struct(frames.MESSAGES, damage=_DAMAGE)
"""A row is a message, or a damaged segment: then `damage` is there."""
BATCH = 4_000
BATCH_BYTES = 8 << 20
"""Messages go back to Spark when there are so many, or so many bytes, and a segment ends."""
_SLICED = ("acked", "gone", "voids", "leaving")


def decode(
    segments: DataFrame, states: DataFrame, columns: Sequence[str] | None = None
) -> DataFrame:
    """`DECODED`: what exists of these segments. One of a bucket that has no state is left out.

    `columns` of `MESSAGES`, when not all are needed: the others are not made. `BUCKET` and `damage`
    are always there.
    """
    frame = _only(columns)
    return place(segments, states).mapInArrow(partial(_decode, frame=frame), frame)


def place(segments: DataFrame, states: DataFrame) -> DataFrame:
    """What exists of these segments, each with what the state of its bucket says of it."""
    placed = segments.join(states, BUCKET).where(F.col("first") < F.col("bucket_end"))
    return placed.withColumns({name: _slice(name) for name in _SLICED})


def _only(columns: Sequence[str] | None) -> StructType:
    if columns is None:
        return DECODED
    wanted = {*columns, *BUCKET, "damage"}
    assert wanted <= set(DECODED.names), f"no columns: {wanted - set(DECODED.names)}"
    return StructType([field for field in DECODED if field.name in wanted])


def _slice(name: str) -> Column:
    """What a bucket's state says of one segment. It is cut before it goes to Python: a bucket may
    have many segments, and thousands of ranges."""
    low, high = ("low", "high") if name in ("acked", "gone") else ("seq", "seq")
    end = F.col("first") + F.col("count")
    return F.filter(name, lambda found: (found[high] >= F.col("first")) & (found[low] < end))


def _decode(batches: Batches, frame: StructType) -> Batches:
    schema = to_arrow_schema(frame)
    parts: list[Part] = []
    count = size = 0
    for row in rows_of(batches):
        try:
            part = _part(row)
        except DamagedSegment as error:
            yield _damage(row, error, schema)
            continue
        parts.append(part)
        count += len(part.messages)
        size += row["size"]
        if count >= BATCH or size >= BATCH_BYTES:
            yield batch_of(parts, schema)
            parts, count, size = [], 0, 0
    if parts:
        yield batch_of(parts, schema)


def _part(row: dict[str, Any]) -> Part:
    segment = unpack(row)
    messages = segment.messages[: row["bucket_end"] - segment.first]
    ends = outcomes(row, segment.first, len(messages))
    return Part(tuple(row[name] for name in BUCKET), segment.first, messages, ends)


def unpack(row: dict[str, Any]) -> Segment:
    """The segment of a row of `SEGMENTS`; `DamagedSegment`."""
    segment = stored_segment(row).unpack_all(bucket_key(row))
    if len(segment.messages) != row["count"]:
        raise DamagedSegment(
            f"segment {segment.first}: {len(segment.messages)} of {row['count']} messages"
        )
    return segment


def _damage(row: dict[str, Any], error: DamagedSegment, schema: pa.Schema) -> pa.RecordBatch:
    place = {name: row[name] for name in BUCKET}
    damage = {"first": row["first"], "count": row["count"], "reason": str(error)}
    return pa.RecordBatch.from_pylist([{**place, "damage": damage}], schema=schema)
