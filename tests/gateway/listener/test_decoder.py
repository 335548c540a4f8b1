"""Frames to messages: the quick way and the complete one agree, with `ServerProtocol` as judge."""

from __future__ import annotations

import gc
import struct
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import BINARY as WS_BINARY
from websockets.frames import CONT, Frame
from websockets.frames import TEXT as WS_TEXT
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from pushlane_gateway.listener.decoder import LOST, SKIPPED, Decoder, End
from tests.gateway.listener.rig import BINARY, CLOSE, PING, PONG, TEXT, close, frame

LIMIT = 70_000


def decoder(*, is_text: bool = True) -> Decoder:
    """As after a hello: there is no limit but the judge's."""
    made = Decoder(is_text=is_text, frame_bytes=LIMIT, tiny_frames=10_000)
    made.admit(LIMIT)
    return made


class Judge:
    """`ServerProtocol` alone, with the least around it that makes messages of its frames."""

    def __init__(self, is_text: bool) -> None:
        self.kind = WS_TEXT if is_text else WS_BINARY
        self.protocol = ServerProtocol(state=OPEN, max_size=LIMIT)
        self.messages: list[bytes] = []
        self.code: int | None = None
        self.pongs: list[bytes] = []
        self.part = b""

    def feed(self, data: bytes) -> None:
        if self.code is not None:
            return
        self.protocol.receive_data(data)
        for event in self.protocol.events_received():
            assert isinstance(event, Frame)
            self._take(event)
        if self.code is None:
            self.code = self._ended()

    def _take(self, event: Frame) -> None:
        if self.code is not None:
            return
        if event.opcode == PING:
            self.pongs.append(bytes(event.data))
        if event.opcode not in (WS_TEXT, WS_BINARY, CONT):
            return
        if event.opcode not in (CONT, self.kind):
            self.code = 1003
            return
        self.part += event.data
        if event.fin:
            message, self.part = self.part, b""
            try:
                if self.kind is WS_TEXT:
                    message.decode()
                self.messages.append(message)
            except UnicodeDecodeError:
                self.code = 1007

    def _ended(self) -> int | None:
        if self.protocol.close_rcvd is not None:
            return int(self.protocol.close_rcvd.code)  # also inside a fragmented message
        if self.protocol.parser_exc is not None:
            assert self.protocol.close_sent is not None
            return int(self.protocol.close_sent.code)
        return None


payloads = st.one_of(
    st.binary(max_size=20),
    st.text(max_size=20).map(str.encode),
    st.sampled_from([0, 1, 124, 125, 126, 127, 200, 65535, 65536, LIMIT, LIMIT + 1]).map(
        lambda size: b"x" * size
    ),
)
legal = st.builds(frame, st.sampled_from([TEXT, TEXT, TEXT, BINARY]), payloads)
fragments = st.lists(payloads, min_size=2, max_size=4).map(
    lambda parts: b"".join(
        frame(0 if place else TEXT, part, fin=place == len(parts) - 1)
        for place, part in enumerate(parts)
    )
)
controls = st.builds(frame, st.sampled_from([PING, PONG]), st.binary(max_size=125))
closes = st.one_of(
    st.sampled_from([1000, 1001, 3000, 4999, 999, 1005, 1006, 5000]).map(close),
    st.just(frame(CLOSE, b"")),
    st.just(frame(CLOSE, b"\x03")),
    st.just(frame(CLOSE, b"\x03\xe8\xff")),
)
anything = st.builds(
    frame,
    st.integers(0, 15),
    payloads,
    fin=st.booleans(),
    rsv=st.sampled_from([0, 0, 0, 0x40, 0x20, 0x10]),
    mask=st.sampled_from([True, True, True, True, False]),
)
long_form = st.binary(max_size=30).map(
    lambda body: struct.pack("!BBQ", 0x81, 0xFF, len(body)) + b"\0\0\0\0" + body
)
streams = st.lists(
    st.one_of(legal, legal, legal, fragments, controls, closes, anything, long_form), max_size=8
).map(b"".join)


@settings(max_examples=600)
@given(streams, st.lists(st.integers(0, 400), max_size=30), st.booleans())
def test_it_reads_what_server_protocol_reads_however_it_is_cut(
    stream: bytes, cuts: list[int], is_text: bool
) -> None:
    judge, ours = Judge(is_text), decoder(is_text=is_text)
    judge.feed(stream)
    messages: list[bytes] = []
    position = 0
    for cut in [*cuts, len(stream)]:
        messages += ours.feed(stream[position : position + cut])
        position += cut
    assert messages == judge.messages
    assert (ours.end.code if ours.end else None) == judge.code
    assert [out[2:] for out in ours.out if out[0] == 0x80 | PONG] == judge.pongs


