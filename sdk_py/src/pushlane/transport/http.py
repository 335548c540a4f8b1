"""One HTTP/1.1 request and its answer over any byte stream, by h11.

A connection serves one request: the client's HTTP calls are an administrator's, few and far apart.
"""

from __future__ import annotations

from typing import Any

import h11
import msgspec

from pushlane.core.queues import Call
from pushlane.core.url import Endpoint
from pushlane.wire.errors import CODES, ConnectionLost, Internal, PushlaneError, error_for

_OK = range(200, 300)
_BY_STATUS = {info.http_status: info.code for info in reversed(CODES.values())}


class Exchange:
    """A call under way: write `request`, feed `receive` until it says True, then take `result`."""

    def __init__(self, endpoint: Endpoint, call: Call, token: str | None, max_bytes: int) -> None:
        self._connection = h11.Connection(h11.CLIENT)
        self._max_bytes = max_bytes
        self._status = 0
        self._body = bytearray()
        self.request = self._make(endpoint, call, token)

    def _make(self, endpoint: Endpoint, call: Call, token: str | None) -> bytes:
        headers = [
            ("Host", endpoint.authority),
            ("Accept", "application/json"),
            ("Connection", "close"),
        ]
        body = b"" if call.body is None else msgspec.json.encode(call.body)
        if call.body is not None:
            headers.append(("Content-Type", "application/json"))
        if call.body is not None or call.method not in ("GET", "DELETE"):
            headers.append(("Content-Length", str(len(body))))
        if token is not None:
            headers.append(("Authorization", f"Bearer {token}"))
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
            raise ConnectionLost(f"no whole HTTP answer: {fault}") from None

    def result(self) -> Any:
        """What the server answered, as plain Python objects; raises the error it answered with."""
        try:
            value = msgspec.json.decode(self._body) if self._body else None
        except msgspec.DecodeError:
            value = None
        if self._status in _OK:
            return value
        raise _error_of(self._status, value)


def _error_of(status: int, value: Any) -> PushlaneError:
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(error, dict) and isinstance(error.get("code"), str):
        retry_ms = error.get("retry_ms")
        message = str(error.get("message", ""))
        return error_for(error["code"], message, retry_ms if isinstance(retry_ms, int) else None)
    code = _BY_STATUS.get(status, "internal" if status >= 500 else "bad_request")
    return error_for(code, f"the server answered HTTP {status}")
