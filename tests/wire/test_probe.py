from __future__ import annotations

import contextlib
import json

import msgspec
import pytest

from pushlane.wire.codec import JSON, MSGPACK
from pushlane.wire.errors import BadFrame, NotAFrame
from pushlane.wire.frames import Publish

pack = msgspec.msgpack.encode


def bad_json(data: bytes) -> BadFrame:
    with pytest.raises(BadFrame) as raised:
        JSON.decode_client(data)
    assert len(raised.value.message) < 500
    return raised.value


def bad_msgpack(data: bytes) -> BadFrame:
    with pytest.raises(BadFrame) as raised:
        MSGPACK.decode_client(data)
    return raised.value


def read(error: BadFrame) -> tuple[int | None, str | None, int | None]:
    return error.id, error.op, error.sub


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b'{"op":"hello"',
        b'{"op":"hello"} x',
        b'{"op":"hello","token":5} x',
        b'{"op":"hello","x":NaN}',
        b"[1,2",
        b'{"op":"hello","token":"\\ud800}',
        b'\xef\xbb\xbf{"op":"hello"}',
    ],
)
def test_what_is_no_json_closes_with_1002(data: bytes) -> None:
    with pytest.raises(NotAFrame, match=r"^not JSON: ") as raised:
        JSON.decode_client(data)
    assert raised.value.close_code == 1002


@pytest.mark.parametrize(
    "data",
    [
        b'{"op":"hello","token":"\xff"}',
        b'{"op":"hello","strange":"\xff"}',
        b'{"op":"hello","\xff":1}',
        b'{"op":"\xff"}',
        b'{"op":"publish","id":1,"to":"q","messages":[{"body":"\xed\xa0\x80"}]}',
        b"\x82\xa2op",
    ],
)
def test_what_is_not_utf8_closes_with_1007(data: bytes) -> None:
    with pytest.raises(NotAFrame, match=r"^not UTF-8: ") as raised:
        JSON.decode_client(data)
    assert raised.value.close_code == 1007


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x81", b"\xdf\xff\xff\xff\xff", pack({"op": "hello"}) + b"\x00", b"{}"]
)
def test_what_is_no_msgpack_closes_with_1002(data: bytes) -> None:
    with pytest.raises(NotAFrame, match=r"^not MessagePack: ") as raised:
        MSGPACK.decode_client(data)
    assert raised.value.close_code == 1002


@pytest.mark.parametrize("data", [b"\x82\xa2op\xa5hello\xa5token\xa1\xff", b"\x81\xa2op\xa1\xff"])
def test_msgpack_text_that_is_not_utf8_closes_with_1007(data: bytes) -> None:
    with pytest.raises(NotAFrame) as raised:
        MSGPACK.decode_client(data)
    assert raised.value.close_code == 1007


@pytest.mark.parametrize(
    ("fields", "message", "known"),
    [
        ({}, "Object missing required field `op`", (None, None, None)),
        ({"op": "dance", "id": 3}, "op: unknown op 'dance'", (3, "dance", None)),
        ({"op": "welcome", "id": 3}, "op: unknown op 'welcome'", (3, "welcome", None)),
        ({"op": 5, "id": 3}, "op: Expected `str`", (3, None, None)),
        ({"op": "publish", "id": 3}, "Object missing required field `to`", (3, "publish", None)),
        (
            {"id": 4, "op": "publish", "to": "q", "messages": [{"body": 1}, {"priority": 10}]},
            "messages[1].priority: Expected `int` <= 9",
            (4, "publish", None),
        ),
        (
            {"id": 4, "op": "publish", "to": "q", "messages": [{"data": 5}]},
            "messages[0].data: Expected `",
            (4, "publish", None),
        ),
        (
            {"op": "ack", "sub": 7, "receipts": "p.1", "id": 5},
            "receipts: Expected `array`, got `str`",
            (5, "ack", 7),
        ),
        ({"op": "ack", "sub": "7", "receipts": []}, "sub: Expected `int`", (None, "ack", None)),
        (
            {"op": "subscribe", "id": 1, "from": "q", "credit": 1, "ack": "maybe"},
            "ack: Invalid enum value 'maybe'",
            (1, "subscribe", None),
        ),
        (
            {"op": "subscribe", "id": 1, "from": "q", "credit": 256.0},
            "credit: Expected `int`, got `float`",
            (1, "subscribe", None),
        ),
    ],
)
def test_bad_frames_name_the_field_and_what_could_be_read(
    fields: dict[str, object], message: str, known: tuple[int | None, str | None, int | None]
) -> None:
    for error in (bad_json(json.dumps(fields).encode()), bad_msgpack(pack(fields))):
        assert error.message.startswith(message)
        assert read(error) == known


