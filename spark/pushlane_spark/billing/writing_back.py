"""Bills into the store, where `/v1/usage` finds them: as usage of a node named `billing`.

A row is put in place of the one that is there, so it doesn't matter how often that happens. The
first hour of a day and the day itself begin in the same minute: they share a row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from pushlane_spark.billing.pricing import COSTS
from pushlane_spark.cassandra_source import FORMAT, connector_options
from pushlane_spark.errors import StoreUnreadable
from pushlane_spark.server import Server
from pushlane_spark.usage_frames import DAY, HOUR
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.tables import USAGE
from pushlane_storage.errors import FolderLocked, OpenError
from pushlane_storage.sqlite.folder import open_folder
from pushlane_storage.url import parse_cassandra
from pushlane_storage.usage import BILLING

_WINDOWS = {HOUR: "hour", DAY: "day"}
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_PUT = "REPLACE INTO usage (tenant, queue, minute, node, counters) VALUES (?, ?, ?, ?, ?)"
_COLUMNS = "tenant string, day long, queue string, minute long, node string, counters binary"
BUSY_S = 5.0
BILLS = 1_000
"""That one request names."""
Row = tuple[str, str, int, str, bytes]


class StoreServed(Exception):
    """The folder of an embedded store is locked: nobody but its server writes there."""


def rows_of(lines: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Usage rows: `billing.hour.total`, `billing.day.bytes_in`, … in millionths."""
    found: dict[tuple[str, str, int], dict[str, int]] = {}
    for line in lines:
        counters = found.setdefault((line["tenant"], line["queue"], line["window"]), {})
        start = f"{BILLING}.{_WINDOWS[line['minutes']]}"
        costs = {name.removesuffix("_cost"): line[name] for name in [*COSTS, "total"]}
        counters.update({f"{start}.{name}": cost for name, cost in costs.items()})
    return [(*key, BILLING, _encode([0, found[key]])) for key in sorted(found)]


def write_back(
    spark: SparkSession, store: str, rows: list[Row], server: Server | None = None
) -> int:
    """How many were written: all; `StoreServed`, `StoreUnreadable`, `ServerRefused`."""
    if not rows:
        return 0
    if store.startswith("sqlite:"):
        try:
            _into_sqlite(store, rows)
        except StoreServed:
            if server is None:
                raise
            _through(server, rows)
    else:
        _into_cassandra(spark, store, rows)
    return len(rows)


def _into_sqlite(store: str, rows: list[Row]) -> None:
    try:
        folder = open_folder(Path(store.partition(":")[2]))
    except FolderLocked as error:
        raise StoreServed(str(error)) from error
    except OpenError as error:
        raise StoreUnreadable(f"{store} can't be written: {error}") from error
    with closing(folder), closing(sqlite3.connect(folder.database, timeout=BUSY_S)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        with connection:
            connection.executemany(_PUT, rows)


def _through(server: Server, rows: list[Row]) -> None:
    """By the server that has the folder; each tenant on its own."""
    for tenant, own in groupby(rows, key=lambda row: row[0]):
        bills = [
            {"queue": queue, "minute": minute, "costs": msgspec.msgpack.decode(counters)[1]}
            for _, queue, minute, _, counters in own
        ]
        for start in range(0, len(bills), BILLS):
            part = {"tenant": tenant, "bills": bills[start : start + BILLS]}
            server.ask("PUT", "/v1/usage/bills", part)


def _into_cassandra(spark: SparkSession, store: str, rows: list[Row]) -> None:
    address = parse_cassandra(store)
    options = connector_options(address)
    level = options["spark.cassandra.input.consistency.level"]
    stored = [(row[0], row[2] // DAY, *row[1:]) for row in rows]
    frame = spark.createDataFrame(stored, _COLUMNS)
    writer = frame.write.format(FORMAT).mode("append").options(table=USAGE.name, **options)
    kept = {"consistency.level": level, "ttl": str(Limits().usage_ttl)}
    writer.options(**{f"spark.cassandra.output.{name}": kept[name] for name in kept}).save()
