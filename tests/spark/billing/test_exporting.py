"""The files of a bill: whole days, the same bytes for the same lines."""

from __future__ import annotations

import csv
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyarrow import parquet

from pushlane_spark.billing.exporting import COLUMNS, export
from pushlane_spark.billing.pricing import COSTS, COUNTERS
from pushlane_spark.period import Minutes
from tests.spark.usage_store import DAY, MONDAY

DAYS = Minutes(MONDAY, MONDAY + 2 * DAY)


def line(queue: str, window: int, minutes: int, **values: int) -> dict[str, Any]:
    place = {"tenant": "ann", "queue": queue, "window": window, "minutes": minutes}
    return {**place, **dict.fromkeys([*COUNTERS, *COSTS, "total"], 0), **values}


LINES = [
    line("b", MONDAY + 60, 60, connection_ms=90_000, total=1),
    line('"a,', MONDAY, 60, published=7, stored_byte_s=1_200, published_cost=1_500_000),
    line("b", MONDAY, DAY, total=3),
]


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_both_forms(tmp_path: Path) -> None:
    files = export(LINES, DAYS, "EUR", tmp_path)
    assert (
        sorted(files)
        == sorted(content(tmp_path))
        == [
            "csv/days/2026-06-08.csv",
            "csv/hours/2026-06-08.csv",
            "parquet/days/day=2026-06-08/lines.parquet",
            "parquet/hours/day=2026-06-08/lines.parquet",
        ]
    )
    with (tmp_path / "csv/hours/2026-06-08.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert [*first] == COLUMNS.names
    assert (first["queue"], first["since"]) == ('"a,', "2026-06-08T00:00Z")
    assert (first["published"], first["published_cost"]) == ("7", "1.500000")
    assert first["storage_byte_hours"] == "0.333333"
    assert (second["since"], second["total"]) == ("2026-06-08T01:00Z", "0.000001")
    assert (second["connection_minutes"], second["currency"]) == ("1.500000", "EUR")
    table = parquet.read_table(tmp_path / "parquet/hours/day=2026-06-08/lines.parquet")
    assert table.column_names[: len(COLUMNS.names)] == COLUMNS.names
    assert table["published_cost"].to_pylist() == [Decimal("1.5"), 0]


def test_the_same_lines_give_the_same_bytes(tmp_path: Path) -> None:
    export(LINES, DAYS, "EUR", tmp_path)
    before = content(tmp_path)
    export(LINES[::-1], DAYS, "EUR", tmp_path)
    assert content(tmp_path) == before


def test_days_are_written_anew_and_others_are_left(tmp_path: Path) -> None:
    tuesday = [line("b", MONDAY + DAY, DAY, total=9)]
    export([*LINES, *tuesday], DAYS, "EUR", tmp_path)
    before = content(tmp_path)
    assert len(before) == 6
    export([], Minutes(MONDAY, MONDAY + DAY), "EUR", tmp_path)
    assert content(tmp_path) == before, "its usage is not kept any more"
    export([line("b", MONDAY, DAY, total=1)], Minutes(MONDAY, MONDAY + DAY), "EUR", tmp_path)
    after = content(tmp_path)
    assert {name for name in before if after[name] != before[name]} == {
        name for name in before if "days" in name and "-08" in name
    }
