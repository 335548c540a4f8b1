"""What the end of a connection means: come back, or give up.

A server that closes says by its code, or by the error before, whether coming back makes sense
(`CLOSES`, `CODES`); after its goaway it always does.
"""

from __future__ import annotations

from typing import NamedTuple

from pushlane.wire.errors import CLOSES, CODES, ConnectionLost, PushlaneError, error_for

NORMAL = 1000
"""The session ends with the connection. With any other code it can be resumed."""
GOING_AWAY = 1001
PROTOCOL_ERROR = 1002
ABNORMAL = 1006
"""No close came."""


class Parting(NamedTuple):
    """How we part."""

    error: PushlaneError
    is_final: bool


def parting(
    code: int, reason: str, error: PushlaneError | None, *, is_leaving: bool
) -> Parting:  # fmt: skip
    """Of a close with this code; `error` where more is known, `is_leaving` after a goaway."""
    info = CLOSES.get(code)
    said = CODES.get(reason)
    may_return = info is None or info.reconnect or (said is not None and said.retry)
    is_final = not may_return and code != NORMAL
    if is_final and error is None:
        assert info is not None
        error = error_for(reason or info.reason, f"the server closed with {code}: {reason}")
    if error is None:
        return Parting(ConnectionLost(f"the connection closed with {code}"), False)
    return Parting(error, not is_leaving and (is_final or not error.info.retry))
