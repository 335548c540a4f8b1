"""Frames come out as they went in, whatever pieces the bytes come in."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pushlane_dispatcher.cluster.links.framing import BEAT, END, FrameReader, framed

MOST = 100

frames = st.lists(st.binary(min_size=0, max_size=MOST), max_size=20)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[at:stop] for at, stop in pairwise(places)]


@given(frames, st.lists(st.integers(0, 10_000)))
def test_any_split_gives_the_same_frames(sent: list[bytes], cuts: list[int]) -> None:
    reader = FrameReader(MOST)
    got = [
        frame for piece in pieces(b"".join(map(framed, sent)), cuts) for frame in reader.feed(piece)
    ]
    assert got == [frame for frame in sent if frame]  # an empty one is a beat
    assert not reader.over


def test_byte_by_byte() -> None:
    reader = FrameReader(MOST)
    data = framed(b"one") + BEAT + framed(b"x" * MOST) + END
    got = [(at, frame) for at in range(len(data)) for frame in reader.feed(data[at : at + 1])]
    assert got == [(6, b"one"), (14 + MOST, b"x" * MOST)]
    assert reader.over
    assert reader.too_long == 0


def test_a_frame_too_long() -> None:
    for cut in range(8):
        reader = FrameReader(MOST)
        data = framed(b"one") + (MOST + 1).to_bytes(4, "big") + framed(b"two")
        got = reader.feed(data[: 7 + cut]) + reader.feed(data[7 + cut :])
        assert got == [b"one"]
        assert reader.over
        assert reader.too_long == MOST + 1
        assert reader.feed(framed(b"three")) == []


@given(st.lists(st.binary(max_size=50)))
def test_garbage_keeps_no_more_than_a_frame(data: list[bytes]) -> None:
    reader = FrameReader(MOST)
    for piece in data:
        for frame in reader.feed(piece):
            assert 0 < len(frame) <= MOST
        assert len(reader._part) <= MOST + 4


def test_nothing_behind_the_last_word() -> None:
    reader = FrameReader(MOST)
    assert reader.feed(framed(b"one") + END + framed(b"two")) == [b"one"]
    assert reader.feed(framed(b"three")) == []


def test_frames_are_bytes_of_their_own() -> None:
    reader = FrameReader(MOST)
    data = bytearray(framed(b"one") + framed(b"two"))
    got = reader.feed(data)
    data[:] = bytes(len(data))
    assert got == [b"one", b"two"]
    assert all(type(frame) is bytes for frame in got)
