"""Rows as messages: numbers of equal rows, and rows that are none."""

from __future__ import annotations

from typing import Any

import pytest

from pushlane import BadRequest, Item
from pushlane_spark.messages import OUTGOING, message_of, numbered


def row(**columns: Any) -> dict[str, Any]:
    return {**dict.fromkeys(OUTGOING.names), "row": "r" * 64, **columns}


def dedups(*rows: dict[str, Any], run: str | None = "run") -> list[str | None]:
    items = [message.item for message in numbered(rows, run)]
    return [item.dedup for item in items if isinstance(item, Item)]


def test_equal_rows_are_counted() -> None:
    a, b = row(body="1", row="a" * 64), row(body="2", row="b" * 64)
    one, two = "a" * 32, "b" * 32
    assert dedups(a, a, b, b, b) == [
        f"run:{one}:0", f"run:{one}:1", f"run:{two}:0", f"run:{two}:1", f"run:{two}:2"
    ]  # fmt: skip
    assert dedups(a, a, run=None) == [None, None]
    assert dedups(row(body="1", dedup="mine"), row(body="1", dedup="mine")) == ["mine", "mine"]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({}, "exactly one of body and data"),
        ({"body": "1", "data": b""}, "exactly one of body and data"),
        ({"body": "{"}, "JSON"),
        ({"body": "[" * 600 + "]" * 600}, "nested deeper than"),
        ({"body": "1", "headers": [("a", None)]}, "a header's value is null"),
    ],
)
def test_rows_that_are_none(columns: dict[str, Any], reason: str) -> None:
    error = message_of(row(**columns), "n", None).item
    assert isinstance(error, BadRequest)
    assert reason in str(error)


def test_bodies_stay_as_they_are() -> None:
    item = message_of(row(body='{"a": 1.50}', headers=[("h", "x")]), "n", "d").item
    assert isinstance(item, Item)
    assert bytes(item.body) == b'{"a": 1.50}'
    assert item.headers == {"h": "x"}
