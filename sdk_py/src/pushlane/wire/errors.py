"""Every error of the wire, what it means, and what to do next.

    PushlaneError                     anything that Pushlane raises on purpose
    ├── BadRequest                    the request is wrong; it stays wrong when repeated
    │   └── BadFrame                  JSON or MessagePack, but no valid frame; the session lives
    ├── Unauthorized                  no, wrong or expired credentials
    ├── Forbidden                     the credentials don't allow this
    ├── NotFound                      no such queue, topic or message
    ├── TooLarge                      the message is over its limit
    ├── Throttled                     over a rate or a quota
    ├── QueueFull                     the queue is at its limit and its policy is "reject"
    ├── LeaseLost                     the receipt is no longer the valid one
    ├── Conflict                      somebody else changed it meanwhile
    ├── Unavailable                   try again; the outcome is unknown
    ├── Internal                      our bug; the outcome is unknown
    ├── NotAFrame                     bytes that are no frame at all; the session is closed
    └── ConnectionLost                (SDK only) the connection went before the answer came

`CODES` is the one table of the codes, for the server, both SDKs, HTTP and docs; `CLOSES` that of
the WebSocket close codes. A code that this version doesn't know (from a newer server) becomes a
plain `PushlaneError` with that code, so a client never fails on an error it has not heard of.
NotAFrame is deliberately no BadRequest: who handles a BadRequest keeps the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class PushlaneError(Exception):
    """An error with a code, a message for people, and perhaps when to try again."""

    code: str = "internal"
    limit: str | None = None
    """The limit that was reached, for whoever counts them; it doesn't travel."""

    def __init__(self, code: str, message: str, retry_ms: int | None = None) -> None:
        self.code = code
        self.message = message
        self.retry_ms = retry_ms

    @property
    def info(self) -> ErrorInfo:
        """What the table says of this error; an unknown code is treated as `internal`."""
        return CODES.get(self.code, CODES["internal"])

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code!r}, {self.message!r}, retry_ms={self.retry_ms})"

    def __reduce__(self) -> tuple[Callable[..., PushlaneError], tuple[Any, ...]]:
        # Constructors differ between the classes, so pickle by state and not by arguments.
        return _rebuild, (type(self), self.__dict__)


def _rebuild(cls: type[PushlaneError], state: dict[str, Any]) -> PushlaneError:
    error = cls.__new__(cls)
    error.__dict__.update(state)
    return error


class _Coded(PushlaneError):
    """A class that stands for one code, made with just a message."""

    def __init__(
        self, message: str, retry_ms: int | None = None, *, limit: str | None = None
    ) -> None:
        self.message = message
        self.retry_ms = retry_ms
        if limit is not None:
            self.limit = limit


class BadRequest(_Coded):
    """The request is wrong, and stays wrong when repeated."""

    code = "bad_request"


class BadFrame(BadRequest):
    """An object that is no valid frame, with whatever of it the answer can carry."""

    def __init__(
        self,
        message: str,
        *,
        id: int | None = None,
        op: str | None = None,
        sub: int | None = None,
        limit: str | None = None,
    ) -> None:
        super().__init__(message, limit=limit)
        self.id = id
        self.op = op
        self.sub = sub


class Unauthorized(_Coded):
    """No, wrong or expired credentials."""

    code = "unauthorized"


class Forbidden(_Coded):
    """The credentials don't allow this."""

    code = "forbidden"


class NotFound(_Coded):
    """No such queue, topic or message."""

    code = "not_found"


class TooLarge(_Coded):
    """The message is over its limit."""

    code = "too_large"


class Throttled(_Coded):
    """Over a rate or a quota."""

    code = "throttled"


class QueueFull(_Coded):
    """The queue is at its limit and refuses new messages."""

    code = "queue_full"


class LeaseLost(_Coded):
    """The receipt is no longer the valid one of its message."""

    code = "lease_lost"


class Conflict(_Coded):
    """Somebody else changed it meanwhile."""

    code = "conflict"


class Unavailable(_Coded):
    """The service can't answer for this now; the outcome is unknown."""

    code = "unavailable"


class Internal(_Coded):
    """A bug of ours; the outcome is unknown."""

    code = "internal"


class NotAFrame(_Coded):
    """Bytes that are no frame at all: say `error`, then close with `close_code`."""

    code = "bad_request"

    def __init__(self, message: str, close_code: int = 1002) -> None:
        super().__init__(message)
        self.close_code = close_code


