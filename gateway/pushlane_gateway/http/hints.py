"""Hints: what somebody may have meant who named a field or a value that is not known.

The wire ignores unknown fields, so that versions understand each other. A request is often typed by
a person: there a mistyped `delay` would be a message without a delay.

What msgspec says has the client's own text in it, a name that may look like a place. So a place
that the type doesn't have is no error of ours: then there is no hint.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

from msgspec import inspect

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
