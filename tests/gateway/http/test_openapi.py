"""The description of the API is what the code does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pushlane.wire.errors import CODES
from pushlane_gateway.http import openapi
from pushlane_gateway.http.openapi import document, render
from pushlane_gateway.http.page import render_page
from pushlane_gateway.http.table import OPERATIONS
from tests.gateway.http.rig import rig
from tests.repo import ROOT

DESIGNED = {
    "/v1/queues": {"get", "post"},
    "/v1/queues/{queue}": {"put", "patch", "get", "delete"},
    "/v1/queues/{queue}/messages": {"post"},
    "/v1/queues/{queue}/messages/{id}": {"get", "delete"},
    "/v1/queues/{queue}/messages/{id}/explain": {"get"},
    **{
        f"/v1/queues/{{queue}}/{name}": {"post"}
        for name in (
            "receive",
            "ack",
            "nack",
            "extend",
            "purge",
            "pause",
            "resume",
            "redrive",
            "retention",
        )
    },
    **{f"/v1/queues/{{queue}}/{name}": {"get"} for name in ("stats", "consumers", "peek")},
    "/v1/pipe": {"post"},
    "/v1/tokens": {"post"},
    "/v1/limits": {"get"},
    "/v1/cluster": {"get"},
    "/v1/cluster/drain": {"post"},
    "/v1/usage": {"get"},
    "/v1/usage/bills": {"put"},
    **{path: {"get"} for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs")},
}


def refs(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from refs(item)


def test_the_document_in_docs_is_current() -> None:
    written = (ROOT / "docs" / "openapi.json").read_text()
    assert written == render(OPERATIONS), f"docs/openapi.json is stale: run {openapi.COMMAND}"


def test_every_designed_operation_is_there() -> None:
    paths = document(OPERATIONS)["paths"]
    assert {path: set(methods) for path, methods in paths.items()} == DESIGNED


def test_names_are_unique() -> None:
    assert len({operation.name for operation in OPERATIONS}) == len(OPERATIONS)


def test_every_reference_leads_somewhere() -> None:
    found = document(OPERATIONS)
    assert set(refs(found))
    for ref in set(refs(found)):
        node = found
        for step in ref.removeprefix("#/").split("/"):
            node = node[step]


def test_what_an_operation_says() -> None:
    found = document(OPERATIONS)["paths"]["/v1/queues/{queue}"]
    assert found["put"]["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/QueueBody"
    }
    assert set(found["put"]["responses"]) == {"200", "201", "default"}
    names = [(p["name"], p["in"], p["required"]) for p in found["delete"]["parameters"]]
    assert names == [("queue", "path", True), ("confirm", "query", True)]
    headers = [p["name"] for p in found["put"]["parameters"] if p["in"] == "header"]
    assert headers == ["If-Match", "If-None-Match"]
    assert document(OPERATIONS)["paths"]["/healthz"]["get"]["security"] == []


def test_errors_are_in_it() -> None:
    found = document(OPERATIONS)
    assert list(found["x-pushlane"]["errors"]) == list(CODES)
    assert found["x-pushlane"]["errors"]["queue_full"]["http_status"] == 507


def test_the_command_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    openapi.main([str(tmp_path / "a.json")])
    assert (tmp_path / "a.json").read_text() == render(OPERATIONS)
    assert capsys.readouterr().out == f"wrote {tmp_path / 'a.json'}\n"
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    openapi.main([])
    assert json.loads((tmp_path / "docs" / "openapi.json").read_text())["openapi"] == "3.1.0"


async def test_it_is_served() -> None:
    async with rig() as r:
        answer = await r.get("/openapi.json")
        assert answer.headers["content-type"] == "application/json"
        assert answer.body.decode() == render(OPERATIONS)


async def test_the_page_has_everything_and_loads_nothing() -> None:
    async with rig() as r:
        answer = await r.get("/docs")
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        text = answer.body.decode()
        for operation in OPERATIONS:
            assert f'id="{operation.name}"' in text
            assert operation.summary.replace("'", "&#x27;") in text
        for name in document(OPERATIONS)["components"]["schemas"]:
            assert f'id="{name}"' in text
        for code in CODES:
            assert f"<code>{code}</code>" in text
        for loading in ("<script", "src=", "<link", "http://", "https://", "@import", "url("):
            assert loading not in text


def test_the_page_escapes_what_it_shows() -> None:
    found = document(OPERATIONS)
    found["info"]["title"] = "<b>"
    assert "<b>" not in render_page(found)
