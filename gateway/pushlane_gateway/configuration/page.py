"""The tables of docs/configuration.md, out of what the Structs say."""

from __future__ import annotations

from itertools import groupby

from pushlane.wire.limits import MAX_INT
from pushlane_gateway.configuration.configuration import Configuration
from pushlane_gateway.configuration.known import Key
from pushlane_gateway.configuration.reasons import field_reasons
from pushlane_gateway.configuration.sections import QueueSettings
from pushlane_gateway.configuration.show import toml

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
