"""Packed segments: nothing is lost, and no damage goes unseen."""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings

from pushlane_storage.message import Message, size_of
from pushlane_storage.segment import (
    FORMAT,
    DamagedSegment,
    PackedSegment,
    Segment,
    head_of,
    pack,
    unpack,
    unpack_head,
)
from tests.storage.samples import FULL_MESSAGE, message
from tests.storage.strategies import BUCKET, segments

SAMPLE = Segment(BUCKET, 3 << 40 | 7, [FULL_MESSAGE, message(1), message(2, dedup="d")])
NUMBERS = {"first": 63, "count": 32, "size": 63, "last_at": 63, "format": 16, "checksum": 32}
"""The bits of the columns that hold numbers."""


def flipped(row: PackedSegment) -> Iterator[PackedSegment]:
    """The row with each of its bits flipped, one at a time."""
    for field, bits in NUMBERS.items():
        for bit in range(bits):
            yield msgspec.structs.replace(row, **{field: getattr(row, field) ^ 1 << bit})
    for field in ("marks", "payload"):
        content: bytes = getattr(row, field)
        for bit in range(8 * len(content)):
            damaged = bytearray(content)
            damaged[bit // 8] ^= 1 << bit % 8
            yield msgspec.structs.replace(row, **{field: bytes(damaged)})


@given(segments)
def test_a_segment_comes_back_whole(segment: Segment) -> None:
    row = pack(segment)
    assert (row.first, row.count, row.format) == (segment.first, len(segment.messages), FORMAT)
    assert row.size == sum(map(size_of, segment.messages))
    assert row.last_at == max(message.published_at for message in segment.messages)
    assert unpack(segment.bucket, row) == segment


@given(segments)
def test_the_head_is_that_of_the_messages(segment: Segment) -> None:
    assert unpack_head(pack(segment)) == head_of(segment)


@given(segments)
def test_the_same_segment_gives_the_same_bytes(segment: Segment) -> None:
    row = pack(segment)
    assert pack(segment) == row
    assert pack(unpack(segment.bucket, row)) == row


@given(segments)
@settings(max_examples=5)
def test_every_flipped_bit_is_seen(segment: Segment) -> None:
    for damaged in flipped(pack(segment)):
        with pytest.raises(DamagedSegment):
            unpack(segment.bucket, damaged)
        with pytest.raises(DamagedSegment):
            unpack_head(damaged)


def test_every_cut_is_seen() -> None:
    row = pack(SAMPLE)
    for length in range(len(row.payload)):
        with pytest.raises(DamagedSegment, match="checksum"):
            unpack(BUCKET, msgspec.structs.replace(row, payload=row.payload[:length]))


def test_another_format_is_named() -> None:
    row = msgspec.structs.replace(pack(SAMPLE), format=FORMAT + 1)
    with pytest.raises(DamagedSegment, match=f"format {FORMAT + 1}, this version reads {FORMAT}"):
        unpack(BUCKET, row)


def test_stored_bytes_stay_readable() -> None:
    # A row written by the first release: whatever changes, this must come back.
    row = PackedSegment(
        first=3 << 40 | 7,
        count=1,
        size=67,
        last_at=1_700_000_000_000,
        format=1,
        checksum=1914358285,
        marks=bytes.fromhex("9197cf0000030000000007cf0000018bcfe56800a16ba164c00001"),
        payload=bytes.fromhex("919cc4027b7dcf0000018bcfe56800c2a16bc0a164c0000000c0c0"),
    )
    found = unpack(BUCKET, row)
    assert found.messages == [Message(b"{}", 1_700_000_000_000, key="k", dedup="d")]
    assert unpack_head(row) == head_of(found)


def test_last_is_the_seq_of_the_last_message() -> None:
    assert SAMPLE.last == SAMPLE.first + 2
