"""Hints: what somebody may have meant who named a field or a value that is not known.

The wire ignores unknown fields, so that versions understand each other. A request is often typed by
a person: there a mistyped `delay` would be a message without a delay.
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
    near = get_close_matches(fault["name"].lower(), known, 1)
    said = f"{_WORDS[fault['what']]} `{fault['name']}`"
    hint = f"known are {', '.join(known) or 'none'}"
    if near and said.startswith("unknown value"):
        hint = f"did you mean {near[0]}? ({hint})"
    elif near:
        hint = f"did you mean {near[0]}?"
    return f"{where}: {said}: {hint}" if where else f"{said}: {hint}"


def _known(kind: inspect.Type, where: str) -> list[str]:
    """The names, or the values, that may stand at a place of a type."""
    for step in _STEP.finditer(where):
        kind = _step(_only(kind), step[1])
    kind = _only(kind)
    if isinstance(kind, inspect.LiteralType):
        return [str(value) for value in kind.values]
    assert isinstance(kind, inspect.StructType)
    return [field.encode_name for field in kind.fields]


def _step(kind: inspect.Type, name: str | None) -> inspect.Type:
    if name is None:
        assert isinstance(kind, inspect.ListType)
        return kind.item_type
    assert isinstance(kind, inspect.StructType)
    return next(field.type for field in kind.fields if field.encode_name == name)


def _only(kind: inspect.Type) -> inspect.Type:
    """Of what may also be null, or has bounds: what it is otherwise."""
    if isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        wanted = (inspect.LiteralType, inspect.StructType, inspect.ListType)
        return next(part for part in kind.types if isinstance(part, wanted))
    return kind
