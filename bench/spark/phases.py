"""What is measured, each in a process of its own: from a store or a history to figures.

A phase answers how many messages or events it saw; what it saw is checked here, so that nothing
fast and wrong is measured.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.spark.filling import BUCKET, OPEN, QUEUES, WEEK_MS
from pushlane_history.rule import RULES, Report
from pushlane_spark.auditing.report import audit
from pushlane_spark.look import Look
from pushlane_spark.session import open_session
from pushlane_spark.source import open_source

MASTER = "local[2]"
HEAP = "1536m"
"""Of Java: with its own needs and Python's workers it stays under the bar."""
FEW = ("key", "size", "state", "published_at")
DIRECT_JOIN = "Cassandra Direct Join"


class Phase(msgspec.Struct):
    """What one process found."""

    name: str
    count: int
    """Messages or events."""
    session_s: float
    """Until Spark was there: the same whatever is done."""
    seconds: float
    note: str = ""
    peak_mib: float = 0.0
    cpu_s: float = 0.0
    """Of all cores, with Spark's start."""


def run_phase(name: str, place: str, count: int) -> Phase:
    os.environ.setdefault("PUSHLANE_JARS", str(Path(sys.prefix, "services")))
    began = time.perf_counter()
    with _session() as spark:
        ready = time.perf_counter()
        note = PHASES[name](spark, place, count)
        return Phase(name, count, ready - began, time.perf_counter() - ready, note)


@contextmanager
def _session() -> Iterator[SparkSession]:
    spark = open_session("bench", master=MASTER, settings={"spark.driver.memory": HEAP})
    try:
        yield spark
    finally:
        spark.stop()


def read(spark: SparkSession, store: str, count: int) -> str:
    """Every column of every message, added up by queue and state."""
    look = Look(open_source(spark, store))
    groups = look.messages.groupBy("queue_id", "state")
    rows = groups.agg(F.count("*").alias("n"), F.sum(F.length("body")).alias("bytes")).collect()
    found = sum(row.n for row in rows)
    assert found == count, f"{found} messages of {count}"
    assert {row.state for row in rows} == {"acked", "dead", "open"}
    return f"{sum(row.bytes for row in rows) >> 20} MiB of bodies"


def read_few(spark: SparkSession, store: str, count: int) -> str:
    """The columns that metrics need, added up by key."""
    look = Look(open_source(spark, store))
    keys = look.messages_of(look.buckets, FEW).groupBy("queue_id", "key")
    rows = keys.agg(F.count("*").alias("n"), F.max("published_at")).agg(F.sum("n"), F.count("*"))
    [(found, many)] = rows.collect()
    assert found == count, f"{found} messages of {count}"
    return f"{many:,} keys"


def read_cassandra(spark: SparkSession, store: str, count: int) -> str:
    """The same from Cassandra. What is read is looked up by its partitions: the plan says so."""
    source = open_source(spark, store)
    [row] = (
        source.queues().where((F.col("tenant") == "acme") & (F.col("queue") == "mail")).collect()
    )
    look = Look(source, [row.queue_id])
    plan: Any = source.segments(look.buckets)._jdf.queryExecution().executedPlan().toString()
    assert DIRECT_JOIN in plan, f"the segments of a bucket are not looked up by its key:\n{plan}"
    found = look.messages.count()
    assert found == count // len(QUEUES), f"{found} messages of {count // len(QUEUES)}"
    return "direct join"


def retention(spark: SparkSession, store: str, count: int) -> str:
    """All drained buckets to the archive, verified, and dropped."""
    run = importlib.import_module("pushlane_spark.retaining").run
    archive = str(Path(store.partition(":")[2]).with_name("archive"))
    report = run(spark, store, archive=archive)
    assert report.unfit == [], report.unfit
    drained = count - OPEN * BUCKET * len(QUEUES)
    assert report.archived_messages == drained, f"{report.archived_messages} of {drained} archived"
    return f"{report.archived_messages:,} archived, {report.dropped_buckets:,} buckets dropped"


def metrics(spark: SparkSession, store: str, _: int) -> str:
    """The report on the whole week."""
    run = importlib.import_module("pushlane_spark.measuring.report").run
    until = datetime.now(UTC)
    out = str(Path(store.partition(":")[2]).with_name("report"))
    since = until - timedelta(milliseconds=WEEK_MS)
    report = run(spark, store, since=since, until=until, out=out)
    assert report.totals["published"] > 0
    return f"{report.plots} plots on {len(report.pages)} pages"


def audit_clean(spark: SparkSession, folder: str, count: int) -> str:
    report = _audited(spark, folder, count)
    assert report.ok, str(report)
    return "no violation"


def audit_broken(spark: SparkSession, folder: str, count: int) -> str:
    report = _audited(spark, folder, count)
    assert report.broken == dict.fromkeys(RULES, 1), report.broken
    assert all(violation.evidence for violation in report.violations)
    return f"{len(report.violations)} violations, one of each rule"


def _audited(spark: SparkSession, folder: str, count: int) -> Report:
    report = audit(spark, folder)[folder]
    found = sum(report.events.values())
    assert found == count, f"{found} events of {count}"
    return report


PHASES: dict[str, Callable[[SparkSession, str, int], str]] = {
    "read": read,
    "read_few": read_few,
    "read_cassandra": read_cassandra,
    "retention": retention,
    "metrics": metrics,
    "audit_clean": audit_clean,
    "audit_broken": audit_broken,
}
