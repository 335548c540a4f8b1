"""A queue's messages as a DataFrame: those in the store, and those in the archive."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pushlane_spark import frames
from pushlane_spark.archive import read_archive
from pushlane_spark.errors import QueueUnknown
from pushlane_spark.frames import BUCKET, FLAG, TEXT, struct
from pushlane_spark.look import Look
from pushlane_spark.source import open_source

QUEUE = struct(struct(tenant=TEXT, queue=TEXT), frames.MESSAGES, struct(archived=FLAG))
"""What `read_queue` gives: docs/spark.md says what is in it."""


class Period(NamedTuple):
    """When messages were published; without a zone it is UTC. The end is not included."""

    since: datetime | None = None
    until: datetime | None = None

    def of(self, column: str, form: str | None = None) -> Column:
        """Whether a time, or its text in this form, may lie in it."""
        found = F.lit(True)
        if self.since is not None:
            found &= F.col(column) >= _bound(self.since, form)
        if self.until is not None:
            end = F.col(column) < _bound(self.until, form)
            found &= end if form is None else end | (F.col(column) == _bound(self.until, form))
        return found


def read_queue(
    spark: SparkSession,
    store: str | None,
    queue: str,
    *,
    tenant: str = "default",
    archive: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """`QUEUE`: every message that there is, whatever became of it; `QueueUnknown`.

    `store` is a store's URL, `archive` the path of an archive, and one of them may be missing. What
    is in both comes once. Buckets and days outside of the period are not read.
    """
    period = Period(since, until)
    name = (F.col("tenant") == tenant) & (F.col("queue") == queue)
    look = None if store is None else _look(spark, store, name)
    kept = None if archive is None else _kept(spark, archive, name, period)
    if look is None and (kept is None or kept.isEmpty()):
        raise QueueUnknown(f"there is no queue {queue} of tenant {tenant} in the store or archive")
    found = [] if look is None else [_stored(look, period, tenant, queue)]
    if kept is not None:
        found.append(kept if look is None else _elsewhere(kept, look))
    return reduce(DataFrame.unionByName, found).where(period.of("published_at")).to(QUEUE)


def _look(spark: SparkSession, store: str, name: Column) -> Look | None:
    source = open_source(spark, store)
    row = source.queues().where(name).first()
    return None if row is None else Look(source, [row.queue_id])


def _stored(look: Look, period: Period, tenant: str, queue: str) -> DataFrame:
    buckets = look.buckets
    if period.since is not None:
        newest = F.col("last_at") >= int(_utc(period.since).timestamp() * 1000)
        buckets = buckets.where(~F.col("closed") | newest)
    named = {"tenant": F.lit(tenant), "queue": F.lit(queue), "archived": F.lit(False)}
    return look.messages_of(buckets).withColumns(named)


def _kept(spark: SparkSession, path: str, name: Column, period: Period) -> DataFrame:
    days = read_archive(spark, path).where(name & period.of("day", "%Y-%m-%d"))
    return days.drop("day").withColumn("archived", F.lit(True))


def _elsewhere(kept: DataFrame, look: Look) -> DataFrame:
    """What is in the archive only. Of a bucket that was archived and is not dropped yet, or dropped
    by half, the store's messages are taken as far as they are there."""
    there = F.broadcast(look.buckets.select(BUCKET))
    both = kept.select(BUCKET).distinct().join(there, BUCKET, "left_semi").localCheckpoint()
    alone = kept.join(F.broadcast(both), BUCKET, "left_anti")
    if both.isEmpty():
        return alone
    shared = kept.join(F.broadcast(both), BUCKET, "left_semi")
    return alone.unionByName(shared.join(look.messages_of(both).select("id"), "id", "left_anti"))


def _bound(at: datetime, form: str | None) -> Column:
    return F.lit(_utc(at) if form is None else _utc(at).strftime(form))


def _utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
