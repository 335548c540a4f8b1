"""The calls of `Client.queues`: what each asks of the HTTP API. The shells only carry them.

Names are checked before they become a part of a path. Answers are the server's JSON objects as
they are: a newer server's new fields are there without a new client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from pushlane.wire.names import check_queue_name


class Call(NamedTuple):
    """One request of the HTTP API."""

    method: str
    target: str
    body: Mapping[str, Any] | None = None


def create(name: str, config: Mapping[str, Any]) -> Call:
    return Call("PUT", _path(name), config)


def get(name: str) -> Call:
    return Call("GET", _path(name))


def update(name: str, changes: Mapping[str, Any]) -> Call:
    return Call("PATCH", _path(name), changes)


def delete(name: str) -> Call:
    return Call("DELETE", _path(name) + _query(confirm=name))


def list_all(limit: int | None, after: str | None) -> Call:
    return Call("GET", "/v1/queues" + _query(limit=limit, after=after))


def stats(name: str) -> Call:
    return Call("GET", _path(name, "stats"))


def peek(name: str, limit: int | None) -> Call:
    return Call("GET", _path(name, "peek") + _query(limit=limit))


def purge(name: str) -> Call:
    return Call("POST", _path(name, "purge"), {})


def pause(name: str) -> Call:
    return Call("POST", _path(name, "pause"), {})


def resume(name: str) -> Call:
    return Call("POST", _path(name, "resume"), {})


def redrive(name: str, options: Mapping[str, Any]) -> Call:
    return Call("POST", _path(name, "redrive"), options)


def explain(name: str, id: str) -> Call:
    return Call("GET", _path(name, "messages", id, "explain"))


def _path(name: str, *rest: str) -> str:
    check_queue_name(name)
    return "/".join(["/v1/queues", name, *(quote(part, safe="") for part in rest)])


def _query(**values: Any) -> str:
    given = {name: value for name, value in values.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""