@settings(max_examples=100)
@given(streams)
def test_byte_by_byte(stream: bytes) -> None:
    stream = stream[:3000]
    judge, ours = Judge(True), decoder()
    messages: list[bytes] = []
    for place in range(len(stream)):
        judge.feed(stream[place : place + 1])
        messages += ours.feed(stream[place : place + 1])
        assert messages == judge.messages
        assert (ours.end.code if ours.end else None) == judge.code


def test_many_messages_of_one_read() -> None:
    ours = decoder()
    bodies = [b"%d" % number * (number % 150 + 1) for number in range(500)]
    assert ours.feed(b"".join(frame(TEXT, body) for body in bodies)) == bodies
    assert ours._protocol is None


@pytest.mark.parametrize("slow", [frame(PING, b"x"), frame(TEXT, b"y" * 66_000)])
def test_after_the_complete_way_the_quick_one_goes_on(slow: bytes) -> None:
    ours = decoder()
    ours.feed(frame(TEXT, b"a") + slow)
    assert ours._protocol is None
    assert ours.feed(frame(TEXT, b"b")) == [b"b"]


def test_a_control_frame_between_fragments() -> None:
    ours = decoder()
    assert ours.feed(frame(TEXT, b"a", fin=False) + frame(PING, b"p")) == []
    assert ours.out == [b"\x8a\x01p"]
    assert ours.feed(frame(0, b"b") + frame(TEXT, b"c")) == [b"ab", b"c"]


def test_empty_fragments_take_no_memory() -> None:
    ours = decoder()
    ours.feed(frame(TEXT, b"", fin=False))
    ours.feed(frame(0, b"", fin=False) * 9_000)
    assert ours._part is not None
    assert len(ours._part) == 0
    assert ours.feed(frame(0, b"end")) == [b"end"]


def test_utf_8_may_be_cut_by_fragments() -> None:
    snowman = "☃".encode()
    ours = decoder()
    assert ours.feed(frame(TEXT, snowman[:1], fin=False) + frame(0, snowman[1:])) == [snowman]


def test_a_close_inside_a_fragmented_message_is_a_close() -> None:
    ours = decoder()
    ours.feed(frame(TEXT, b"a", fin=False) + close(1000, "bye"))
    assert ours.end is not None
    assert (ours.end.code, ours.end.reason, ours.end.by_client) == (1000, "bye", True)
    assert ours.out == [close(1000, "bye")[:1] + b"\x05\x03\xe8bye"]


FAULTS = {
    "compressed": (frame(TEXT, b"x", rsv=0x40), 1002, "bad_request"),
    "not masked": (frame(TEXT, b"x", mask=False), 1002, "bad_request"),
    "a continuation of nothing": (frame(0, b"x"), 1002, "bad_request"),
    "a message inside another": (
        frame(TEXT, b"x", fin=False) + frame(TEXT, b"y"),
        1002,
        "bad_request",
    ),
    "a fragmented ping": (frame(PING, b"x", fin=False), 1002, "bad_request"),
    "a long ping": (frame(PING, b"x" * 126), 1002, "bad_request"),
    "an unknown opcode": (frame(3, b"x"), 1002, "bad_request"),
    "binary": (frame(BINARY, b"x"), 1003, "bad_request"),
    "the first fragment of binary": (frame(BINARY, b"x", fin=False), 1003, "bad_request"),
    "not UTF-8": (frame(TEXT, b"\xff"), 1007, "bad_request"),
    "half a surrogate pair": (frame(TEXT, b"\xed\xa0\xbd"), 1007, "bad_request"),
    "not UTF-8 in fragments": (
        frame(TEXT, b"\xe2", fin=False) + frame(0, b"x"),
        1007,
        "bad_request",
    ),
    "too large": (frame(TEXT, b"x" * (LIMIT + 1)), 1009, "too_large"),
    "too large, only announced": (struct.pack("!BBQ", 0x81, 0xFF, 2**62), 1009, "too_large"),
    "too large in fragments": (
        frame(TEXT, b"x" * 40_000, fin=False) + frame(0, b"x" * 40_000),
        1009,
        "too_large",
    ),
}


@pytest.mark.parametrize(("data", "code", "reason"), FAULTS.values(), ids=FAULTS)
def test_faults_close_and_what_came_before_counts(data: bytes, code: int, reason: str) -> None:
    ours = decoder()
    assert ours.feed(frame(TEXT, b"before") + data + frame(TEXT, b"behind")) == [b"before"]
    assert ours.end is not None
    assert (ours.end.code, ours.end.reason, ours.end.by_client) == (code, reason, False)
    assert ours.end.fault
    payload = struct.pack("!H", code) + reason.encode()
    assert ours.out == [bytes((0x88, len(payload))) + payload]


