"""Stores with usage rows in them, written as servers write them."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio
from pyspark.errors import AnalysisException

from pushlane_spark.cassandra_source import CassandraSource
from pushlane_spark.errors import StoreUnreadable
from pushlane_spark.session import open_session
from pushlane_storage.cassandra.connection import Connection
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.schema import migrate
from pushlane_storage.cassandra.tables import USAGE
from pushlane_storage.sqlite.store import SqliteStore
from pushlane_storage.url import parse_cassandra
from tests.services import service

MONDAY = 29_681_280
"""A minute: 2026-06-08, 00:00 UTC."""
DAY = 24 * 60
PATIENCE = 600


class UsageRow(NamedTuple):
    tenant: str
    queue: str
    minute: int
    node: str
    counters: dict[str, int]

    def packed(self) -> bytes:
        return msgspec.msgpack.encode([1, self.counters])


def make_folder(folder: Path) -> str:
    """The URL of an empty embedded store."""

    async def make() -> None:
        await (await SqliteStore.open(folder)).close()

    trio.run(make)
    return f"sqlite:{folder}"


def make_keyspace(name: str) -> str:
    """The URL of a keyspace with the tables that usage jobs read."""
    url = service("cassandra").cassandra_url(f"{name}_{os.getpid()}")
    trio.run(migrate, parse_cassandra(url))
    wait_for(url)
    return url


def wait_for(url: str) -> None:
    """A connector that is connected already hears of new tables a moment later."""
    spark = open_session()
    for _ in range(PATIENCE):
        try:
            CassandraSource(spark, url).usage(1, 1, "nobody")
        except (StoreUnreadable, AnalysisException):
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"Spark never saw {url}")


def insert(url: str, values: Iterable[tuple[object, ...]]) -> None:
    address = parse_cassandra(url)
    connection = Connection.connect(address, Limits())
    text = f"INSERT INTO {address.keyspace}.{USAGE.name} (tenant, day, queue, minute, node,"
    try:
        for row in values:
            connection.session.execute(f"{text} counters) VALUES (%s, %s, %s, %s, %s, %s)", row)
    finally:
        connection.close()


def put(url: str, rows: Iterable[UsageRow]) -> None:
    if url.startswith("cassandra:"):
        places = [(*row, row.packed()) for row in rows]
        insert(url, [(t, m // DAY, q, m, node, packed) for t, q, m, node, _, packed in places])
        return
    with closing(sqlite3.connect(Path(url.partition(":")[2], "pushlane.db"))) as connection:
        connection.executemany(
            "REPLACE INTO usage (tenant, queue, minute, node, counters) VALUES (?, ?, ?, ?, ?)",
            [(*row[:4], row.packed()) for row in rows],
        )
        connection.commit()


def read(url: str, node: str) -> dict[tuple[str, str, int], dict[str, int]]:
    """The counters that a node has stored."""
    names = ("tenant", "queue", "minute", "node", "counters")
    if url.startswith("cassandra:"):
        address = parse_cassandra(url)
        ring = Connection.connect(address, Limits())
        try:
            stored = ring.execute(f"SELECT * FROM {address.keyspace}.{USAGE.name}")
        finally:
            ring.close()
        rows = [tuple(row[name] for name in names) for row in stored]
    else:
        with closing(sqlite3.connect(Path(url.partition(":")[2], "pushlane.db"))) as connection:
            rows = connection.execute(f"SELECT {', '.join(names)} FROM usage").fetchall()
    return {row[:3]: msgspec.msgpack.decode(row[4])[1] for row in rows if row[3] == node}
