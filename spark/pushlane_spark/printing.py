"""Reports of jobs for people: whatever struct it is, its numbers as lines, its lists as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

MOST_ROWS = 100
"""Rows of a table that are shown; `--json` has all."""
MOST_COLUMNS = 12
MOST_TEXT = 300
"""Characters of a cell."""


def to_json(report: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(report, enc_hook=str), indent=2).decode()


def print_report(report: msgspec.Struct, console: Console) -> None:
    """Lines first, then a table for each list."""
    lines, lists = _parts(report)
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in lines:
        table.add_row(name, _cell(value))
    console.print(table)
    for name, rows in lists:
        console.print()
        console.print(_table(name, rows))
        if len(rows) > MOST_ROWS:
            console.print(f"… and {len(rows) - MOST_ROWS} more: --json has all of them")


Rows = Sequence[Mapping[str, Any]]


def _parts(report: msgspec.Struct) -> tuple[list[tuple[str, Any]], list[tuple[str, Rows]]]:
    lines: list[tuple[str, Any]] = []
    lists: list[tuple[str, Rows]] = []
    for name, value in _flat(report):
        if rows := _rows(value):
            lists.append((name, rows))
        elif not isinstance(value, list | tuple) or value:
            lines.append((name, value))
    return lines, lists


def _flat(report: msgspec.Struct, above: str = "") -> Iterator[tuple[str, Any]]:
    for name in report.__struct_fields__:
        value = getattr(report, name)
        if isinstance(value, msgspec.Struct):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value


def _rows(value: Any) -> Rows | None:
    """A list of structs, or structs by name."""
    if isinstance(value, Mapping) and any(
        isinstance(one, msgspec.Struct) for one in value.values()
    ):
        return [{"name": name, **_columns(one)} for name, one in value.items()]
    if isinstance(value, list | tuple) and value and isinstance(value[0], msgspec.Struct | Mapping):
        return [_columns(one) for one in value]
    return None


def _columns(row: Any) -> dict[str, Any]:
    return dict(_flat(row)) if isinstance(row, msgspec.Struct) else dict(row)


def _table(name: str, rows: Rows) -> Table:
    table = Table(title=name, title_justify="left")
    columns = list(dict.fromkeys(column for row in rows for column in row))[:MOST_COLUMNS]
    for column in columns:
        numbers = all(isinstance(row.get(column), int | float | None) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows[:MOST_ROWS]:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    return table


def _cell(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_cell(one)}" for name, one in value.items()) or "-"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(_cell, value)) or "-"
    return str(value)
