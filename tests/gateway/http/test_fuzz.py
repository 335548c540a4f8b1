"""Whatever is sent to any operation of openapi.json: a typed answer, never a 500.

Requests are made from the document itself: bodies after its schemas, and then damaged.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import trio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from pushlane.wire.errors import CODES
from pushlane_gateway.http.openapi import document
from pushlane_gateway.http.table import OPERATIONS
from tests.gateway.http.client import Answer
from tests.gateway.http.rig import rig

Schema = dict[str, Any]
DOCUMENT = document(OPERATIONS)
SCHEMAS: dict[str, Schema] = DOCUMENT["components"]["schemas"]
STATUSES = {info.http_status for info in CODES.values()} | {200, 201, 204, 405}

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
names = st.sampled_from(
    ["q", "q", "q", "q.dead", "other", ".x", "a b", "x" * 121, "é", "%00", ".."]
)
ids = st.sampled_from(["ID", "ID", "x", "x-0-4-1", "-" * 10, "ID0", "é"]) | st.text(max_size=9)
receipts = st.sampled_from(["RECEIPT", "p.1", "p.1-10000", "p.0", "", "p.9-1"])


@cache
def values(name: str) -> st.SearchStrategy[Any]:
    return st.deferred(lambda: like(SCHEMAS[name]))


def like(schema: Schema) -> st.SearchStrategy[Any]:
    """Values after a schema, mostly."""
    if "$ref" in schema:
        return values(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return st.one_of([like(part) for part in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object" if "properties" in schema:
            return objects(schema)
        case "object":
            return st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2)
        case "array":
            return st.lists(like(schema.get("items", {})), max_size=3)
        case "string":
            return st.text(max_size=8) | names | receipts
        case "integer":
            low, high = schema.get("minimum", -5), schema.get("maximum", 10**6)
            return st.integers(low, high) | st.sampled_from([low, high, 1_000, 0, -1, 10**20])
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
    return anything


def objects(schema: Schema) -> st.SearchStrategy[Any]:
    needed = schema.get("required", ())
    fields = {name: like(part) | small_chance for name, part in schema["properties"].items()}
    return st.fixed_dictionaries(
        {name: fields[name] for name in needed},
        optional={name: part for name, part in fields.items() if name not in needed},
    )


small_chance = st.just(None) | anything


def parameter_values(parameter: Schema) -> st.SearchStrategy[str]:
    if parameter["name"] == "confirm":
        return names
    return st.sampled_from(["1", "0", "2000", "x", "", "a"]) | like(parameter["schema"]).map(str)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes | None, dict[str, str]]:
    path = draw(st.sampled_from(list(DOCUMENT["paths"])))
    method = draw(st.sampled_from(list(DOCUMENT["paths"][path])))
    operation = DOCUMENT["paths"][path][method]
    target = path.replace("{queue}", draw(names)).replace("{id}", draw(ids))
    query, headers = [], {}
    for parameter in operation["parameters"]:
        if parameter["in"] == "query" and draw(st.booleans()):
            query.append(f"{parameter['name']}={draw(parameter_values(parameter))}")
        if parameter["in"] == "header" and draw(st.integers(0, 3)) == 0:
            headers[parameter["name"]] = draw(st.sampled_from(['"1"', "*", "K", "W/x", '"99"']))
    body = None
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        body = draw(like(schema).map(encoded) | anything.map(encoded) | st.binary(max_size=20))
        body = cut(body, draw(st.integers(0, 40)))
    if draw(st.integers(0, 30)) == 0:
        method = draw(st.sampled_from(["get", "post", "put", "head", "options", "delete", "brew"]))
    return method.upper(), target + ("?" + "&".join(query) if query else ""), body, headers


def encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (OverflowError, UnicodeEncodeError, ValueError):
        return b"1" * 30


def cut(text: bytes, chance: int) -> bytes:
    return text[: len(text) // 2] if chance == 0 else text


def judge(answer: Answer, method: str) -> None:
    assert answer.status in STATUSES, answer
    assert answer.status != 500, answer
    if (
        answer.status >= 400
        and method != "HEAD"
        and answer.headers.get("content-type") == "application/json"
    ):
        error = answer.json["error"]
        assert CODES[error["code"]].http_status == answer.status or answer.status == 405
        assert error["message"]


async def run(sent: list[tuple[str, str, bytes | None, dict[str, str]]]) -> None:
    async with rig() as r:
        await r.queue()
        await r.queue("q.dead", dead_letter="")
        (id, *_) = await r.publish("q", 1, 2, 3)
        await r.publish("q", 4, delay_ms=60_000)
        (held,) = await r.receive("q")
        for method, target, body, headers in sent:
            target = target.replace("ID", id)
            if body is not None:
                body = body.replace(b"RECEIPT", held["receipt"].encode())
            sendable = target.encode("utf-8", "replace").decode()
            judge(await r.ask(method, sendable, body, headers), method)
        await trio.sleep(61)
        assert not r.context.admission.taken()["polls"]


@settings(
    max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.lists(requests(), min_size=1, max_size=8))
@example([("PUT", "/v1/queues/q", b'{"max_bytes": 1e400}', {})])
def test_never_a_500(sent: list[tuple[str, str, bytes | None, dict[str, str]]]) -> None:
    trio.run(run, sent, clock=MockClock(autojump_threshold=0))
