"""HTTP requests without a stream: what is written, and whether the stream can be used again."""

from __future__ import annotations

import pytest

from pushlane.core.queues import Call
from pushlane.core.url import parse_url
from pushlane.transport.http import Exchange
from pushlane.wire.errors import Unauthorized

SERVER = parse_url("http://h:1/base")
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def exchange(*, keep: bool = True, token: str | None = None, body: object = b"{}") -> Exchange:
    return Exchange(SERVER, Call("POST", "/v1/x", body), token, 1000, keep=keep)  # type: ignore[arg-type]


def test_json_goes_out_as_it_is() -> None:
    request = exchange(body=b'{"a": 1}').request
    assert request.startswith(b"POST /base/v1/x HTTP/1.1\r\n")
    assert request.endswith(b'\r\n\r\n{"a": 1}')
    assert b"close" not in request
    assert exchange(body={"a": 1}).request.endswith(b'\r\n\r\n{"a":1}')


@pytest.mark.parametrize(
    ("keep", "answer", "is_reusable"),
    [
        (True, OK, True),
        (False, OK, False),
        (True, OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), False),
        (True, b"HTTP/1.0" + OK[8:], False),
        (True, OK + b"HTTP/1.1 200", False),
    ],
    ids=["kept", "ours closes", "theirs closes", "old", "more than asked for"],
)
def test_a_stream_can_be_used_again(keep: bool, answer: bytes, is_reusable: bool) -> None:
    asked = exchange(keep=keep)
    assert not asked.is_reusable
    assert asked.receive(answer)
    assert asked.is_reusable == is_reusable
    assert asked.answer == (200, b"{}")


@pytest.mark.parametrize("token", ["sec\nret", "secrét"])
def test_a_token_that_no_header_can_hold_is_not_shown(token: str) -> None:
    with pytest.raises(Unauthorized) as caught:
        exchange(token=token)
    assert "sec" not in str(caught.value)
    assert caught.value.__suppress_context__
