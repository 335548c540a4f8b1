"""Deliver frames: what is written by hand says what the codec would; large ones are cut."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.wire.codec import JSON, MSGPACK, Codec
from pushlane.wire.frames import Deliver, DeliverMessage
from pushlane_dispatcher.core.effects import Run
from pushlane_gateway.session.delivery import _frames, _written, deliver_frames
from pushlane_storage.message import Dead, Message

PLACE, PREFIX = "0123abcd-0-", "feedbeef01234567"
MOST = 1 << 20

plain = st.builds(
    Message,
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ).map(msgspec.json.encode),
    st.integers(0, 2**50),
)


def make_run(messages: list[Message], n: int = 1, attempt: int = 1) -> Run:
    return Run(4, (3 << 40) + n, n, True, attempt, 0, (3 << 20) + attempt, 10**6, messages)


def decoded(frames: list[bytes] | tuple[bytes, ...], codec: Codec = JSON) -> list[Deliver]:
    found = [codec.decode_server(frame) for frame in frames]
    assert all(isinstance(frame, Deliver) for frame in found)
    return found  # type: ignore[return-value]


@given(st.lists(st.lists(plain, min_size=1, max_size=5), min_size=1, max_size=4))
def test_what_is_written_by_hand_is_what_the_codec_would_write(groups: list[list[Message]]) -> None:
    runs = [make_run(group, 10 * n + 1, n + 1) for n, group in enumerate(groups)]
    text = _written(7, runs, PLACE, PREFIX, 30_000, MOST)
    assert text is not None
    assert decoded([text]) == list(_frames(7, runs, PLACE, PREFIX, 30_000, MOST))


def test_an_example() -> None:
    runs = [make_run([Message(b"1", 5), Message(b' {"a":2}', 6)])]
    (frame,) = decoded(list(deliver_frames(JSON, 2, runs, PLACE, PREFIX, 1_000, MOST)))
    assert frame == Deliver(
        2,
        [
            DeliverMessage(
                "0123abcd-0-4-30000000001", 1, 5, msgspec.Raw(b"1"), None, f"{PREFIX}.1",
                (3 << 20) + 1, 1_000,
            ),
            DeliverMessage(
                "0123abcd-0-4-30000000002", 1, 6, msgspec.Raw(b'{"a":2}'), None, f"{PREFIX}.2",
                (3 << 20) + 1, 1_000,
            ),
        ],
    )  # fmt: skip


@pytest.mark.parametrize(
    "message",
    [
        Message(b"\x00", 5, True),
        Message(b"1", 5, key='k"'),
        Message(b"1", 5, headers={"a": "\x01"}),
        Message(b"1", 5, dead=Dead("late", "q", "x", 3, None, 9)),
    ],
)
def test_what_is_not_plain_is_left_to_the_codec(message: Message) -> None:
    runs = [make_run([Message(b"1", 5), message])]
    assert _written(7, runs, PLACE, PREFIX, 30_000, MOST) is None
    for codec in (JSON, MSGPACK):
        frames = list(deliver_frames(codec, 7, runs, PLACE, PREFIX, 30_000, MOST))
        (found,) = decoded(frames, codec)
        assert [one.id for one in found.messages] == [
            "0123abcd-0-4-30000000001",
            "0123abcd-0-4-30000000002",
        ]
        last = found.messages[-1]
        assert (last.key, last.headers) == (message.key, message.headers)
        assert (last.data is not None) is message.is_data
        assert (last.dead is not None) is (message.dead is not None)


def test_without_receipts() -> None:
    runs = [make_run([Message(b"1", 5)])]
    (frame,) = decoded(list(deliver_frames(JSON, 7, runs, PLACE, None, None, MOST)))
    found = frame.messages[0]
    assert (found.receipt, found.fence, found.lease_ms) == (None, None, None)


@given(
    st.lists(st.binary(max_size=3_000), min_size=1, max_size=40),
    st.sampled_from([1_000, 5_000, 20_000]),
)
def test_no_frame_is_larger_than_it_may_be_unless_one_message_is(
    contents: list[bytes], most: int
) -> None:
    messages = [
        Message(content, 5, True, key="\x01" * 20, headers={"h": "\x02" * 20})
        for content in contents
    ]
    frames = deliver_frames(JSON, 7, [make_run(messages)], PLACE, PREFIX, 30_000, most)
    found = decoded(list(frames))
    for text, frame in zip(frames, found, strict=True):
        assert len(text) <= most or len(frame.messages) == 1
    assert [one.data for frame in found for one in frame.messages] == contents
    receipts = [one.receipt for frame in found for one in frame.messages]
    assert receipts == [f"{PREFIX}.{n + 1}" for n in range(len(contents))]


def test_many_plain_ones_are_cut_too() -> None:
    messages = [Message(b'"%s"' % (b"x" * 1_000), 5)] * 100
    frames = deliver_frames(JSON, 7, [make_run(messages)], PLACE, PREFIX, 30_000, 20_000)
    assert len(frames) == 8
    assert max(map(len, frames)) <= 20_000
    assert sum(len(frame.messages) for frame in decoded(list(frames))) == 100
