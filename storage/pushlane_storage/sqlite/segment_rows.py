"""Segments as they stand in the tables, and what damage does to them.

A segment is two rows: a small one with its place, its counts and two checksums, and its payload
(dedup marks and body). `head` is a checksum over everything but the body, so that recovery can
trust what it reads without reading bodies; `checksum` is that of `PackedSegment`, over all.
"""

import zlib
from typing import NamedTuple

import msgspec

from pushlane_storage.bucket import BucketKey
from pushlane_storage.message import Message
from pushlane_storage.segment import (
    DamagedSegment,
    DedupMark,
    PackedSegment,
    Segment,
    SegmentHead,
    head_of,
    pack,
    unpack,
)

_bodies = msgspec.msgpack.Decoder(list[Message])
_marks = msgspec.msgpack.Decoder(list[DedupMark])
_Unreadable = (DamagedSegment, msgspec.MsgspecError, TypeError, ValueError)


class StoredSegment(NamedTuple):
    """The columns of both rows. Damage may have left anything in them, also NULL."""

    first: int
    count: int
    size: int
    last_at: int
    format: int
    checksum: int
    head: int
    marks: bytes
    body: bytes

    def unpack(self, bucket: BucketKey) -> Segment:
        """The segment; `DamagedSegment` when it is not what was written."""
        try:
            return unpack(bucket, PackedSegment(*self[:6], self.marks, self.body))
        except _Unreadable as error:
            raise DamagedSegment(f"segment {self.first}: {error}") from error

    def mend_head(self, bucket: BucketKey) -> SegmentHead:
        """The head of a segment whose head is damaged.

        It is made anew from the body, if that fits the checksum over both. Else what is left:
        its place still counts, so that recovery doesn't take the rest of the bucket for lost.
        """
        try:
            segment = Segment(bucket, self.first, _bodies.decode(self.body))
            if pack(segment).checksum == self.checksum:
                return head_of(segment)
        except _Unreadable:
            pass
        numbers = [one if isinstance(one, int) else 0 for one in (self.size, self.last_at)]
        return SegmentHead(self.first, self.count, *numbers, [])


class StoredHead(NamedTuple):
    """The same without body and the checksum over it."""

    first: int
    count: int
    size: int
    last_at: int
    format: int
    head: int
    marks: bytes

    def unpack(self) -> SegmentHead:
        """The head; `DamagedSegment` when it is not what was written."""
        try:
            if self.head != _checksum(*self[:5], self.marks):
                raise DamagedSegment("the checksum of its head mismatches")
            return SegmentHead(*self[:4], _marks.decode(self.marks))
        except _Unreadable as error:
            raise DamagedSegment(f"segment {self.first}: {error}") from error


def _columns(row: type[tuple[object, ...]]) -> str:
    tables = {"marks": "payload", "body": "payload"}
    return ", ".join(f"{tables.get(name, 'segment')}.{name}" for name in row.__annotations__)


SEGMENT_COLUMNS = _columns(StoredSegment)
HEAD_COLUMNS = _columns(StoredHead)


def head_checksum(packed: PackedSegment) -> int:
    """What stands in the column `head`."""
    return _checksum(
        packed.first, packed.count, packed.size, packed.last_at, packed.format, packed.marks
    )


def _checksum(first: int, count: int, size: int, last_at: int, format: int, marks: bytes) -> int:
    numbers = b"%d %d %d %d %d" % (first, count, size, last_at, format)
    return zlib.crc32(marks, zlib.crc32(numbers))
