"""Messages as users see them, and as they are made of what users give."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from pushlane.core.lease import Lease
from pushlane.core.message import BaseMessage
from pushlane.core.publication import Item, make_message
from pushlane.core.subscription import Subscription
from pushlane.wire import JSON, frames
from pushlane.wire.errors import BadRequest


@dataclass
class Point:
    x: float
    name: str | None = None


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


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "wrap",
    [lambda n: n, lambda n: [None, n], lambda n: {"a": (Point(n),)}, lambda n: {n}],
)
def test_numbers_without_a_json_form_are_refused(number: float, wrap: Any) -> None:
    with pytest.raises(BadRequest, match="JSON"):
        make_message(Item(body=wrap(number)))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (None, b"null"),
        ({"a": None, 1: [None, 1.5]}, b'{"a":null,"1":[null,1.5]}'),
        ("null", b'"null"'),
        (Point(2.0), b'{"x":2.0,"name":null}'),
        (Raw(b" null"), b" null"),
        (Point(Raw(b"null")), b'{"x":null,"name":null}'),  # type: ignore[arg-type]
        ({"a": Raw(b"null")}, b'{"a":null}'),
        (datetime(2026, 1, 1, tzinfo=UTC), b'"2026-01-01T00:00:00Z"'),
    ],
)
def test_null_is_null(body: object, text: bytes) -> None:
    assert make_message(Item(body=body)).body == Raw(text)


def test_a_plain_body_is_not_converted_to_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """That would take six times as long as to write it."""
    monkeypatch.delattr(msgspec, "to_builtins")
    body = {"a": None, "b": [1, 1.5, True, "null", (None,)], "c": {"d": Raw(b"null")}}
    assert make_message(Item(body=body)).body == Raw(msgspec.json.encode(body))


@pytest.mark.parametrize("body", [b"x", bytearray(b"x"), memoryview(b"x")])
def test_bytes_are_no_body(body: object) -> None:
    with pytest.raises(BadRequest, match="use data="):
        make_message(Item(body=body))
    assert make_message(Item(data=body)).data == b"x"  # type: ignore[arg-type]


@pytest.mark.parametrize("depth", [100_000])
def test_a_body_that_json_can_not_hold(depth: int) -> None:
    nested: list[object] = []
    for _ in range(depth):
        nested = [nested]
    with pytest.raises(BadRequest, match="JSON"):
        make_message(Item(body=nested))
    while nested:
        nested = nested[0]  # type: ignore[assignment]
    for body in ({"a": "\ud800"}, object(), {(1, 2): 3}, 2**70 * 1j):
        with pytest.raises(BadRequest, match="JSON"):
            make_message(Item(body=body))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"data": "text"}, "data is str: bytes are needed"),
        ({"data": 5}, "data is int"),
        ({"key": 5}, "key is int: a string"),
        ({"dedup": b"x"}, "dedup is bytes"),
        ({"priority": "high"}, "priority is str: an integer"),
        ({"delay_ms": 1.5}, "delay_ms is float"),
        ({"ttl_ms": True}, "ttl_ms is bool"),
        ({"event_at": datetime(2026, 1, 1, tzinfo=UTC)}, "event_at is datetime"),
        ({"headers": [("a", "b")]}, "headers is list: a dict"),
        ({"headers": {"a": 1}}, "header 'a' is int"),
        ({"headers": {1: "a"}}, "header 1 is str: names and values are strings"),
    ],
)
def test_what_has_the_wrong_type_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        make_message(Item(**{"body": 1, **options}))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("delay", "did you mean 'delay_ms'?"),
        ("priorty", "did you mean 'priority'?"),
        ("header", "did you mean 'headers'?"),
        ("zzz", "there are body, data, key, dedup, priority"),
    ],
)
def test_what_no_message_has_is_refused_with_the_nearest_name(name: str, said: str) -> None:
    with pytest.raises(BadRequest) as caught:
        Item(body=1, **{name: 5})  # type: ignore[arg-type]
    assert f"no option {name!r}" in str(caught.value)
    assert said in str(caught.value)


def test_an_item_takes_names_only() -> None:
    with pytest.raises(TypeError):
        Item(1)  # type: ignore[call-arg]
