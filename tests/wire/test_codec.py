from __future__ import annotations

import contextlib
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from pushlane.wire import frames
from pushlane.wire.codec import CODECS, JSON, MSGPACK, Codec, decode_json, negotiate
from pushlane.wire.errors import BadFrame, BadRequest, NotAFrame
from pushlane.wire.frames import ClientFrame, Publish, PublishMessage, ServerFrame
from pushlane.wire.limits import MAX_INT
from pushlane.wire.validate import (
    check_credit,
    check_extend,
    check_hello,
    check_nack,
    check_publish,
    check_receipts,
    check_subscribe,
)
from tests.wire.strategies import bodies, client_frames, server_frames

BOTH = pytest.mark.parametrize("codec", [JSON, MSGPACK], ids=["json", "msgpack"])


@BOTH
@given(frame=client_frames)
def test_client_frames_round_trip(codec: Codec, frame: ClientFrame) -> None:
    assert codec.decode_client(codec.encode(frame)) == frame


@BOTH
@given(frame=server_frames)
def test_server_frames_round_trip(codec: Codec, frame: ServerFrame) -> None:
    assert codec.decode_server(codec.encode(frame)) == frame


@BOTH
@given(raw=bodies)
def test_bodies_come_through_byte_for_byte(codec: Codec, raw: bytes) -> None:
    frame = codec.decode_client(codec.encode(Publish(1, "q", [PublishMessage(Raw(raw))])))
    assert isinstance(frame, Publish)
    assert bytes(frame.messages[0].body) == raw  # type: ignore[arg-type]


@given(client_frames)
def test_encoding_leaves_the_frame_alone(frame: ClientFrame) -> None:
    before = JSON.encode(frame)
    MSGPACK.encode(frame)
    assert JSON.encode(frame) == before


@given(bodies, st.binary(max_size=9))
def test_msgpack_holds_a_body_in_a_bin(raw: bytes, data: bytes) -> None:
    frame = Publish(1, "q", [PublishMessage(Raw(raw)), PublishMessage(data=data)])
    assert msgspec.msgpack.decode(MSGPACK.encode(frame)) == {
        "op": "publish",
        "id": 1,
        "to": "q",
        "messages": [{"body": raw}, {"data": data}],
    }


def test_json_holds_data_as_padded_base64() -> None:
    text = JSON.encode(Publish(1, "q", [PublishMessage(data=b"\xff\xfe\xfd\xfc")]))
    assert json.loads(text)["messages"] == [{"data": "//79/A=="}]


@BOTH
def test_a_large_body_needs_a_large_bin(codec: Codec) -> None:
    for size in (0, 253, 254, 255, 65_533, 65_534, 1_000_000):
        raw = b'"' + b"x" * size + b'"'
        frame = Publish(1, "q", [PublishMessage(Raw(raw))])
        assert codec.decode_client(codec.encode(frame)) == frame


@BOTH
def test_op_may_stand_anywhere_and_strange_fields_are_ignored(codec: Codec) -> None:
    encode = msgspec.json.encode if codec.is_text else msgspec.msgpack.encode
    fields = {"strange": [{"id": 9}, None], "sub": 4, "op": "credit", "credit": 5, "x": {"y": 1}}
    assert codec.decode_client(encode(fields)) == frames.Credit(4, 5)


def test_null_is_as_good_as_absent() -> None:
    text = b'{"op":"publish","id":1,"to":"q","messages":[{"body":1,"data":null,"key":null}]}'
    assert JSON.decode_client(text) == Publish(1, "q", [PublishMessage(Raw(b"1"))])


def test_huge_integers_in_bodies_are_nobodys_business() -> None:
    text = b'{"op":"publish","id":1,"to":"q","messages":[{"body":%s}]}' % (b"9" * 5000)
    frame = JSON.decode_client(text)
    assert JSON.encode(frame) == text


@BOTH
@pytest.mark.parametrize("id", [1, MAX_INT])
def test_ids_reach_from_one_to_the_greatest_safe_integer(codec: Codec, id: int) -> None:
    assert codec.decode_client(codec.encode(frames.Unsubscribe(id, 1))) == frames.Unsubscribe(id, 1)


@BOTH
@pytest.mark.parametrize("id", [0, -1, MAX_INT + 1, 1.0, True, "1", None])
def test_other_ids_are_refused(codec: Codec, id: object) -> None:
    encode = msgspec.json.encode if codec.is_text else msgspec.msgpack.encode
    with pytest.raises(BadFrame, match=r"^id: ") as raised:
        codec.decode_client(encode({"op": "unsubscribe", "id": id, "sub": 8}))
    assert (raised.value.id, raised.value.op, raised.value.sub) == (None, "unsubscribe", 8)


