"""Bills as files: CSV for people and their sheets, Parquet for programs.

A file has one day, and is written anew as a whole: to another name, then renamed. The same lines
give the same bytes. A day without lines gets no file; one that is there stays, because usage is not
kept for good.

    csv/hours/2026-11-16.csv    parquet/hours/day=2026-11-16/lines.parquet
    csv/days/2026-11-16.csv     parquet/days/day=2026-11-16/lines.parquet
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv, parquet

from pushlane_spark.billing.pricing import COSTS
from pushlane_spark.billing.rate_card import MICRO, day_of
from pushlane_spark.period import Minutes, time_of
from pushlane_spark.usage_frames import DAY, HOUR

FOLDERS = {HOUR: "hours", DAY: "days"}
_MONEY = pa.decimal128(38, 6)
_QUANTITY = pa.decimal128(38, 6)
_COUNTS = ("published", "delivered", "bytes_in", "bytes_out")
COLUMNS = pa.schema(
    [
        *[(name, pa.string()) for name in ("tenant", "queue")],
        ("since", pa.timestamp("s", tz="UTC")),
        *[(name, pa.int64()) for name in _COUNTS],
        *[(name, _QUANTITY) for name in ("connection_minutes", "storage_byte_hours")],
        *[(name, _MONEY) for name in [*COSTS, "total"]],
        ("currency", pa.string()),
    ]
)
Line = Mapping[str, Any]


def export(lines: Iterable[Line], days: Minutes, currency: str, out: Path) -> list[str]:
    """Write the files of all days of a period; their names."""
    found: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for line in lines:
        place = line["minutes"], line["window"] - line["window"] % DAY
        found.setdefault(place, []).append(_shown(line, currency))
    written: list[str] = []
    for day in range(days.first, days.end, DAY):
        for minutes in FOLDERS:
            written += _export_day(found.get((minutes, day), []), minutes, day, out)
    return written


def _shown(line: Line, currency: str) -> dict[str, Any]:
    used = {
        "connection_minutes": Decimal(line["connection_ms"]) / 60_000,
        "storage_byte_hours": Decimal(line["stored_byte_s"]) / 3_600,
    }
    return {
        **{name: line[name] for name in ("tenant", "queue", *_COUNTS)},
        **{name: value.quantize(Decimal("0.000001")) for name, value in used.items()},
        **{name: Decimal(line[name]) / MICRO for name in [*COSTS, "total"]},
        "since": time_of(line["window"]),
        "currency": currency,
    }


def _export_day(lines: list[dict[str, Any]], minutes: int, day: int, out: Path) -> list[str]:
    date, folder = day_of(day).isoformat(), FOLDERS[minutes]
    files: dict[Path, Callable[[pa.Table, Path], None]] = {
        out / "csv" / folder / f"{date}.csv": _write_csv,
        out / "parquet" / folder / f"day={date}" / "lines.parquet": _write_parquet,
    }
    if not lines:
        return []
    lines.sort(key=lambda line: (line["tenant"], line["queue"], line["since"]))
    table = pa.Table.from_pylist(lines, schema=COLUMNS)
    for path, write in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Readers of Parquet leave out what begins with a dot.
        hidden = path.with_name(f".{path.name}.{os.getpid()}")
        write(table, hidden)
        hidden.replace(path)
    return [str(path.relative_to(out)) for path in files]


def _write_csv(table: pa.Table, path: Path) -> None:
    text = pa.compute.strftime(table["since"], format="%Y-%m-%dT%H:%MZ")
    column = table.schema.get_field_index("since")
    csv.write_csv(
        table.set_column(column, "since", text), path, csv.WriteOptions(quoting_style="needed")
    )


def _write_parquet(table: pa.Table, path: Path) -> None:
    parquet.write_table(table, path)
