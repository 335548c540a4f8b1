"""What a large frame may consist of: decoding costs a small multiple of its size, or is refused."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from pushlane.wire.codec import JSON, MSGPACK, Codec, decode_json
from pushlane.wire.errors import BadFrame, PushlaneError
from pushlane.wire.frames import Ack, ClientFrame, Publish, PublishMessage
from pushlane.wire.parts import COUNTED_BYTES

SIZE = 1024 * 1024
MOST = 8
"""Times its own size that decoding a frame may take."""
encode = msgspec.msgpack.encode


def json_publish(messages: bytes) -> bytes:
    return b'{"op":"publish","id":7,"to":"q","messages":[%b]}' % messages


def packed(head: dict[str, object], last: str, value: bytes) -> bytes:
    """A map with one more entry, whose value is these bytes."""
    return bytes([0x80 | len(head) + 1]) + encode(head)[1:] + encode(last) + value


def packed_publish(messages: bytes) -> bytes:
    return packed({"op": "publish", "id": 7, "to": "q"}, "messages", messages)


def array(count: int, item: bytes) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + item * count


COUNT = SIZE // 12
JSON_HEADERS = b",".join(b'"%06x":""' % number for number in range(COUNT))
HEADERS = b"\xdf" + COUNT.to_bytes(4, "big")
HEADERS += b"".join(encode(f"{number:06x}") + encode("") for number in range(COUNT))
RECEIPTS = b'"a",' * (SIZE // 4) + b'"a"'

ATTACKS: dict[str, tuple[Codec, bytes]] = {
    "empty maps": (MSGPACK, packed_publish(array(SIZE, b"\x80"))),
    "empty objects": (JSON, json_publish(b"{}," * (SIZE // 3) + b"{}")),
    "headers": (JSON, json_publish(b'{"body":1,"headers":{%b}}' % JSON_HEADERS)),
    "headers that are replaced": (
        JSON, json_publish(b'{"body":1,"headers":{%b},"headers":{}}' % JSON_HEADERS)),
    "packed headers": (MSGPACK, packed_publish(b"\x91" + packed({}, "headers", HEADERS))),
    "packed headers that are replaced": (
        MSGPACK, packed_publish(b"\x91\x82" + encode("headers") + HEADERS + encode("headers")
        + b"\x80")),
    "receipts": (JSON, b'{"op":"ack","sub":1,"id":7,"receipts":[%b]}' % RECEIPTS),
    "receipts that are replaced": (
        JSON, b'{"op":"ack","sub":1,"id":7,"receipts":[%b],"receipts":["a.1"]}' % RECEIPTS),
    "packed receipts": (
        MSGPACK, packed({"op": "ack", "sub": 1, "id": 7}, "receipts",
        array(SIZE // 2, encode("a")))),
    "what a hello holds": (
        JSON, b'{"op":"hello","id":7,"resume":{"session":"s","held":{"1":[%b]}}}' % RECEIPTS),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_a_frame_of_tiny_parts_is_refused_before_they_are_made(name: str) -> None:
    codec, data = ATTACKS[name]
    tracemalloc.start()
    try:
        with pytest.raises(BadFrame) as caught:
            codec.decode_client(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST * len(data)
    assert (caught.value.limit, caught.value.id) == ("parts", 7)


def test_a_broken_frame_costs_no_more() -> None:
    data = b'{"op":"ack","sub":1,"receipts":[%b]' % RECEIPTS
    tracemalloc.start()
    try:
        with pytest.raises(PushlaneError, match="not JSON"):
            JSON.decode_client(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST * len(data)


RICH = msgspec.Raw(msgspec.json.encode([{"a": n, "b": [n, n]} for n in range(100)]))
MANY = {f"name-{number}": "some value" for number in range(15)}
ORDINARY: dict[str, ClientFrame] = {
    "large bodies": Publish(1, "q", [PublishMessage(body=msgspec.Raw(b'"%b"' % (b"x" * SIZE)))]),
    "bodies of many parts": Publish(1, "q", [PublishMessage(body=RICH, seq=1)] * 500),
    "data": Publish(1, "q", [PublishMessage(data=b"x" * 900, key="k")] * 1_000),
    "headers": Publish(
        1, "q",
        [PublishMessage(body=msgspec.Raw(b"1"), headers=MANY, key=str(k)) for k in range(1_000)]),
    "receipts": Ack(1, [f"aGVsbG8gd29y.{number}" for number in range(1, 20_000, 2)] * 2, 1),
    "ten thousand small ones": Publish(
        1, "q", [PublishMessage(body=msgspec.Raw(b'"hello, world"'), seq=9_999)] * 10_000),
}  # fmt: skip


@pytest.mark.parametrize("codec", [JSON, MSGPACK])
@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_large_frames_pass(name: str, codec: Codec) -> None:
    data = codec.encode(ORDINARY[name])
    assert len(data) > COUNTED_BYTES
    assert codec.decode_client(data) == ORDINARY[name]


class Body(msgspec.Struct):
    """Of a request, with a list that no frame has."""

    bills: list[dict[str, int]] = []
    drop: list[dict[str, int]] = []


@pytest.mark.parametrize("field", ["bills", "drop"])
def test_what_jobs_send_is_counted_too(field: str) -> None:
    decoder = msgspec.json.Decoder(Body)
    rows = [{f"billing.hour.cost_{number}": 1234 for number in range(12)}] * 1_000
    ordinary = msgspec.json.encode({field: rows})
    assert len(ordinary) > COUNTED_BYTES
    assert getattr(decode_json(decoder, ordinary), field) == rows
    costs = b",".join(b'"%05x":1' % number for number in range(COUNT))
    with pytest.raises(BadFrame, match="too many small parts"):
        decode_json(decoder, b'{"%b":[{%b}]}' % (field.encode(), costs))
    twice = b'{"%b":[{%b}],"%b":[]}' % (field.encode(), costs, field.encode())
    with pytest.raises(BadFrame, match="too many small parts"):
        decode_json(decoder, twice)


@pytest.mark.parametrize("data", [b"[" + b"1," * SIZE + b"1]", array(SIZE, b"\x80")])
def test_what_is_no_object_is_no_frame(data: bytes) -> None:
    codec = JSON if data.startswith(b"[") else MSGPACK
    with pytest.raises(PushlaneError):
        codec.decode_client(data)
