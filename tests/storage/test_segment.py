"""Packed segments: nothing is lost, and no damage goes unseen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pushlane_storage.bucket import BucketKey
from pushlane_storage.message import Dead, Message, size_of
from pushlane_storage.segment import (
    FORMAT,
    DamagedSegment,
    PackedSegment,
    Segment,
    StoredHead,
    StoredSegment,
    head_checksum,
    head_of,
    pack,
    unpack,
    unpack_head,
)
from tests.storage.samples import FULL_MESSAGE, message

texts = st.text(max_size=12)
times = st.integers(0, 1 << 45)
maybe_text = st.none() | texts
deads = st.builds(Dead, texts, texts, texts, st.integers(0, 100), maybe_text, times)
messages = st.builds(
    Message,
    body=st.binary(max_size=40),
    published_at=times,
    is_data=st.booleans(),
    key=maybe_text,
    headers=st.none() | st.dictionaries(texts, texts, max_size=3),
    dedup=maybe_text,
    producer=maybe_text,
    producer_seq=st.integers(0, (1 << 53) - 1),
    not_before=times,
    expires_at=times,
    event_at=st.none() | times,
    dead=st.none() | deads,
)
BUCKET = BucketKey(4, 3, 1_700_000_000_000)
segments = st.builds(
    Segment,
    st.just(BUCKET),
    st.integers(3 << 40, 4 << 40),
    st.lists(messages, min_size=1, max_size=4),
)

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


BUCKET = BucketKey(4, 2, 1_000)
SEGMENT = Segment(
    BUCKET, (2 << 40) + 5, [Message(b"1", 1_000, dedup="a"), Message(b"22", 1_001)]
)  # fmt: skip


def stored(**damage: Any) -> StoredSegment:
    packed = pack(SEGMENT)
    row = StoredSegment(
        packed.first, packed.count, packed.size, packed.last_at, packed.format,
        head_checksum(packed), packed.marks, packed.checksum, packed.payload,
    )  # fmt: skip
    return msgspec.structs.replace(row, **damage)


def test_whole() -> None:
    assert stored().unpack_all(BUCKET) == SEGMENT
    assert stored().unpack() == head_of(SEGMENT)


@pytest.mark.parametrize("name", ["first", "count", "size", "last_at", "format", "head"])
def test_a_head_that_is_not_what_was_written(name: str) -> None:
    for value in (getattr(stored(), name) + 1, None):
        with pytest.raises(DamagedSegment):
            stored(**{name: value}).unpack()


@pytest.mark.parametrize("marks", [b"", b"\x90", None])
def test_marks_that_are_not_what_was_written(marks: bytes | None) -> None:
    for read in (StoredHead.unpack, lambda row: row.unpack_all(BUCKET)):
        with pytest.raises(DamagedSegment):
            read(stored(marks=marks))


@pytest.mark.parametrize("body", [b"", b"\x91", None])
def test_a_body_that_is_not_what_was_written(body: bytes | None) -> None:
    with pytest.raises(DamagedSegment):
        stored(body=body).unpack_all(BUCKET)
    assert stored(body=body).unpack() == head_of(SEGMENT), "the head has a checksum of its own"


def test_a_head_is_made_anew_from_a_body_that_is_whole() -> None:
    assert stored(marks=b"", head=0, count=99).rebuild_head(BUCKET) == head_of(SEGMENT)


def test_what_is_left_when_the_body_is_damaged_too() -> None:
    mended = stored(marks=b"", body=b"\x91").rebuild_head(BUCKET)
    assert (mended.first, mended.count, mended.marks) == (SEGMENT.first, 2, [])
