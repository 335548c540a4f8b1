"""How the listener says no to a request: a status and the protocol's JSON error.

    {"error": {"code": "bad_request", "message": "…"}}

Only texts of our own go into the message, never what the client sent: it may be a secret.
"""

from __future__ import annotations

from http import HTTPStatus

import msgspec

_BODY = msgspec.json.Encoder()


class Refusal(Exception):
    """A request that the listener answers itself; the connection closes afterwards."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "bad_request",
        retry_ms: int | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.retry_ms = retry_ms
        self.headers = headers

    def answer(self, *, head_only: bool = False) -> bytes:
        """The whole response."""
        error: dict[str, str | int] = {"code": self.code, "message": self.message}
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        if self.retry_ms is not None:
            error["retry_ms"] = self.retry_ms
            lines.append(f"Retry-After: {-(-self.retry_ms // 1000)}")
        body = _BODY.encode({"error": error})
        lines += [f"{name}: {value}" for name, value in self.headers]
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        lines += ["Connection: close", "", ""]
        head = "\r\n".join(lines).encode()
        return head if head_only else head + body


OVERLOAD = Refusal(
    503, "overload: too many connections, come back later", code="unavailable", retry_ms=5000
)
TOO_MUCH = Refusal(
    503,
    "overload: too much of requests without authentication waits here, come back later",
    code="unavailable",
    retry_ms=5000,
)
YOUR_SHARE = Refusal(
    429,
    "too many large requests of yours are not complete: send fewer at once, or faster",
    code="throttled",
    retry_ms=5000,
)
NEEDS_TLS = Refusal(400, "this port speaks TLS only: the address begins with wss:// or https://")
INTERNAL = Refusal(500, "internal error: the server's log has the details", code="internal")
