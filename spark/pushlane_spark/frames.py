"""The frames that every store is read into: the same columns, whatever the store is.

`BUCKET` is what names a bucket everywhere, and what frames are joined on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pushlane_storage.bucket import Bucket

TEXT, BYTES, FLAG = StringType(), BinaryType(), BooleanType()
INT, LONG, TIME = IntegerType(), LongType(), TimestampType()


def struct(*parts: StructType, **columns: DataType) -> StructType:
    """Columns, after those of other frames."""
    fields = [field for part in parts for field in part.fields]
    return StructType([*fields, *(StructField(name, kind) for name, kind in columns.items())])


SHARD_KEY = struct(queue_id=TEXT, shard=INT)
BUCKET_KEY = struct(SHARD_KEY, lane=INT, epoch=LONG, start=LONG)
SHARD = SHARD_KEY.names
BUCKET = BUCKET_KEY.names

QUEUES = struct(tenant=TEXT, queue=TEXT, queue_id=TEXT, version=LONG, deleting=FLAG, config=TEXT)
BUCKETS = struct(
    struct(BUCKET_KEY, first=LONG, closed=FLAG, drained=FLAG, count=LONG, size=LONG, last_at=LONG),
    struct(ids=LONG, transfers=LONG, numbered=FLAG),
)
_NUMBERS = struct(first=LONG, count=LONG, size=LONG, last_at=LONG, format=LONG)
SEGMENTS = struct(BUCKET_KEY, _NUMBERS, struct(checksum=LONG, head=LONG, marks=BYTES, body=BYTES))
SETTLEMENTS = struct(BUCKET_KEY, owner=LONG, n=LONG, checksum=LONG, body=BYTES)
SEALS = struct(SHARD_KEY, owner=LONG, checksum=LONG, body=BYTES)

_VOID = struct(seq=LONG, attempts=INT, deliveries=INT, not_before=LONG, error=TEXT)
_LEAVING = struct(seq=LONG, cause=TEXT, to=TEXT, attempts=INT, error=TEXT)
STATES = struct(
    BUCKET_KEY,
    bucket_first=LONG,
    bucket_end=LONG,
    closed=FLAG,
    drained=FLAG,
    acked=ArrayType(struct(low=LONG, high=LONG)),
    gone=ArrayType(struct(cause=TEXT, low=LONG, high=LONG)),
    voids=ArrayType(_VOID),
    leaving=ArrayType(_LEAVING),
)
"""What the settlements say of a bucket's messages `bucket_first` to `bucket_end` - 1."""

_DEAD = struct(cause=TEXT, queue=TEXT, id=TEXT, attempts=INT, error=TEXT, dead_at=TIME)
MESSAGES = struct(
    struct(id=TEXT, key=TEXT, headers=MapType(TEXT, TEXT), body=TEXT, data=BYTES),
    struct(published_at=TIME, not_before=TIME, expires_at=TIME, event_at=TIME),
    struct(state=TEXT, cause=TEXT, attempts=INT, deliveries=INT, error=TEXT),
    struct(dedup=TEXT, producer=TEXT, producer_seq=LONG, size=LONG, dead=_DEAD),
    BUCKET_KEY,
    struct(seq=LONG),
)
"""A row per message: docs/spark.md says what is in them."""

DAMAGES = struct(BUCKET_KEY, first=LONG, count=LONG, reason=TEXT)

Batches = Iterable[pa.RecordBatch]


def bucket_numbers(bucket: Bucket) -> dict[str, Any]:
    """What `BUCKETS` says of a bucket besides its place."""
    names = ("first", "closed", "drained", "count", "size", "last_at")
    marks = bucket.marks
    about = {"ids": marks.ids, "transfers": marks.transfers, "numbered": marks.producers != {}}
    return {**{name: getattr(bucket, name) for name in names}, **about}


def batched(rows: Iterable[dict[str, Any]], frame: StructType, most: int) -> Batches:
    """Rows in batches of at most so many."""
    schema = to_arrow_schema(frame)
    found: list[dict[str, Any]] = []
    for row in rows:
        found.append(row)
        if len(found) >= most:
            yield pa.RecordBatch.from_pylist(found, schema=schema)
            found = []
    if found:
        yield pa.RecordBatch.from_pylist(found, schema=schema)


def rows_of(batches: Batches) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()
