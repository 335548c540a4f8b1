"""The configuration as text: TOML for `pushlane serve --print-config`, and tables for the docs.

The TOML has all keys, with secrets masked, and can be read in again: what isn't set, and what is
masked, stands in a comment. The tables of docs/configuration.md are made of what the Structs say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from pushlane.wire.limits import MAX_INT
from pushlane_gateway.auth.secret import MASK
from pushlane_gateway.configuration.configuration import Configuration, QueueSettings
from pushlane_gateway.configuration.known import DATA, Key, field_reasons, known_keys

_CREDENTIALS = re.compile(r"(?<=://).*(?=@)", re.DOTALL)
"""Names and passwords in URLs of stores and lease caches: up to the last @, for a password may hold
anything."""
_OPTION = re.compile(r"(?<=[?&])([^=&]*(?:pass|secret|token)[^=&]*)=[^&]*", re.IGNORECASE)
"""An option of such a URL that is a secret."""


def show(configuration: Configuration, sources: Mapping[str, str] | None = None) -> str:
    """Every key on a line, with where it was set, if it was."""
    lines: list[str] = []
    section = ""
    for key in known_keys().values():
        if key.name == DATA:
            continue
        if key.section != section:
            section = key.section
            lines += ["", f"[{section}]"]
        lines.append(_line(key, value_of(configuration, key), (sources or {}).get(key.name)))
    return "\n".join(lines) + "\n"


def value_of(configuration: Configuration, key: Key) -> Any:
    found: Any = configuration
    for step in key.name.split("."):
        found = getattr(found, step)
    return found


def toml(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    # JSON's strings, numbers and booleans are TOML's, but for this one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _line(key: Key, value: Any, source: str | None) -> str:
    field = key.name.rpartition(".")[2]
    note = f"  # {source}" if source else ""
    if value is None:
        return f"# {field} is not set"
    if key.is_secret:
        hidden = toml([MASK] * len(value)) if value else "not set"
        return f"# {field}: {hidden}{note}"
    return f"{field} = {toml(_masked(value))}{note}"


def _masked(value: Any) -> Any:
    if not isinstance(value, str) or "://" not in value:
        return value
    return _OPTION.sub(rf"\1={MASK}", _CREDENTIALS.sub(MASK, value))


_HEAD = "| key | takes | default | why |\n|---|---|---|---|\n"


def render() -> str:
    """A table for each section, in order."""
    parts = []
    for section, keys in groupby(Configuration.describe(), key=lambda key: key.section):
        rows = "".join(_row(key) for key in keys)
        parts.append(f"{_title(section)}\n{_HEAD}{rows}")
    return "\n".join(parts)


def _title(section: str) -> str:
    if not section:
        return "### Outside of any section\n"
    above, _, name = section.rpartition(".")
    about = field_reasons(QueueSettings if above else Configuration)[name]
    return f"### `[{section}]`\n\n{about}\n"


def _row(key: Key) -> str:
    field = key.name.rpartition(".")[2]
    cells = [f"`{field}`", _takes(key), _default(key), key.reason]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _takes(key: Key) -> str:
    if key.choices:
        return ", ".join(f"`{toml(choice)}`" for choice in key.choices)
    if key.is_list:
        return "secret strings" if key.is_secret else "strings"
    if key.type is int:
        return _range(key)
    return "true, false" if key.type is bool else "string"


def _range(key: Key) -> str:
    if key.least == key.most:
        return f"{key.least}, fixed"
    if key.most == MAX_INT:
        return f"integer, at least {key.least}"
    return f"{key.least} to {key.most}"


def _default(key: Key) -> str:
    return "not set" if key.default is None else f"`{toml(key.default)}`"