class ConnectionLost(_Coded):
    """The connection went before the answer came; the outcome is unknown (SDK only)."""

    code = "connection_lost"

    @property
    def info(self) -> ErrorInfo:
        """Never on the wire, hence not in CODES."""
        return _CONNECTION_LOST


class ErrorInfo(NamedTuple):
    """What a code means to everybody who meets it."""

    code: str
    cls: Callable[[str, int | None], PushlaneError]
    http_status: int
    close_code: int | None
    """Set when this error *always* ends the session."""
    fault: str
    """Whose: `caller`, `server`, or `nobody` (a state that passes)."""
    outcome_unknown: bool
    """True: it may have happened. False: nothing changed."""
    retry: bool
    """Whether repeating the same request can succeed."""
    advice: str


_AGAIN = "Repeat with the same seq, dedup id or receipt, after retry_ms or with backoff."

_ROWS = (
    # code, class, HTTP, closes, whose fault, unknown, retry, advice
    ErrorInfo("bad_request", BadRequest, 400, None, "caller", False, False,
              "Fix the request; the message names the field."),
    ErrorInfo("unauthorized", Unauthorized, 401, 1008, "caller", False, False,
              "Get a valid token, then connect again."),
    ErrorInfo("forbidden", Forbidden, 403, None, "caller", False, False,
              "Ask for a token with the right to do this."),
    ErrorInfo("not_found", NotFound, 404, None, "caller", False, False,
              "Check the name, create the queue, or turn auto-create on."),
    ErrorInfo("too_large", TooLarge, 413, None, "caller", False, False,
              "Make the message smaller, or store it elsewhere and send a reference."),
    ErrorInfo("throttled", Throttled, 429, None, "nobody", False, True,
              "Wait retry_ms, then repeat; slow down if it keeps happening."),
    ErrorInfo("queue_full", QueueFull, 507, None, "nobody", False, True,
              "Repeat with backoff once consumers catch up, or raise the queue's limit."),
    ErrorInfo("lease_lost", LeaseLost, 409, None, "nobody", False, False,
              "Stop work on this message: it is no longer yours and will be delivered again."),
    ErrorInfo("conflict", Conflict, 409, None, "nobody", False, False,
              "Read the current state, decide again, then send a new request."),
    ErrorInfo("unavailable", Unavailable, 503, None, "server", True, True, _AGAIN),
    ErrorInfo("internal", Internal, 500, None, "server", True, True,
              _AGAIN + " Report it if it keeps happening."),
)  # fmt: skip

CODES: dict[str, ErrorInfo] = {row.code: row for row in _ROWS}

_CONNECTION_LOST = ErrorInfo(
    "connection_lost", ConnectionLost, 503, None, "nobody", True, True, _AGAIN
)


class CloseInfo(NamedTuple):
    """What a WebSocket close code means, and whether to come back."""

    code: int
    reason: str
    """What the close reason says; the `error` code or `goaway` reason that came before."""
    reconnect: bool
    """Whether a client should connect again on its own."""
    meaning: str


_CLOSES = (
    CloseInfo(1000, "", False, "the client ends its session: what it holds goes back at once"),
    CloseInfo(1001, "drain", True, "the server is leaving, after goaway"),
    CloseInfo(1002, "bad_request", False, "a frame that is neither JSON nor MessagePack"),
    CloseInfo(1003, "bad_request", False, "text where binary is agreed, or binary where text is"),
    CloseInfo(1007, "bad_request", False, "text that is not UTF-8"),
    CloseInfo(
        1008,
        "unauthorized",
        False,
        "not authorized, or no hello: `unavailable` when it was late (come back), "
        "`bad_request` when something else came first; `throttled`: a flood of pings or fragments",
    ),
    CloseInfo(1009, "too_large", False, "a frame over frame_bytes"),
    CloseInfo(1011, "internal", True, "a bug in the server ended the session"),
    CloseInfo(1013, "overload", True, "the server is overloaded: wait reconnect_ms"),
    CloseInfo(4001, "taken_over", False, "the session was resumed on another connection"),
    CloseInfo(4002, "slow_consumer", True, "the client read too slowly"),
)

CLOSES: dict[int, CloseInfo] = {row.code: row for row in _CLOSES}


def error_for(code: str, message: str, retry_ms: int | None = None) -> PushlaneError:
    """The exception for a code from the wire, known or not."""
    info = CODES.get(code)
    if info is None:
        return PushlaneError(code, message, retry_ms)
    return info.cls(message, retry_ms)
