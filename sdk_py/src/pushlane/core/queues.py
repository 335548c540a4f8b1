"""The calls of `Client.queues`: what each asks of the HTTP API, and what the answer says. The
shells only carry them.

Names are checked before they become a part of a path. What comes back are the server's JSON objects
as they are: a newer server's new fields are there without a new client. Between us and the server
may be a proxy with answers of its own: a status without one of the server's error objects still
becomes the typed error that is nearest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from pushlane.wire.errors import CODES, PushlaneError, error_for
from pushlane.wire.names import check_queue_name

REDRIVE_MAX = 10_000
"""Messages that one request redrives at most: so its answer says how far it got."""


class Call(NamedTuple):
    """One request of the HTTP API."""

    method: str
    target: str
    body: Mapping[str, Any] | bytes | None = None
    """An object, or its JSON."""
    headers: tuple[tuple[str, str], ...] = ()


def create(name: str, config: Mapping[str, Any], *, ensure: bool = False) -> Call:
    """`ensure`: one that is there is left alone, whatever its configuration."""
    target = "/v1/queues" + _query(ensure="true" if ensure else None)
    return Call("POST", target, {**config, "name": check_queue_name(name)})


def replace(name: str, config: Mapping[str, Any]) -> Call:
    return Call("PUT", queue_path(name), config)


def get(name: str) -> Call:
    return Call("GET", queue_path(name))


def update(name: str, changes: Mapping[str, Any]) -> Call:
    return Call("PATCH", queue_path(name), changes)


def delete(name: str) -> Call:
    return Call("DELETE", queue_path(name) + _query(confirm=name))


def list_all(limit: int | None, after: str | None, stats: bool = False) -> Call:
    told = "true" if stats else None
    return Call("GET", "/v1/queues" + _query(limit=limit, after=after, stats=told))


def stats(name: str) -> Call:
    return Call("GET", queue_path(name, "stats"))


def peek(name: str, limit: int | None, after: str | None) -> Call:
    return Call("GET", queue_path(name, "peek") + _query(limit=limit, after=after))


def purge(name: str) -> Call:
    return Call("POST", queue_path(name, "purge"), {})


def pause(name: str) -> Call:
    return Call("POST", queue_path(name, "pause"), {})


def resume(name: str) -> Call:
    return Call("POST", queue_path(name, "resume"), {})


def explain(name: str, id: str) -> Call:
    return Call("GET", queue_path(name, "messages", id, "explain"))


def queue_path(name: str, *rest: str) -> str:
    """The path of a queue, or of something below it; raises BadRequest for a bad name."""
    check_queue_name(name)
    return "/".join(["/v1/queues", name, *(quote(part, safe="") for part in rest)])


def _query(**values: Any) -> str:
    given = {name: value for name, value in values.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


class Redrive:
    """A redrive goes through its queue request by request: each answer says where to go on."""

    def __init__(self, name: str, most: int | None, options: Mapping[str, Any]) -> None:
        self._path = queue_path(name, "redrive")
        self._most = most
        self._options = dict(options)
        self._is_over = False
        self.redriven = 0

    def next(self) -> Call | None:
        """The next request; None: it is through."""
        if self._is_over:
            return None
        count = REDRIVE_MAX
        if self._most is not None:
            count = min(count, self._most - self.redriven)
        return Call("POST", self._path, {**self._options, "max": count})

    def answered(self, answer: Mapping[str, Any]) -> None:
        self.redriven += int(answer.get("redriven", 0))
        after = answer.get("next")
        enough = self._most is not None and self.redriven >= self._most
        if not after or enough:
            self._is_over = True
        self._options["after"] = after


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
