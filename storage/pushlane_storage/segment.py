"""A segment: what one flush of one shard and lane stores together, as one row.

A packed segment carries a format number and a checksum over everything that matters, so that a
damaged one is seen and never delivered; the dedup columns stand beside the messages, so that a
new owner learns what was published lately without reading bodies.
"""

import zlib
from collections.abc import Iterator

import msgspec

from pushlane_storage.bucket import BucketKey
from pushlane_storage.message import Message, dedup_id, size_of

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
    size = sum(map(size_of, messages))
    return size, max((message.published_at for message in messages), default=0)


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
