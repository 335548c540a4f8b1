"""Messages as users see them, and as they are made of what users give."""

from __future__ import annotations

import pytest
from msgspec import UNSET, Raw

from pushlane.core.lease import Lease
from pushlane.core.message import BaseMessage
from pushlane.core.publication import Item, make_message
from pushlane.core.subscription import Subscription
from pushlane.wire import JSON, frames
from pushlane.wire.errors import BadRequest


def received(**fields: object) -> BaseMessage:
    message = frames.DeliverMessage("m-1", 2, 77, receipt="P.1", **fields)  # type: ignore[arg-type]
    frame = JSON.decode_server(JSON.encode(frames.Deliver(1, [message])))
    assert isinstance(frame, frames.Deliver)
    return BaseMessage(Lease(Subscription("q", 1, "explicit", None, None), frame.messages[0]))


def test_a_body_is_decoded_when_asked_for_and_kept_as_text() -> None:
    message = received(body=Raw(b'{"a": [1, 2.50]}'))
    assert message.raw == b'{"a": [1, 2.50]}'
    assert message.body == {"a": [1, 2.5]}
    assert message.body is message.body
    assert message._lease.message.body is UNSET  # the frame is let go
    assert message.data is None


def test_the_rest() -> None:
    message = received(data=b"\x00", headers={"a": "b"}, key="k", fence=9)
    assert (message.id, message.attempt, message.published_at) == ("m-1", 2, 77)
    assert (message.data, message.body, message.raw) == (b"\x00", None, None)
    assert (message.headers, message.key, message.fence) == ({"a": "b"}, "k", 9)
    assert (message.lost, message.is_settled, message.dead) == (False, False, None)
    assert repr(message) == "<BaseMessage m-1 attempt=2>"
    assert received().headers == {}


def test_a_body_is_written_at_the_call() -> None:
    body = {"n": 1}
    message = make_message(Item(body=body))
    body["n"] = 2
    assert message.body == Raw(b'{"n":1}')


def test_nan_is_null_as_in_javascript() -> None:
    assert make_message(Item(body=[float("nan"), float("inf")])).body == Raw(b"[null,null]")


@pytest.mark.parametrize("depth", [100_000])
def test_a_body_that_json_can_not_hold(depth: int) -> None:
    nested: list[object] = []
    for _ in range(depth):
        nested = [nested]
    with pytest.raises(BadRequest, match="JSON"):
        make_message(Item(body=nested))
    while nested:
        nested = nested[0]  # type: ignore[assignment]
    with pytest.raises(BadRequest, match="JSON"):
        make_message(Item(body={"a": "\ud800"}))
    with pytest.raises(TypeError):
        make_message(Item(body=object()))
