"""Segments as they stand in the tables.

A segment is two or three rows: a small one with its place, its counts and two checksums, one
with its body, and one with its dedup marks if it has any.
"""

import msgspec

from pushlane_storage.stored_segment import StoredHead, StoredSegment

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
