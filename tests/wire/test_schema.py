from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pushlane.wire import schema
from pushlane.wire.errors import CLOSES, CODES
from pushlane.wire.limits import LIMITS
from tests.repo import ROOT


def refs(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from refs(item)


def test_the_document_in_docs_is_current() -> None:
    written = (ROOT / "docs" / "asyncapi.json").read_text()
    assert written == schema.render(), f"docs/asyncapi.json is stale: run {schema.COMMAND}"


def test_every_reference_leads_somewhere() -> None:
    document = schema.document()
    found = set(refs(document))
    assert found
    for ref in found:
        node = document
        for step in ref.removeprefix("#/").split("/"):
            node = node[step]


def test_every_frame_has_a_message_an_operation_and_a_schema() -> None:
    document = schema.document()
    messages = document["components"]["messages"]
    assert len(messages) == 9 + 10
    assert {name.split("_", 1)[1] for name in document["operations"]} == set(messages)
    for op, message in messages.items():
        payload = document["components"]["schemas"][message["payload"]["$ref"].split("/")[-1]]
        assert payload["properties"]["op"]["enum"] == [op]


def test_every_request_with_an_id_has_a_reply() -> None:
    document = schema.document()
    silent = [
        name
        for name, operation in document["operations"].items()
        if operation["action"] == "receive" and "reply" not in operation
    ]
    assert silent == ["receive_credit"]


def test_the_tables_are_in_it() -> None:
    tables = schema.document()["x-pushlane"]
    assert list(tables["limits"]) == list(LIMITS)
    assert list(tables["errors"]) == list(CODES)
    assert list(tables["closes"]) == [str(code) for code in CLOSES]
    assert tables["errors"]["queue_full"]["http_status"] == 507


def test_the_command_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "pushlane.wire.schema")
    monkeypatch.setattr(sys, "argv", ["schema", str(tmp_path / "a.json")])
    runpy.run_module("pushlane.wire.schema", run_name="__main__")
    assert (tmp_path / "a.json").read_text() == schema.render()
    assert capsys.readouterr().out == f"wrote {tmp_path / 'a.json'}\n"


def test_the_command_writes_to_docs_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    schema.main([])
    assert json.loads((tmp_path / "docs" / "asyncapi.json").read_text())["asyncapi"] == "3.0.0"
