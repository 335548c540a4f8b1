"""The retention job on real stores, beside a server."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession

import pushlane
from pushlane.testing import server
from pushlane_spark.queue import read_queue
from pushlane_spark.retaining.job import run
from pushlane_spark.retaining.plan import NO_ARCHIVE, OWNER
from tests.spark.retaining.ledger import Ledger, find, violations
from tests.spark.retaining.load import QUEUE, consume, fill, make
from tests.spark.retaining.made import LATER, make_store


def test_what_has_ended_is_archived_and_dropped(
    spark: SparkSession, store: str, served: server, tmp_path: Path
) -> None:
    ledger, archive = Ledger(), str(tmp_path / "archive")

    async def begin() -> None:
        async with pushlane.connect(served.url) as client:
            await make(client)
            await fill(client, ledger, 35)
            await consume(client, ledger, 27)

    async def end() -> None:
        async with pushlane.connect(served.url) as client:
            await consume(client, ledger, 8)

    asyncio.run(begin())
    dry = run(spark, store, archive=archive, url=served.url, dry_run=True)
    assert (dry.archived_messages, dry.dropped_buckets) == (20, 2)
    assert not Path(archive).exists()
    report = run(spark, store, archive=archive, url=served.url)
    assert (report.archived_messages, report.dropped_buckets) == (20, 2)
    assert (report.unfit, report.beyond_seals, report.orphans) == ([], 0, {})
    found = find(spark, store, archive)
    assert violations(ledger, found) == []
    assert (len(found.archive), len(found.store)) == (20, 15)
    again = run(spark, store, archive=archive, url=served.url)
    assert (again.archived_messages, again.dropped_buckets, again.queues) == (0, 0, [])
    asyncio.run(end())
    both = read_queue(spark, store, QUEUE, archive=archive)
    assert both.count() == both.select("id").distinct().count() == 35


def test_a_server_ends_what_is_past_its_retention(spark: SparkSession, tmp_path: Path) -> None:
    made, archive = make_store(tmp_path / "store"), str(tmp_path / "archive")
    alone = run(spark, made.url)
    [queue] = alone.queues
    assert queue.waiting == {NO_ARCHIVE: 4, OWNER: 1}
    assert (alone.archived_messages, alone.dropped_buckets) == (0, 0)
    with server(store=made.url) as url:
        report = run(spark, made.url, archive=archive, url=url)
    assert (report.archived_messages, report.dropped_buckets) == (14, 4)
    found = find(spark, made.url, archive)
    assert len([state for _, _, state in found.archive if state == "expired"]) == 5
    made.ledger.ended.update(made.ledger.bodies)
    assert violations(made.ledger, found) == []


def test_what_a_deleted_queue_left_behind(spark: SparkSession, tmp_path: Path) -> None:
    made = make_store(tmp_path / "store")
    with closing(sqlite3.connect(tmp_path / "store" / "pushlane.db")) as connection, connection:
        connection.execute("DELETE FROM queue")
    for asked, removed in ((False, []), (True, [made.queue_id])):
        report = run(spark, made.url, orphans=asked, now=LATER)
        assert (report.orphans, report.removed) == ({made.queue_id: 5}, removed)
    assert run(spark, made.url, orphans=True, now=LATER).orphans == {}


def test_only_some_queues(spark: SparkSession, tmp_path: Path) -> None:
    made, archive = make_store(tmp_path / "store"), str(tmp_path / "archive")
    for chosen in ({"queues": ["other"]}, {"tenant": "t"}):
        report = run(spark, made.url, archive=archive, now=LATER, dry_run=True, **chosen)
        assert report.queues == []
    report = run(spark, made.url, archive=archive, now=LATER, dry_run=True, queues=["orders"])
    assert (report.archived_messages, report.dropped_buckets) == (14, 3)