@pytest.mark.parametrize("beginning", [b"\x83\xfe", b"\x8f\xff", b"\x81\x7e", b"\x81\x05"])
def test_what_two_bytes_prove_wrong_is_not_waited_for(beginning: bytes) -> None:
    ours = decoder()
    ours.feed(beginning)
    assert ours.end is not None
    assert ours.end.code == 1002


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 200_000])
@pytest.mark.parametrize("opcode", [TEXT, BINARY, PING, 0, 3])
def test_after_our_close_only_the_clients_counts(opcode: int, size: int) -> None:
    ours = decoder()
    ours.feed(frame(TEXT, b"x" * 70_000)[:1_000])
    assert ours.close(1001, "drain") == b"\x88\x07\x03\xe9drain"
    assert ours.held == 0
    behind = frame(TEXT, b"x" * 70_000)[1_000:] + frame(opcode, b"x" * size, rsv=0x40) * 3
    for piece in (behind[:50_001], behind[50_001:70_003], behind[70_003:], close(1001)):
        assert ours.end is None
        assert ours.feed(piece) == []
        assert ours.held < 14
    assert ours.out == []
    assert ours.end is not None
    assert (ours.end.code, ours.end.by_client) == (1001, True)


def test_the_end_of_the_stream() -> None:
    ours = decoder()
    ours.feed(frame(TEXT, b"x")[:3])
    ours.feed_eof()
    assert ours.end is not None
    assert (ours.end.code, ours.end.by_client) == (LOST, True)


def stranger(tiny_frames: int = 100) -> Decoder:
    """As before a hello."""
    return Decoder(is_text=True, frame_bytes=65_536, tiny_frames=tiny_frames)


def test_before_it_is_admitted_messages_come_one_at_a_time_and_are_small() -> None:
    ours = stranger()
    large = frame(TEXT, b"x" * 66_000)
    assert ours.feed(frame(TEXT, b"hello") + frame(TEXT, b"a") + large) == [b"hello"]
    assert ours.more
    ours.admit(LIMIT)
    assert ours.feed(b"") == [b"a", b"x" * 66_000]
    assert (ours.more, ours.held) == (False, 0)


@pytest.mark.parametrize("fragments", [False, True])
def test_before_it_is_admitted_a_large_frame_is_refused_by_its_head(fragments: bool) -> None:
    ours = stranger()
    large = frame(TEXT, b"x" * 66_000)
    if fragments:
        ours.feed(frame(TEXT, b"x" * 1_000, fin=False))
        large = frame(0, b"x" * 65_000)
    ours.feed(large[:20])
    assert ours.end is not None
    assert (ours.end.code, ours.end.reason) == (1009, "too_large")
    ours.drop()
    assert ours.held == 0


def test_many_small_messages_come_in_parts() -> None:
    ours = decoder()
    rest = frame(TEXT, b"x")[:4]
    found = [ours.feed(frame(TEXT, b"{}") * 2_500 + rest)]
    while ours.more:
        found.append(ours.feed(b""))
    assert [len(messages) for messages in found] == [1_024, 1_024, 452]
    assert ours.feed(frame(TEXT, b"x")[4:]) == [b"x"]


def ends(it: Decoder) -> list[End]:
    return [] if it.end is None else [it.end]


def test_after_our_close_a_flood_is_not_looked_at_for_long() -> None:
    it = decoder()
    it.close(1008, "bad_request")
    assert it.feed(frame(TEXT, b"") * SKIPPED) == []
    assert ends(it) == []  # its close may still come
    it.feed(frame(TEXT, b"") * 2)
    assert [end.by_client for end in ends(it)] == [False]
    assert it.feed(frame(TEXT, b"") * 10_000) == []
    assert it.held == 0


@pytest.mark.parametrize(
    "flood",
    [frame(PING, b""), frame(PONG, b"x" * 125), frame(TEXT, b"", fin=False) + frame(0, b"x")],
)
def test_a_flood_of_what_brings_nothing_is_closed(flood: bytes) -> None:
    ours = stranger(tiny_frames=100)
    ours.admit(LIMIT)
    ours.feed(flood * 100)
    assert ours.tiny == 100
    ours.tiny = 50
    ours.feed(flood * 50)
    assert not ours.out or ours.out[-1][0] == 0x8A
    ours.feed(flood)
    assert ours.end is not None
    assert (ours.end.code, ours.end.reason, ours.end.by_client) == (1008, "throttled", False)


def test_fragments_of_some_size_are_no_flood() -> None:
    ours = stranger(tiny_frames=1)
    ours.admit(LIMIT)
    ours.feed(frame(TEXT, b"x" * 256, fin=False) + frame(0, b"x" * 256, fin=False) * 100)
    assert ours.feed(frame(0, b"")) == [b"x" * 256 * 101]
    assert ours.tiny == 0


@pytest.mark.parametrize(
    "data", [frame(TEXT, b"x" * 69_000)[:60_000], b"\xff\xff" * 9, b"\x89\x80"]
)
def test_what_is_dropped_is_free_at_once(data: bytes) -> None:
    ours = decoder()
    gc.collect()
    gc.disable()
    try:
        ours.feed(data)
        protocol = ours._protocol
        assert protocol is not None
        found = weakref.ref(protocol)
        del protocol
        ours.drop()
        assert found() is None
    finally:
        gc.enable()
