"""Reports as people read them."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from pushlane_spark.printing import MOST_ROWS, MOST_TEXT, print_report, to_json


class Row(msgspec.Struct):
    queue: str
    count: int
    part: Any = None


class Report(msgspec.Struct):
    ok: bool
    at: datetime
    seconds: float
    counts: dict[str, int]
    rows: list[Row]
    inner: Row
    names: list[str] = []
    by_name: dict[str, Row] = {}
    path: Path | None = None


AT = datetime(2026, 11, 1, 12, tzinfo=UTC)
REPORT = Report(True, AT, 1.5, {"a": 1, "b": 2000}, [Row("one", 1), Row("two", 1234)], Row("in", 3))


def printed(report: Report) -> str:
    file = io.StringIO()
    print_report(report, Console(file=file, width=100))
    return file.getvalue()


def test_lines_and_tables() -> None:
    lines = [" ".join(line.split()) for line in printed(REPORT).splitlines()]
    assert lines[:6] == [
        "ok yes",
        "at 2026-11-01 12:00:00Z",
        "seconds 1.500",
        "counts a 1, b 2,000",
        "inner.queue in",
        "inner.count 3",
    ]
    assert "│ two │ 1,234 │ - │" in lines


def test_names_and_structs_by_name() -> None:
    report = msgspec.structs.replace(REPORT, names=["x", "y"], by_name={"z": Row("q", 7)})
    text = printed(report)
    assert "x, y" in text
    assert "│ z " in text


def test_bounds() -> None:
    long = Row("x" * 1_000, 1)
    report = msgspec.structs.replace(REPORT, rows=[long] * (MOST_ROWS + 5))
    text = printed(report)
    assert "… and 5 more: --json has all of them" in text
    assert text.count("x") == MOST_ROWS * (MOST_TEXT - 1)


def test_json() -> None:
    found = msgspec.json.decode(to_json(msgspec.structs.replace(REPORT, path=Path("/a/b"))))
    assert found["path"] == "/a/b"
    assert found["rows"][1] == {"queue": "two", "count": 1234, "part": None}
