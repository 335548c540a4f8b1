"""Segments as they are read back from any store, and what damage does to them.

`head` is a checksum over everything but the body, so that recovery can trust what it reads without
reading bodies; `checksum` is that of `PackedSegment`, over all.
"""

import zlib

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


class StoredHead(msgspec.Struct, frozen=True):
    """A segment without its body. Damage may have left anything in the columns, also NULL."""

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
            if self.head != head_checksum(self):
                raise DamagedSegment(f"segment {self.first}: head checksum mismatch")
            marks = _marks.decode(self.marks)
        except _Unreadable as error:
            raise _damaged(self.first, error) from error
        return SegmentHead(self.first, self.count, self.size, self.last_at, marks)


class StoredSegment(StoredHead, frozen=True):
    checksum: int
    body: bytes

    def unpack_all(self, bucket: BucketKey) -> Segment:
        """The segment; `DamagedSegment` when it is not what was written."""
        try:
            return unpack(
                bucket,
                PackedSegment(
                    self.first,
                    self.count,
                    self.size,
                    self.last_at,
                    self.format,
                    self.checksum,
                    self.marks,
                    self.body,
                ),
            )
        except _Unreadable as error:
            raise _damaged(self.first, error) from error

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
        return SegmentHead(self.first, self.count, self.size, self.last_at, [])


def _damaged(first: int, error: Exception) -> DamagedSegment:
    if isinstance(error, DamagedSegment):
        return error
    return DamagedSegment(f"segment {first}: {error}")


def head_checksum(row: PackedSegment | StoredHead) -> int:
    """What stands in the column `head`."""
    numbers = (row.first, row.count, row.size, row.last_at, row.format)
    return zlib.crc32(row.marks, zlib.crc32(b"%d %d %d %d %d" % numbers))
