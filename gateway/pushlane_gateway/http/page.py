"""The description of the API: as JSON for programs, and as one plain page for people.

The page is written here from the same document; it loads nothing from anywhere.
"""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any

from starlette.responses import HTMLResponse, Response

from pushlane_gateway.http.call import JSON, Call
from pushlane_gateway.http.openapi import document as make_document
from pushlane_gateway.http.openapi import render

POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code { font-family: ui-monospace, monospace } section { margin: 2rem 0 }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; vertical-align: top;
border-bottom: 1px solid #8884; padding: .25rem .75rem .25rem 0 }
:root { color-scheme: light dark }
"""


async def document(_: Call) -> Response:
    return Response(_text(), media_type=JSON)


async def page(_: Call) -> Response:
    return HTMLResponse(_page(), headers={"content-security-policy": POLICY})


@cache
def _text() -> bytes:
    """Bytes, as those below: however many take it at once, there is one of it."""
    from pushlane_gateway.http.table import OPERATIONS

    return render(OPERATIONS).encode()


@cache
def _page() -> bytes:
    from pushlane_gateway.http.table import OPERATIONS

    return render_page(make_document(OPERATIONS)).encode()


def render_page(document: dict[str, Any]) -> str:
    """An OpenAPI document as HTML."""
    title = escape(document["info"]["title"])
    parts = [
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title} API</title>',
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>',
        f"<h1>{title} API</h1><p>{escape(document['info']['description'])} ",
        'For programs: <a href="/openapi.json">openapi.json</a>.</p>',
        "<h2>Operations</h2>",
    ]
    for path, methods in document["paths"].items():
        parts += [_operation(method, path, found) for method, found in methods.items()]
    parts.append("<h2>Objects</h2>")
    schemas = document["components"]["schemas"]
    parts += [_schema(name, schema) for name, schema in schemas.items()]
    parts.append("<h2>Errors</h2>" + _errors(document["x-pushlane"]["errors"]))
    return "\n".join([*parts, "</body></html>", ""])


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    name = escape(operation["operationId"])
    lines = [f"<p>{escape(operation['summary'])} {escape(operation.get('description', ''))}</p>"]
    rows = [
        (parameter["name"], parameter["in"], _kind(parameter["schema"]))
        for parameter in operation["parameters"]
    ]
    if "requestBody" in operation:
        rows.append(("body", "", _content(operation["requestBody"])))
    rows += [
        (f"answer {status}", "", _content(answer))
        for status, answer in operation["responses"].items()
        if status != "default"
    ]
    cells = [f"<tr><td>{escape(a)}</td><td>{escape(b)}</td><td>{c}</td></tr>" for a, b, c in rows]
    lines.append(f"<table>{''.join(cells)}</table>")
    head = f"<code>{method.upper()} {escape(path)}</code>"
    return f'<section id="{name}"><h3>{head}</h3>{"".join(lines)}</section>'


def _content(holder: dict[str, Any]) -> str:
    ((kind, content),) = holder["content"].items()
    return _kind(content["schema"]) if "schema" in content else escape(kind)


def _schema(name: str, schema: dict[str, Any]) -> str:
    needed = schema.get("required", ())
    rows = [
        f"<tr><td><code>{escape(field)}</code>{'' if field in needed else '?'}</td>"
        f"<td>{_kind(kind)}</td></tr>"
        for field, kind in schema.get("properties", {}).items()
    ]
    about = escape(schema.get("description", "").split("\n")[0])
    shown, table = escape(name), f"<table>{''.join(rows)}</table>"
    return f'<section id="{shown}"><h3>{shown}</h3><p>{about}</p>{table}</section>'


def _kind(schema: dict[str, Any]) -> str:
    """What a value may be, in a few words."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_kind(part) for part in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    bounds = [
        f"{word} {schema[key]}" for key, word in (("minimum", "from"), ("maximum", "to"))
        if key in schema
    ]  # fmt: skip
    default = schema.get("default")
    if isinstance(default, bool | int | str):
        bounds.append(f"default {default!r}")
    return escape(" ".join([schema.get("type", "any JSON value"), *bounds]))


def _errors(errors: dict[str, dict[str, Any]]) -> str:
    rows = [
        f"<tr><td><code>{escape(code)}</code></td><td>{error['http_status']}</td>"
        f"<td>{escape(error['advice'])}</td></tr>"
        for code, error in errors.items()
    ]
    return f"<table>{''.join(rows)}</table>"
