"""Buckets in columns, each with a checksum.

There is no going on without one of these: a bucket that calls itself drained would be deleted. So
a damaged one is an error, not a gap.
"""

import zlib
from typing import Any

import msgspec

from pushlane_storage.bucket import Bucket, BucketKey, MarkSummary
from pushlane_storage.sqlite.errors import StoreDamaged

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
