"""docs/protocol.md is true: its frames decode, its tables are those of the code."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

import pushlane.wire
from pushlane.wire import (
    CLOSES,
    CODES,
    JSON,
    LIMITS,
    MSGPACK,
    check_publish,
    check_queue_name,
    schema,
)
from pushlane.wire.frames import Frame, Publish
from tests.repo import ROOT

PAGE = (ROOT / "docs" / "protocol.md").read_text()
BLOCKS = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLES = [line for block in BLOCKS for line in block.splitlines()]
CLIENT_OPS = {
    name.removeprefix("receive_")
    for name in schema.document()["operations"]
    if name.startswith("receive_")
}


def decode(text: str) -> Frame:
    if json.loads(text)["op"] in CLIENT_OPS:
        return JSON.decode_client(text.encode())
    return JSON.decode_server(text.encode())


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text[:30])
def test_the_frames_are_frames(text: str) -> None:
    frame = decode(text)
    assert json.loads(JSON.encode(frame)) == json.loads(text), "no field is unknown"  # type: ignore[arg-type]
    if isinstance(frame, Publish):
        assert check_publish(frame) == []
        assert check_queue_name(frame.to) == frame.to
        assert MSGPACK.decode_client(MSGPACK.encode(frame)) == frame


def test_every_frame_has_an_example() -> None:
    shown = {json.loads(text)["op"] for text in EXAMPLES}
    assert shown == set(schema.document()["components"]["messages"])


def test_every_field_is_shown() -> None:
    for name, part in schema.document()["components"]["schemas"].items():
        for field in part["properties"]:
            assert f'"{field}":' in PAGE or f"`{field}?`" in PAGE, f"{name}.{field}"


@pytest.mark.parametrize("name", LIMITS)
def test_limits_are_those_of_the_code(name: str) -> None:
    limit = LIMITS[name]
    where = f"{limit.minimum} to {limit.maximum}"
    where = "fixed" if limit.minimum == limit.maximum else where
    row = f"| `{name}` | {limit.default} | {limit.unit} | {where} | {limit.reason} |"
    assert row in PAGE.splitlines()


@pytest.mark.parametrize("code", CODES)
def test_errors_are_those_of_the_code(code: str) -> None:
    info = CODES[code]
    outcome = "unknown" if info.outcome_unknown else "nothing changed"
    repeat = "yes" if info.retry else "no"
    row = f"| `{code}` | {info.http_status} | {info.fault} | {outcome} | {repeat} | {info.advice} |"
    assert row in PAGE.splitlines()


@pytest.mark.parametrize("code", CLOSES)
def test_closes_are_those_of_the_code(code: int) -> None:
    info = CLOSES[code]
    again = "yes" if info.reconnect else "no"
    row = f"| {code} | {info.reason or '(none)'} | {again} | {info.meaning} |"
    assert row in PAGE.splitlines()


def test_the_package_offers_what_it_says() -> None:
    for name in pushlane.wire.__all__:
        assert hasattr(pushlane.wire, name)
    assert msgspec.json.decode(EXAMPLES[0]) == {"op": "hello"}
