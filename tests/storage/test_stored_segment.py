"""Segments as they are read back: whole, or damaged in one of many ways."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pushlane_storage.bucket import BucketKey
from pushlane_storage.message import Message
from pushlane_storage.segment import DamagedSegment, Segment, head_of, pack
from pushlane_storage.stored_segment import StoredHead, StoredSegment, head_checksum

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
    for unpack in (StoredHead.unpack, lambda row: row.unpack_all(BUCKET)):
        with pytest.raises(DamagedSegment):
            unpack(stored(marks=marks))


@pytest.mark.parametrize("body", [b"", b"\x91", None])
def test_a_body_that_is_not_what_was_written(body: bytes | None) -> None:
    with pytest.raises(DamagedSegment):
        stored(body=body).unpack_all(BUCKET)
    assert stored(body=body).unpack() == head_of(SEGMENT), "the head has a checksum of its own"


def test_a_head_is_made_anew_from_a_body_that_is_whole() -> None:
    assert stored(marks=b"", head=0, count=99).mend_head(BUCKET) == head_of(SEGMENT)


def test_what_is_left_when_the_body_is_damaged_too() -> None:
    mended = stored(marks=b"", body=b"\x91").mend_head(BUCKET)
    assert (mended.first, mended.count, mended.marks) == (SEGMENT.first, 2, [])
