"""Errors as answers: `{"error": {code, message, retry_ms?}}` with the code's HTTP status."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from pushlane.wire.errors import BadRequest, Internal, PushlaneError
from pushlane.wire.frames import Failed
from pushlane_gateway.http.objects import ErrorAnswer, ErrorObject

NO_STORE = {"cache-control": "no-store"}
"""Answers have messages and tokens in them: no proxy may keep them."""


class ClientGone(Exception):
    """The client went before its answer was there: nobody is to be told anything."""


class Refused(PushlaneError):
    """An error whose answer has more to it than its code says."""

    def __init__(
        self,
        error: PushlaneError,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        failed: list[Failed] | None = None,
    ) -> None:
        super().__init__(error.code, error.message, error.retry_ms)
        self.status = status
        self.headers = headers or {}
        self.failed = failed or []


def wrong_method(allowed: str) -> Refused:
    return Refused(BadRequest(f"this path takes {allowed}"), status=405, headers={"allow": allowed})


def internal() -> Internal:
    return Internal("internal error: the server's log has the details")


def error_response(error: PushlaneError) -> Response:
    headers = dict(NO_STORE)
    status, failed = error.info.http_status, []
    if error.code == "unauthorized":
        headers["www-authenticate"] = "Bearer"
    if error.retry_ms is not None:
        headers["retry-after"] = str(-(-error.retry_ms // 1000))
    if isinstance(error, Refused):
        headers.update(error.headers)
        status, failed = error.status or status, error.failed
    answer = ErrorAnswer(ErrorObject(error.code, error.message, error.retry_ms), failed)
    return Response(msgspec.json.encode(answer), status, headers, "application/json")
