"""What an HTTP answer says: its object, or the error that it stands for.

Between us and the server may be a proxy with answers of its own: a status without one of the
server's error objects still becomes the typed error that is nearest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from pushlane.wire.errors import CODES, PushlaneError, error_for

_OK = range(200, 300)
_BY_STATUS = {info.http_status: info.code for info in reversed(CODES.values())}


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes

    @property
    def value(self) -> Any:
        """What it says, as plain Python objects; None when that is not JSON."""
        try:
            return msgspec.json.decode(self.body) if self.body else None
        except msgspec.DecodeError:
            return None

    @property
    def error(self) -> PushlaneError | None:
        """What went wrong; None when nothing did."""
        return None if self.status in _OK else _error_of(self.status, self.value)


def _error_of(status: int, value: Any) -> PushlaneError:
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(error, dict) and isinstance(error.get("code"), str):
        retry_ms = error.get("retry_ms")
        message = str(error.get("message", ""))
        return error_for(error["code"], message, retry_ms if isinstance(retry_ms, int) else None)
    code = _BY_STATUS.get(status, "internal" if status >= 500 else "bad_request")
    return error_for(code, f"the server answered HTTP {status}")
