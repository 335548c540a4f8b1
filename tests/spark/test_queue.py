"""Reading a queue: from the store, from the archive, from both."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pushlane_spark.archive import PARTITIONS, archived_form, read_archive
from pushlane_spark.errors import QueueUnknown, StoreUnreadable
from pushlane_spark.queue import QUEUE as COLUMNS
from pushlane_spark.queue import Period, read_queue
from tests.spark.traffic import QUEUE, Sent

Traffic = tuple[str, dict[str, Sent]]


@pytest.fixture(scope="module")
def messages(spark: SparkSession, traffic: Traffic) -> DataFrame:
    return read_queue(spark, traffic[0], QUEUE).localCheckpoint()


def write(messages: DataFrame, path: Path) -> str:
    form = archived_form(messages)
    form.coalesce(1).write.partitionBy(*PARTITIONS).parquet(str(path), mode="append")
    return str(path)


def ids(messages: DataFrame) -> list[tuple[str, bool]]:
    return sorted((row.id, row.archived) for row in messages.select("id", "archived").collect())


def test_from_the_store(messages: DataFrame, traffic: Traffic) -> None:
    assert ids(messages) == sorted((id, False) for id in traffic[1])
    assert messages.schema.names == COLUMNS.names
    states = {row.state: row["count"] for row in messages.groupBy("state").count().collect()}
    assert states == {"acked": 4, "dead": 1, "open": 8}


def test_from_both(
    spark: SparkSession, traffic: Traffic, messages: DataFrame, tmp_path: Path
) -> None:
    """A bucket that was dropped, and one that was archived and not dropped yet."""
    dropped = (
        messages.where("lane = 4")
        .limit(1)
        .withColumns({"id": F.lit("long ago"), "epoch": F.lit(0).cast("long"), "key": F.lit("old")})
    )
    archive = write(messages.where("lane = 7").unionByName(dropped), tmp_path)
    found = read_queue(spark, traffic[0], QUEUE, archive=archive)
    assert ids(found) == sorted([*((id, False) for id in traffic[1]), ("long ago", True)])


def test_a_bucket_that_is_dropped_by_half(
    spark: SparkSession, traffic: Traffic, messages: DataFrame, tmp_path: Path
) -> None:
    more = messages.where("lane = 7").withColumn("id", F.lit("dropped already"))
    archive = write(messages.where("lane = 7").unionByName(more), tmp_path)
    found = read_queue(spark, traffic[0], QUEUE, archive=archive).where("lane = 7")
    [seven] = [id for id, sent in traffic[1].items() if sent.lane == 7]
    assert ids(found) == sorted([(seven, False), ("dropped already", True)])


def test_from_the_archive_alone(spark: SparkSession, messages: DataFrame, tmp_path: Path) -> None:
    named = messages.withColumns({"queue": F.lit("007"), "tenant": F.lit("a=b/c")})
    later = named.withColumn("published_at", F.expr("published_at + interval 3 days"))
    archive = write(named.unionByName(later), tmp_path)
    found = read_queue(spark, None, "007", tenant="a=b/c", archive=archive)
    assert found.count() == 2 * messages.count()
    kept = read_archive(spark, archive)
    assert {row.queue for row in kept.select("queue").distinct().collect()} == {"007"}
    assert (
        read_queue(
            spark, None, "007", tenant="a=b/c", archive=archive, since=datetime.now(UTC)
        ).count()
        == messages.count()
    )
    with pytest.raises(QueueUnknown, match="no queue 7 of tenant a=b/c"):
        read_queue(spark, None, "7", tenant="a=b/c", archive=archive)


def test_a_period(spark: SparkSession, traffic: Traffic, messages: DataFrame) -> None:
    [(first, last)] = messages.select(F.min("published_at"), F.max("published_at")).collect()
    first, last = first.astimezone(UTC), last.astimezone(UTC)
    assert read_queue(spark, traffic[0], QUEUE, until=first).count() == 0
    east = last.astimezone(timezone(timedelta(hours=5)))
    assert read_queue(spark, traffic[0], QUEUE, since=east).count() == 1


def test_a_time_without_a_zone_is_utc() -> None:
    at = datetime(2026, 1, 2, 12, tzinfo=UTC)
    assert str(Period(at.replace(tzinfo=None)).of("at")) == str(Period(at).of("at"))


def test_days_of_a_period(spark: SparkSession) -> None:
    days = spark.createDataFrame([(f"2026-01-0{n}",) for n in range(1, 6)], "day string")
    period = Period(datetime(2026, 1, 2, 12, tzinfo=UTC), datetime(2026, 1, 4, tzinfo=UTC))
    found = days.where(period.of("day", "%Y-%m-%d")).collect()
    assert [row.day for row in found] == ["2026-01-02", "2026-01-03", "2026-01-04"]


def test_what_is_not_there(spark: SparkSession, traffic: Traffic, tmp_path: Path) -> None:
    with pytest.raises(QueueUnknown, match="no queue nope of tenant default"):
        read_queue(spark, traffic[0], "nope")
    with pytest.raises(QueueUnknown):
        read_queue(spark, traffic[0], QUEUE, tenant="another")
    with pytest.raises(QueueUnknown):
        read_queue(spark, None, QUEUE)
    with pytest.raises(StoreUnreadable, match=r"there is no archive in .*nowhere"):
        read_queue(spark, None, QUEUE, archive=str(tmp_path / "nowhere"))