@pytest.mark.parametrize("body", ["[1]", 1, None, [1], {"a": 1}])
def test_a_msgpack_body_must_be_a_bin(body: object) -> None:
    messages = [{"data": b""}, {"body": body}]
    published = {"op": "publish", "id": 6, "to": "q", "messages": messages}
    with pytest.raises(BadFrame, match=r"^messages\[1\]: body must be a bin") as raised:
        MSGPACK.decode_client(msgspec.msgpack.encode(published))
    assert (raised.value.id, raised.value.op) == (6, "publish")

    message = {"id": "m", "attempt": 1, "published_at": 1, "body": body}
    delivered = {"op": "deliver", "sub": 7, "messages": [message]}
    with pytest.raises(BadFrame, match=r"^messages\[0\]: body must be a bin") as raised:
        MSGPACK.decode_server(msgspec.msgpack.encode(delivered))
    assert (raised.value.sub, raised.value.op) == (7, "deliver")


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"{", "body is not JSON"),
        (b'"\xff"', "body is not UTF-8"),
        (b'"\\ud800"', "body is not JSON"),
        (b"[" * 5000 + b"]" * 5000, "body is nested deeper than 500"),
    ],
)
def test_a_msgpack_body_must_be_json(body: bytes, fault: str) -> None:
    frame = Publish(6, "q", [PublishMessage(Raw(b"1")), PublishMessage(Raw(body))])
    with pytest.raises(BadFrame, match=r"^messages\[1\]: ") as raised:
        MSGPACK.decode_client(MSGPACK.encode(frame))
    assert fault in raised.value.message
    assert (raised.value.id, raised.value.op) == (6, "publish")


def test_negotiation() -> None:
    assert list(CODECS) == ["pushlane.v1.json", "pushlane.v1.msgpack"]
    assert negotiate([]) is JSON
    assert negotiate(["pushlane.v2.json", "pushlane.v1.msgpack", "pushlane.v1.json"]) is MSGPACK
    assert (JSON.is_text, MSGPACK.is_text) == (True, False)
    with pytest.raises(BadRequest, match=r"pushlane\.v1\.json or pushlane\.v1\.msgpack"):
        negotiate(["mqtt"])


def test_other_objects_are_read_with_the_same_errors() -> None:
    decoder = msgspec.json.Decoder(dict[str, list[PublishMessage]])
    assert decode_json(decoder, b'{"messages":[{"body":1}]}')["messages"][0].body == Raw(b"1")
    with pytest.raises(BadFrame, match=r"^Expected `object`, got `array`"):
        decode_json(decoder, b"[]")
    with pytest.raises(NotAFrame):
        decode_json(decoder, b"{")


def mutate(data: bytes, draw: st.DataObject) -> bytes:
    text = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, len(text)))
        gone = draw.draw(st.integers(0, 4))
        text[at : at + gone] = draw.draw(st.binary(max_size=3) | st.just(bytes(text[:at][-9:])))
    return bytes(text)


def look_at(codec: Codec, data: bytes) -> None:
    """Decode and check as client and as server: nothing but the typed errors may come out."""
    for decode in (codec.decode_server, codec.decode_client):
        try:
            check(decode(data))
        except NotAFrame as error:
            outcome: NotAFrame | BadFrame = error
        except BadFrame as error:
            outcome = error
        else:
            continue
        if isinstance(outcome, NotAFrame):
            assert outcome.close_code in (1002, 1007)
        else:
            answer = frames.error_frame(outcome)
            assert codec.decode_server(codec.encode(answer)) == answer


def check(frame: ClientFrame | ServerFrame) -> None:
    """What a session would do with the frame; only a BadRequest may come out of it."""
    with contextlib.suppress(BadRequest):
        match frame:
            case frames.Hello():
                check_hello(frame)
            case frames.Publish():
                check_publish(frame)
            case frames.Subscribe():
                check_subscribe(frame)
            case frames.Credit():
                check_credit(frame)
            case frames.Nack():
                check_nack(frame)
            case frames.Extend():
                check_extend(frame)
            case frames.Start() | frames.Ack():
                check_receipts(frame)
            case _:
                pass


@BOTH
@given(data=st.binary(max_size=60))
def test_random_bytes_raise_nothing_but_typed_errors(codec: Codec, data: bytes) -> None:
    look_at(codec, data)


@BOTH
@settings(max_examples=400)
@given(frame=client_frames | server_frames, draw=st.data())
def test_mutated_frames_raise_nothing_but_typed_errors(
    codec: Codec, frame: ClientFrame | ServerFrame, draw: st.DataObject
) -> None:
    look_at(codec, mutate(codec.encode(frame), draw))


@BOTH
@given(frame=client_frames | server_frames, cut=st.floats(0, 1, exclude_max=True))
def test_half_a_frame_is_no_frame(
    codec: Codec, frame: ClientFrame | ServerFrame, cut: float
) -> None:
    data = codec.encode(frame)
    with pytest.raises(NotAFrame) as raised:
        codec.decode_client(data[: int(len(data) * cut)])
    assert raised.value.close_code in (1002, 1007)
