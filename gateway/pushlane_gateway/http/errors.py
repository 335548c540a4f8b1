"""Errors as answers: `{"error": {code, message, retry_ms?}}` with the code's HTTP status.

Where a field or a value is not known, the answer has a hint of what may have been meant. The wire
ignores unknown fields, so that versions understand each other. A request is often typed by a
person: there a mistyped `delay` would be a message without a delay. What msgspec says has the
client's own text in it, a name that may look like a place. So a place that the type doesn't have is
no error of ours: then there is no hint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect
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


_FAULT = re.compile(
    r"(?:(?P<where>[\w.\[\]]+): )?"
    r"(?P<what>Object contains unknown field|Invalid enum value) [`'](?P<name>.*?)[`']"
    r"(?: - at `\$\.(?P<at>.*)`)?",
    re.DOTALL,
)
_STEP = re.compile(r"(\w+)|\[\d+\]")
_WORDS = {"Object contains unknown field": "unknown field", "Invalid enum value": "unknown value"}


def with_hint(kind: Any, text: str) -> str:
    """What msgspec said of a value of a type, and what is near to it that the type knows."""
    fault = _FAULT.fullmatch(text)
    if fault is None:
        return text
    where = fault["where"] or fault["at"] or ""
    known = _known(inspect.type_info(kind), where)
    if known is None:
        return text
    near = get_close_matches(fault["name"].lower(), known, 1)
    said = f"{_WORDS[fault['what']]} `{fault['name']}`"
    hint = f"known are {', '.join(known) or 'none'}"
    if near and said.startswith("unknown value"):
        hint = f"did you mean {near[0]}? ({hint})"
    elif near:
        hint = f"did you mean {near[0]}?"
    return f"{where}: {said}: {hint}" if where else f"{said}: {hint}"


def _known(kind: inspect.Type, where: str) -> list[str] | None:
    """The names, or the values, that may stand at a place of a type; None: it has no such place."""
    found: inspect.Type | None = _only(kind)
    for step in _STEP.finditer(where):
        found = _step(found, step[1])
    if isinstance(found, inspect.LiteralType):
        return [str(value) for value in found.values]
    if isinstance(found, inspect.StructType):
        return [field.encode_name for field in found.fields]
    return None


def _step(kind: inspect.Type | None, name: str | None) -> inspect.Type | None:
    if name is None:
        return _only(kind.item_type) if isinstance(kind, inspect.ListType) else None
    fields = kind.fields if isinstance(kind, inspect.StructType) else ()
    return next((_only(field.type) for field in fields if field.encode_name == name), None)


def _only(kind: inspect.Type) -> inspect.Type | None:
    """Of what may also be null, or has bounds: what it is otherwise."""
    if isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        wanted = (inspect.LiteralType, inspect.StructType, inspect.ListType)
        return next((part for part in kind.types if isinstance(part, wanted)), None)
    return kind
