"""The configuration as TOML, for `pushlane serve --print-config`: all keys, secrets masked.

It can be read in again: what isn't set, and what is masked, stands in a comment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pushlane_gateway.auth.secret import MASK
from pushlane_gateway.configuration.configuration import Configuration
from pushlane_gateway.configuration.known import DATA, Key, known_keys

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
