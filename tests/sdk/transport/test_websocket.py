"""The sans-I/O WebSocket, against the server side of the same library."""

from __future__ import annotations

import pytest
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from pushlane.core.choice import NO_ANSWER
from pushlane.core.url import parse_url
from pushlane.transport.websocket import WebSocket
from pushlane.wire import JSON, MSGPACK, Codec
from pushlane.wire.errors import ConnectionLost, Throttled, Unavailable


class Pair:
    """A client and a server, connected by hand."""

    def __init__(self, codec: Codec = JSON, max_bytes: int = 1000) -> None:
        self.client = WebSocket(parse_url("ws://h/base"), codec, max_bytes)
        self.server = ServerProtocol(subprotocols=[codec.subprotocol])  # type: ignore[list-item]
        self.server.receive_data(self.client.data_to_send())
        (request,) = self.server.events_received()
        assert isinstance(request, Request)
        self.request = request

    def accept(self) -> None:
        self.server.send_response(self.server.accept(self.request))
        self.to_client()
        assert self.client.is_open

    def to_client(self) -> None:
        for data in self.server.data_to_send():
            self.client.receive(data)

    def to_server(self) -> list[Frame]:
        self.server.receive_data(self.client.data_to_send())
        return [event for event in self.server.events_received() if isinstance(event, Frame)]


def test_the_handshake_asks_for_the_right_thing() -> None:
    pair = Pair()
    assert pair.request.path == "/base/v1/ws"
    assert pair.request.headers["Sec-WebSocket-Protocol"] == "pushlane.v1.json"
    assert "Sec-WebSocket-Extensions" not in pair.request.headers
    assert "Authorization" not in pair.request.headers
    pair.accept()


@pytest.mark.parametrize(("codec", "opcode"), [(JSON, Opcode.TEXT), (MSGPACK, Opcode.BINARY)])
def test_messages_of_one_tick_leave_in_one_piece(codec: Codec, opcode: Opcode) -> None:
    pair = Pair(codec)
    pair.accept()
    pair.client.send(b"one")
    pair.client.send(b"two")
    got = pair.to_server()
    assert [(frame.opcode, bytes(frame.data)) for frame in got] == [
        (opcode, b"one"), (opcode, b"two"),
    ]  # fmt: skip
    assert pair.client.data_to_send() == b""


def test_fragments_are_put_together_around_pings() -> None:
    pair = Pair()
    pair.accept()
    pair.server.send_text(b"a", fin=False)
    pair.server.send_ping(b"p")
    pair.server.send_continuation(b"b", fin=False)
    pair.server.send_continuation(b"c", fin=True)
    pair.server.send_text(b"d")
    pair.to_client()
    assert pair.client.messages == [b"abc", b"d"]
    (pong,) = pair.to_server()
    assert (pong.opcode, bytes(pong.data)) == (Opcode.PONG, b"p")


def test_a_message_that_is_too_large_ends_it() -> None:
    pair = Pair(max_bytes=10)
    pair.accept()
    pair.server.send_text(b"x" * 11)
    pair.to_client()
    assert pair.client.messages == []
    (close,) = pair.to_server()
    assert close.opcode is Opcode.CLOSE
    assert not pair.client.is_open
    pair.client.send(b"dropped")
    pair.client.say_close(1000)
    assert pair.client.data_to_send() == b""


def test_the_servers_close_is_known() -> None:
    pair = Pair()
    pair.accept()
    pair.server.send_close(4002, "slow_consumer")
    pair.to_client()
    assert pair.client.close == (4002, "slow_consumer")
    assert pair.client.wants_eof
    pair.client.receive(b"")
    assert pair.client.is_over


def test_a_stream_that_ends_without_a_word() -> None:
    pair = Pair()
    pair.accept()
    pair.client.receive(b"")
    assert pair.client.close == (1006, "")
    assert pair.client.is_over
    assert pair.client.failure is None


@pytest.mark.parametrize(
    ("head", "error", "retry_ms"),
    [
        (b"429 Slow\r\nRetry-After: 3", Throttled, 3000),
        (b"503 Busy\r\nRetry-After: tomorrow", Unavailable, None),
        (b"504 Gone", Unavailable, None),
    ],
)
def test_a_refused_upgrade_says_when_to_come_back(
    head: bytes, error: type[Exception], retry_ms: int | None
) -> None:
    client = WebSocket(parse_url("ws://h"), JSON, 1000)
    client.receive(b"HTTP/1.1 " + head + b"\r\nContent-Length: 0\r\n\r\n")
    failure = client.failure
    assert type(failure) is error
    assert failure is not None
    assert failure.retry_ms == retry_ms
    assert client.is_over


def test_what_is_no_http() -> None:
    client = WebSocket(parse_url("ws://h"), JSON, 1000)
    client.receive(b"SSH-2.0-OpenSSH\r\n\r\n")
    assert type(client.failure) is ConnectionLost


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n", 400),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", 502),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", NO_ANSWER),
        (b"220 smtp.example.com\r\n\r\n", NO_ANSWER),
        (b"", NO_ANSWER),
    ],
)
def test_what_came_in_place_of_an_upgrade(answer: bytes, refused: int) -> None:
    client = Pair().client
    if answer:
        client.receive(answer)
    client.receive(b"")
    assert client.refused == refused


def test_an_upgrade_that_succeeded_was_not_refused() -> None:
    pair = Pair()
    pair.accept()
    assert pair.client.refused is None
    pair.client.receive(b"")
    assert pair.client.refused is None
