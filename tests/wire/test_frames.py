from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from msgspec import UNSET, Raw

from pushlane.wire import frames
from pushlane.wire.errors import BadFrame, Throttled
from pushlane.wire.frames import ClientFrame, DeliverMessage, PublishMessage, ServerFrame

CLIENT = "hello publish subscribe start ack nack extend credit unsubscribe"
SERVER = "welcome published subscribed done deliver lease_lost ended beat goaway error"


def ops(union: object) -> list[object]:
    return [frame.__struct_config__.tag for frame in get_args(union)]


def test_the_ops_are_those_of_the_design() -> None:
    assert ops(ClientFrame) == CLIENT.split()
    assert ops(ServerFrame) == SERVER.split()


def test_optional_fields_are_left_out() -> None:
    assert msgspec.to_builtins(frames.Hello()) == {"op": "hello"}
    assert msgspec.to_builtins(frames.Done(1)) == {"op": "done", "id": 1}
    assert msgspec.to_builtins(frames.Subscribe(1, "q", 5)) == {
        "op": "subscribe",
        "id": 1,
        "from": "q",
        "credit": 5,
    }
    assert msgspec.to_builtins(frames.Deliver(1, [])) == {"op": "deliver", "sub": 1, "messages": []}


def test_a_nack_at_once_is_not_a_nack_without_delay() -> None:
    assert "delay_ms" not in msgspec.to_builtins(frames.Nack(1, ["p.1"]))
    assert msgspec.to_builtins(frames.Nack(1, ["p.1"], delay_ms=0))["delay_ms"] == 0


@pytest.mark.parametrize("cls", [PublishMessage, DeliverMessage])
def test_null_is_a_body_and_nothing_is_none(
    cls: type[PublishMessage] | type[DeliverMessage],
) -> None:
    rest = b'"id":"m","attempt":1,"published_at":0'
    with_null = msgspec.json.decode(b'{"body":null,%s}' % rest, type=cls)
    without = msgspec.json.decode(b"{%s}" % rest, type=cls)
    assert with_null.body == Raw(b"null")
    assert without.body is UNSET
    assert b'"body":null' in msgspec.json.encode(with_null)
    assert b"body" not in msgspec.json.encode(without)


def test_frames_are_not_tracked_by_the_garbage_collector() -> None:
    for frame in get_args(ClientFrame) + get_args(ServerFrame):
        assert not frame.__struct_config__.gc


def test_an_error_frame_carries_what_the_session_knows() -> None:
    frame = frames.error_frame(Throttled("too fast", 20), id=3, request="publish", sub=None)
    assert frame == frames.ErrorFrame("throttled", "too fast", 20, 3, "publish")
    assert frames.error_frame(Throttled("x")) == frames.ErrorFrame("throttled", "x")


def test_an_error_frame_for_a_bad_frame_carries_what_was_read() -> None:
    error = BadFrame("sub: wrong", id=3, op="ack", sub=7)
    expected = frames.ErrorFrame("bad_request", "sub: wrong", None, 3, "ack", 7)
    assert frames.error_frame(error) == expected
    assert frames.error_frame(error, id=99, request="x", sub=98) == expected
