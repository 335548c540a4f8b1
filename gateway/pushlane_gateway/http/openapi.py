"""The HTTP API as an OpenAPI 3.1 document, for people and tools that don't read Python.

    python -m pushlane_gateway.http.openapi [FILE]      writes docs/openapi.json

Everything in it is read off the table of operations and the types of objects.py; a test fails when
the file in docs/ is not what this would write.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pushlane.wire.errors import CODES
from pushlane_gateway.http.objects import ErrorAnswer
from pushlane_gateway.http.operation import Operation

COMMAND = "python -m pushlane_gateway.http.openapi"

_VERSION = "1.0.0"
_REF = "#/components/schemas/{name}"
_IN_PATH = re.compile(r"\{(\w+)\}")
_STRING = {"type": "string"}


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """The whole OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pushlane",
            "version": _VERSION,
            "description": "The HTTP API; the WebSocket protocol has the same names and objects.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:8420"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": _schemas(operations),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"Error": _response("An error.", ErrorAnswer)},
        },
        "x-pushlane": {"errors": {code: _error(code) for code in CODES}},
    }


def render(operations: Sequence[Operation]) -> str:
    """The document as it stands in docs/."""
    text = msgspec.json.encode(document(operations))
    return msgspec.json.format(text, indent=2).decode() + "\n"


def _operation(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": _parameters(operation),
        "responses": {
            str(operation.status): _answer(operation),
            "default": {"$ref": "#/components/responses/Error"},
        },
    }
    if operation.rights:
        found["description"] = f"Takes the right to {' or '.join(operation.rights)}."
    if operation.operator:
        found["description"] = "Takes the right `operate:*`."
    if operation.public:
        found["security"] = []
    if operation.body is not None:
        found["requestBody"] = {"required": True, "content": _json(operation.body)}
    if operation.creates:
        found["responses"]["201"] = _answer(operation)
    return found


def _answer(operation: Operation) -> dict[str, Any]:
    if operation.answer is None:
        return {"description": operation.summary, "content": {operation.content: {}}}
    return _response(_first_line(operation.answer), operation.answer)


def _response(description: str, kind: Any) -> dict[str, Any]:
    return {"description": description, "content": _json(kind)}


def _json(kind: Any) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=kind.__name__)}}}


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    found = [
        {"name": name, "in": "path", "required": True, "schema": _STRING}
        for name in _IN_PATH.findall(operation.path)
    ]
    if operation.query is not None:
        schema = msgspec.json.schema(operation.query)
        properties = schema["$defs"][operation.query.__name__]["properties"]
        needed = schema["$defs"][operation.query.__name__]["required"]
        found += [
            {"name": name, "in": "query", "required": name in needed, "schema": kind}
            for name, kind in properties.items()
        ]
    return found + [
        {"name": name, "in": "header", "required": False, "schema": _STRING}
        for name in operation.headers
    ]


def _schemas(operations: Sequence[Operation]) -> dict[str, Any]:
    kinds = {kind for found in operations for kind in (found.body, found.answer)} - {None}
    named = sorted({*kinds, ErrorAnswer}, key=lambda kind: kind.__name__)
    _, schemas = msgspec.json.schema_components(named, ref_template=_REF)
    return dict(sorted(schemas.items()))


def _first_line(kind: Any) -> str:
    assert kind.__doc__, kind
    return str(kind.__doc__).split("\n")[0]


def _error(code: str) -> dict[str, Any]:
    info = CODES[code]
    return {"http_status": info.http_status, "retry": info.retry, "advice": info.advice}


def main(arguments: list[str]) -> None:
    """Write the document to the file named, or to docs/openapi.json."""
    from pushlane_gateway.http.table import OPERATIONS

    path = Path(*arguments) if arguments else Path("docs", "openapi.json")
    path.write_text(render(OPERATIONS))
    print(f"wrote {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
