"""Buckets and segments in columns.

A bucket is a row with a checksum. There is no going on without one of these: a bucket that calls
itself drained would be deleted. So a damaged one is an error, not a gap.

A segment is two or three rows: a small one with its place, its counts and two checksums, one
with its body, and one with its dedup marks if it has any.
"""

import zlib
from typing import Any

import msgspec

from pushlane_storage.bucket import Bucket, BucketKey, MarkSummary
from pushlane_storage.interface import StoreDamaged
from pushlane_storage.segment import StoredHead, StoredSegment

_encode = msgspec.msgpack.Encoder().encode
_summary = msgspec.msgpack.Decoder(MarkSummary)

BUCKET_COLUMNS = (
    "lane, epoch, start, first, closed, drained, count, size, last_at, checksum,"
    " CAST(marks AS BLOB)"
)


def bucket_values(row: Bucket) -> tuple[int, bool, bool, int, int, int, int, bytes]:
    """The columns of a row from `first` on."""
    marks = _encode(row.marks)
    values = (row.first, row.closed, row.drained, row.count, row.size, row.last_at)
    return *values, _bucket_checksum(row.key, values, marks), marks


def _bucket_checksum(key: BucketKey, values: tuple[int, ...], marks: bytes) -> int:
    return zlib.crc32(marks, zlib.crc32(repr((*key, *map(int, values))).encode()))


def bucket_of(columns: tuple[Any, ...]) -> Bucket:
    lane, epoch, start, first, closed, drained, count, size, last_at, checksum, marks = columns
    key = BucketKey(lane, epoch, start)
    try:
        values = (first, closed, drained, count, size, last_at)
        if _bucket_checksum(key, values, marks) == checksum:
            summary = _summary.decode(marks)
            return Bucket(key, first, closed == 1, drained == 1, count, size, last_at, summary)
    except (msgspec.MsgspecError, TypeError, ValueError):
        pass
    raise StoreDamaged(f"the row of {key} is damaged")


NO_MARKS = msgspec.msgpack.encode([])
"""The marks of a segment that has none: they are not stored."""


def _columns(row: type[msgspec.Struct]) -> str:
    # A flipped bit may make a text of a blob, which can't be read as one.
    blobs = {
        "marks": f"CAST(coalesce(mark.marks, x'{NO_MARKS.hex()}') AS BLOB)",
        "body": "CAST(payload.body AS BLOB)",
    }
    return ", ".join(blobs.get(name, f"segment.{name}") for name in row.__struct_fields__)


_MARKS = "segment LEFT JOIN mark ON mark.payload = segment.payload"
SELECT_HEADS = f"SELECT {_columns(StoredHead)} FROM {_MARKS}"
SELECT_SEGMENTS = (
    f"SELECT {_columns(StoredSegment)} FROM {_MARKS}"
    " LEFT JOIN payload ON payload.id = segment.payload"
)
