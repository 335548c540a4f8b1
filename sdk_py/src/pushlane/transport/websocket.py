"""A client's WebSocket over any byte stream: the handshake, whole messages in and out, the close.

Feed it what was read, write what `data_to_send` gives. Several messages that are sent before that
leave in one piece, and all messages of one read come out together: the cost of a system call is
many times that of a frame. Compression is never offered.
"""

from __future__ import annotations

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from pushlane.core.choice import NO_ANSWER
from pushlane.core.url import Endpoint
from pushlane.wire.codec import Codec
from pushlane.wire.errors import CODES, ConnectionLost, PushlaneError, Unavailable, error_for

_ABNORMAL = 1006
_SERVER_FAULT = 500
_BY_STATUS = {info.http_status: info.code for info in reversed(CODES.values())}


class WebSocket:
    """One WebSocket connection, seen from the client."""

    def __init__(self, endpoint: Endpoint, codec: Codec, max_bytes: int) -> None:
        self._is_text = codec.is_text
        self._protocol = ClientProtocol(
            parse_uri(endpoint.ws_url),
            subprotocols=[Subprotocol(codec.subprotocol)],
            max_size=max_bytes,
        )
        self._protocol.send_request(self._protocol.connect())
        self._fragments: list[bytes] = []
        self.messages: list[bytes] = []
        """What arrived; whoever takes them clears the list."""

    @property
    def is_open(self) -> bool:
        return self._protocol.state is State.OPEN

    @property
    def is_over(self) -> bool:
        """Nothing more will come of it: close the stream."""
        return self._protocol.state is State.CLOSED or self.failure is not None

    @property
    def wants_eof(self) -> bool:
        """Both sides said close: what is left is to close the stream."""
        return self._protocol.close_expected()

    @property
    def failure(self) -> PushlaneError | None:
        """Why there is no WebSocket, when the handshake failed."""
        exc = self._protocol.handshake_exc
        if exc is None:
            return None
        if isinstance(exc, InvalidStatus):
            return _error_for(exc.response)
        return ConnectionLost(f"no WebSocket there: {exc}")

    @property
    def refused(self) -> int | None:
        """The HTTP status that came in place of an upgrade; None when the handshake succeeded."""
        exc = self._protocol.handshake_exc
        if exc is None:
            return None if self._protocol.state is not State.CONNECTING else NO_ANSWER
        return exc.response.status_code if isinstance(exc, InvalidStatus) else NO_ANSWER

    @property
    def close(self) -> tuple[int, str]:
        """The close code and reason that came; 1006 when none did."""
        close = self._protocol.close_rcvd
        return (_ABNORMAL, "") if close is None else (close.code, close.reason)

    def receive(self, data: bytes) -> None:
        """Take what was read; nothing means that the stream has ended."""
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._take(event)

    def _take(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        data = bytes(frame.data)
        if frame.fin and not self._fragments:
            self.messages.append(data)
            return
        self._fragments.append(data)
        if frame.fin:
            self.messages.append(b"".join(self._fragments))
            self._fragments.clear()

    def send(self, data: bytes) -> None:
        """Send a message; after the close has begun it is dropped."""
        if not self.is_open:
            return
        if self._is_text:
            self._protocol.send_text(data)
        else:
            self._protocol.send_binary(data)

    def say_close(self, code: int, reason: str = "") -> None:
        """Begin the close; without a handshake there is nothing to say."""
        if self.is_open:
            self._protocol.send_close(code, reason)

    def data_to_send(self) -> bytes:
        """All that is to be written now; empty when there is nothing."""
        return b"".join(self._protocol.data_to_send())


def _error_for(response: Response) -> PushlaneError:
    """The error that an HTTP answer in place of the upgrade stands for."""
    status = response.status_code
    message = f"the server answered HTTP {status} {response.reason_phrase}".rstrip()
    retry_ms = _retry_ms(response.headers.get("Retry-After"))
    code = _BY_STATUS.get(status)
    if code is not None:
        return error_for(code, message, retry_ms)
    if status > _SERVER_FAULT:
        return Unavailable(message, retry_ms)
    return error_for("bad_request", message)


def _retry_ms(value: str | None) -> int | None:
    return int(value) * 1000 if value is not None and value.isascii() and value.isdigit() else None
