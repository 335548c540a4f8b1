"""HTTP/1.1 requests and their answers over any byte stream, by h11."""

from __future__ import annotations

from typing import Any

import h11
import msgspec

from pushlane.core.queues import Answer, Call
from pushlane.core.url import Endpoint
from pushlane.wire.errors import BadRequest, ConnectionLost, Internal, Unauthorized


class Exchange:
    """A call under way: write `request`, feed `receive` until it says True, then take `result`.

    A stream can carry another one afterwards, when it was made with `keep` and `is_reusable`.
    """

    def __init__(
        self, endpoint: Endpoint, call: Call, token: str | None, max_bytes: int, *,
        keep: bool = False,
    ) -> None:  # fmt: skip
        self._connection = h11.Connection(h11.CLIENT)
        self._max_bytes = max_bytes
        self._keep = keep
        self._status = 0
        self._body = bytearray()
        try:
            self.request = self._make(endpoint, call, token)
        except (h11.LocalProtocolError, UnicodeEncodeError):  # which show what they refuse
            raise Unauthorized("the token has characters that a header can't have") from None

    def _make(self, endpoint: Endpoint, call: Call, token: str | None) -> bytes:
        headers = [("Host", endpoint.authority), ("Accept", "application/json")]
        if not self._keep:
            headers.append(("Connection", "close"))
        body = _bytes(call)
        if call.body is not None:
            headers.append(("Content-Type", "application/json"))
        if call.body is not None or call.method not in ("GET", "DELETE"):
            headers.append(("Content-Length", str(len(body))))
        if token is not None:
            headers.append(("Authorization", f"Bearer {token}"))
        headers += call.headers
        target = endpoint.prefix + call.target
        request = h11.Request(method=call.method, target=target, headers=headers)
        parts = [self._connection.send(request)]
        if body:
            parts.append(self._connection.send(h11.Data(data=body)))
        parts.append(self._connection.send(h11.EndOfMessage()))
        return b"".join(part for part in parts if part)

    def receive(self, data: bytes) -> bool:
        """Take what was read (nothing: the stream ended); True when the answer is complete."""
        try:
            self._connection.receive_data(data)
            while True:
                event = self._connection.next_event()
                if isinstance(event, h11.Response):
                    self._status = event.status_code
                elif isinstance(event, h11.Data):
                    self._body += event.data
                    if len(self._body) > self._max_bytes:
                        raise Internal(f"an answer of more than {self._max_bytes} bytes")
                elif isinstance(event, h11.EndOfMessage):
                    return True
                elif not isinstance(event, h11.InformationalResponse):
                    return False
        except h11.RemoteProtocolError as fault:
            raise ConnectionLost(f"incomplete HTTP answer: {fault}") from None

    @property
    def is_reusable(self) -> bool:
        """Whether the stream may carry another request: both sides are done, and want to."""
        states = self._connection.states
        is_clean = not self._connection.trailing_data[0]
        return is_clean and set(states.values()) == {h11.DONE}

    @property
    def answer(self) -> Answer:
        """What the server answered."""
        return Answer(self._status, bytes(self._body))

    def result(self) -> Any:
        """What the server answered, as plain Python objects; raises the error it answered with."""
        answer = self.answer
        if answer.error is not None:
            raise answer.error
        return answer.value


def _bytes(call: Call) -> bytes:
    if call.body is None or isinstance(call.body, bytes):
        return call.body or b""
    try:
        return msgspec.json.encode(call.body)
    except (TypeError, ValueError, OverflowError, RecursionError) as fault:
        raise BadRequest(f"{call.target} can't be asked: no JSON for it: {fault}") from fault