@pytest.mark.parametrize("value", [[], 1, "hello", None, 1.5, True])
def test_what_is_no_object_is_a_bad_frame(value: object) -> None:
    for error in (bad_json(json.dumps(value).encode()), bad_msgpack(pack(value))):
        assert error.message.startswith("Expected `object`, got ")
        assert read(error) == (None, None, None)


def test_msgpack_keys_must_be_strings() -> None:
    assert read(bad_msgpack(pack({1: 2, "op": "hello"}))) == (None, None, None)


def test_data_must_be_padded_base64() -> None:
    for text in ("YQ", "Y!==", "_-=="):
        data = b'{"op":"publish","id":2,"to":"q","messages":[{"data":"%s"}]}' % text.encode()
        assert bad_json(data).message == "messages[0].data: Invalid base64 encoded string"


def test_messages_are_kept_short() -> None:
    error = bad_json(json.dumps({"op": "x" * 100_000, "id": 1}).encode())
    assert error.op == "x" * 200
    assert bad_json(b'{"op":"unsubscribe","id":%s,"sub":1}' % (b"9" * 100_000)).id is None


@pytest.mark.parametrize(
    "half", ['"\\ud83d"', '"cut \\ud83d off"', '"\\ude00"', '"\\uD83D\\\\"', '"\\ud83d\\ud83d"']
)
def test_half_a_surrogate_pair_leaves_the_session_alive(half: str) -> None:
    front = '{"op":"publish","id":11,"to":"q","messages":[{"body":"\\\\ud83d"},{"body":'
    error = bad_json((front + half + "}]}").encode())
    assert error.message.startswith("half a surrogate pair")
    assert read(error) == (11, "publish", None)


@pytest.mark.parametrize("depth", [2000, 100_000])
def test_a_depth_bomb_is_answered_under_its_id(depth: int) -> None:
    bombs = [b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth]
    for bomb in bombs:
        front = b'{"op":"publish","id":12,"to":"q","messages":[{"body":%s}]}' % bomb
        back = b' {"messages":[{"body":%s}],"to":"q","id":12,"op":"publish"} ' % bomb
        for data in (front, back):
            error = bad_json(data)
            assert error.message == "nested deeper than 500"
            assert read(error) == (12, "publish", None)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000,
        b'{"op":"hello","x":' + b"[" * 100_000,
        b'{"op":"hello","x":' + b"[" * 5000 + b"]" * 4000,
        b'{"op":5,"x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_other_bombs_are_bad_frames(data: bytes) -> None:
    assert bad_json(data).message == "nested deeper than 500"


def test_msgpack_bombs_are_bad_frames() -> None:
    deep = b"\x91" * 100_000
    for data in (deep + b"\x01", b"\x82\xa2op\xa5hello\xa1x" + deep + b"\x01"):
        assert bad_msgpack(data).message == "nested deeper than 500"


def test_from_legal_to_hopeless_nesting_nothing_but_a_bad_frame_comes_out() -> None:
    """Where msgspec gives up depends on the stack; the answer doesn't."""
    for depth in range(930, 1000):
        inner = b"[" * depth + b"]" * depth
        data = b'{"op":"publish","id":1,"to":"q","messages":[{"body":%s}]}' % inner
        with contextlib.suppress(BadFrame):
            assert isinstance(JSON.decode_client(data), Publish)
            continue
        assert bad_json(data).message == "nested deeper than 500"
        assert bad_json(data).id == 1
