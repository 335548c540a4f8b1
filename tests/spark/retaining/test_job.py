"""The retention job on real stores, beside a server."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pyspark.sql import SparkSession

import pushlane
from pushlane.testing import server
from pushlane_spark.queue import read_queue
from pushlane_spark.retaining.job import run
from tests.spark.retaining.ledger import Ledger, find, violations
from tests.spark.retaining.load import QUEUE, consume, fill, make


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
