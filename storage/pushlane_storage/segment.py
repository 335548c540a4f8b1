"""A segment: what one flush of one shard and lane stores together, as one row.

A packed segment carries a format number and a checksum over everything that matters, so that a
damaged one is seen and never delivered; the dedup columns stand beside the messages, so that a
new owner learns what was published lately without reading bodies.

A stored segment is one as it is read back from any store. Besides `checksum`, which is over all, it
has `head`, a checksum over everything but the body: so that recovery can trust what it reads
without reading bodies.
"""

import zlib
from collections.abc import Iterator

import msgspec

from pushlane_storage.bucket import BucketKey
from pushlane_storage.message import Message, dedup_id, total_size

FORMAT = 1


class DamagedSegment(Exception):
    """A stored segment whose checksum or format is not what it should be."""


class DedupMark(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What makes stored messages recognisable when they are published again.

    One mark stands for one message with a dedup id, or for a run of messages that a producer
    numbered one after the other.
    """

    seq: int
    published_at: int
    """Of a run: when its last message was."""
    key: str | None = None
    dedup: str | None = None
    producer: str | None = None
    producer_seq: int = 0
    count: int = 1

    def cut(self, end: int) -> "DedupMark":
        """The part before a seq."""
        return msgspec.structs.replace(self, count=min(self.count, end - self.seq))


class Segment(msgspec.Struct, frozen=True):
    bucket: BucketKey
    first: int
    messages: list[Message]

    @property
    def last(self) -> int:
        return self.first + len(self.messages) - 1


class SegmentHead(msgspec.Struct, frozen=True):
    """A segment without its bodies: what recovery reads."""

    first: int
    count: int
    size: int
    """What its messages count for in byte limits."""
    last_at: int
    """When its newest message was published."""
    marks: list[DedupMark]


class PackedSegment(msgspec.Struct, frozen=True):
    """A segment as a row: the columns that every durable back end stores."""

    first: int
    count: int
    size: int
    last_at: int
    format: int
    checksum: int
    marks: bytes
    payload: bytes


_encoder = msgspec.msgpack.Encoder()
_messages = msgspec.msgpack.Decoder(list[Message])
_marks = msgspec.msgpack.Decoder(list[DedupMark])


def marks_of(first: int, messages: list[Message]) -> Iterator[DedupMark]:
    """The dedup marks of messages that stand from seq `first` on."""
    producer, number, count, at = None, 0, 0, 0
    for seq, message in enumerate(messages, first):
        if message.dedup is None and message.producer is None and not count:
            continue  # nearly all are like this
        dedup = None if message.dedup is None else dedup_id(message)
        if dedup is None and message.producer is not None:
            if message.producer == producer and message.producer_seq == number + count:
                count += 1
                at = message.published_at
                continue
            if count:
                yield DedupMark(seq - count, at, None, None, producer, number, count)
            producer, number, count = message.producer, message.producer_seq, 1
            at = message.published_at
            continue
        if count:
            yield DedupMark(seq - count, at, None, None, producer, number, count)
            producer, count = None, 0
        if dedup is not None:
            yield DedupMark(
                seq,
                message.published_at,
                message.key,
                dedup,
                message.producer,
                message.producer_seq,
            )
    if count:
        end = first + len(messages)
        yield DedupMark(end - count, at, None, None, producer, number, count)


def head_of(segment: Segment) -> SegmentHead:
    messages = segment.messages
    marks = list(marks_of(segment.first, messages))
    return SegmentHead(segment.first, len(messages), *_measure(messages), marks)


def _measure(messages: list[Message]) -> tuple[int, int]:
    return total_size(messages), max([message.published_at for message in messages], default=0)


def pack(segment: Segment) -> PackedSegment:
    """The row of a segment. Packing the same segment again gives the same bytes."""
    payload = _encoder.encode(segment.messages)
    marks = _encoder.encode(list(marks_of(segment.first, segment.messages)))
    numbers = (segment.first, len(segment.messages), *_measure(segment.messages))
    return PackedSegment(*numbers, FORMAT, _checksum(numbers, marks, payload), marks, payload)


def unpack(bucket: BucketKey, row: PackedSegment) -> Segment:
    """The segment of a row; `DamagedSegment` when the row is not what was written."""
    _verify(row)
    return Segment(bucket, row.first, _messages.decode(row.payload))


def unpack_head(row: PackedSegment) -> SegmentHead:
    """A segment's head, without decoding its messages."""
    _verify(row)
    return SegmentHead(*_numbers(row), _marks.decode(row.marks))


def _numbers(row: PackedSegment) -> tuple[int, int, int, int]:
    return row.first, row.count, row.size, row.last_at


def _checksum(numbers: tuple[int, int, int, int], marks: bytes, payload: bytes) -> int:
    prefix = b"%d %d %d %d %d %d " % (FORMAT, *numbers, len(marks))
    return zlib.crc32(payload, zlib.crc32(marks, zlib.crc32(prefix)))


def _verify(row: PackedSegment) -> None:
    if row.format != FORMAT:
        raise DamagedSegment(
            f"segment {row.first}: format {row.format}, this version reads {FORMAT}"
        )
    if row.checksum != _checksum(_numbers(row), row.marks, row.payload):
        raise DamagedSegment(f"segment {row.first}: checksum mismatch")


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

    def rebuild_head(self, bucket: BucketKey) -> SegmentHead:
        """The head of a segment whose head is damaged.

        It is made anew from the body, if that fits the checksum over both. Else what is left:
        its place still counts, so that recovery doesn't take the rest of the bucket for lost.
        """
        try:
            segment = Segment(bucket, self.first, _messages.decode(self.body))
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
