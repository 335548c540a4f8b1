"""What lay in queues, from the changes that their shards wrote down.

Servers look at what is stored every few seconds, but only in queues that are open, and they close
those that nobody uses. What lies there takes up room all the same. So what lay in a shard at any
time is told by its exact changes (`STORED`), whoever had it open: each minute counts with what its
end left. It counts until the queue was deleted, or all of it must be past its retention.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pushlane_spark.period import Minutes
from pushlane_spark.source import Source
from pushlane_spark.usage_frames import HOUR, USAGE
from pushlane_storage.queue import QueueConfig
from pushlane_storage.tally import STORED

MINUTE_MS = 60_000
COUNTER = "stored_byte_s"
QUEUE = ["tenant", "queue"]
NODE = [*QUEUE, "node"]


class Shards(NamedTuple):
    """All that were ever counted."""

    standings: DataFrame
    """`STANDINGS`, with `end`: the minute in which nothing of it can be there any more."""
    newest: int
    """The last minute of a standing."""


def read_shards(source: Source, tenant: str | None) -> Shards:
    standings = source.standings(tenant)
    kept = [
        (row.queue_id, -(-_retention_ms(row.config) // MINUTE_MS))
        for row in source.queues().collect()
    ]
    queues = standings.sparkSession.createDataFrame(kept, "queue_id string, kept long")
    own = standings.withColumn("queue_id", F.split("node", "/")[0])
    end = F.col("minute") + 1 + F.coalesce("kept", F.lit(0))
    ending = own.join(F.broadcast(queues), "queue_id", "left").withColumn("end", end)
    found = standings.agg(F.max("minute")).first()
    newest = 0 if found is None or found[0] is None else int(found[0])
    return Shards(ending.drop("queue_id", "kept"), newest)


def _retention_ms(config: str) -> int:
    return msgspec.json.decode(config, type=QueueConfig).retention_ms


def with_storage(
    source: Source, usage: DataFrame, shards: Shards, period: Minutes, now: int, tenant: str | None
) -> DataFrame:
    """`USAGE` of a period with what lay in queues, by the hour, in place of what servers saw of it.

    `now` is a minute: nothing is said of later ones. Of queues without a standing it stays what
    servers saw.
    """
    period = Minutes(period.first, min(period.end, now))
    if not shards.newest or period.first >= period.end:
        return usage
    known = source.usage(period.first, max(period.last, shards.newest), tenant)
    changes = known.where(F.col("name") == STORED).localCheckpoint()  # it is looked at twice
    counted = F.broadcast(shards.standings.select(*QUEUE).distinct())
    seen = usage.where(F.col("name") == COUNTER).join(counted, QUEUE, "left_anti")
    others = usage.where(F.col("name") != COUNTER)
    return others.unionByName(seen).unionByName(storage(shards.standings, changes, period))


def storage(standings: DataFrame, changes: DataFrame, period: Minutes) -> DataFrame:
    """`USAGE`: what lay in each shard, by the hour.

    `changes` are those from the period's first minute up to the last standing, at least.
    """
    shards = standings.withColumnRenamed("minute", "stood_at")
    shards = shards.where((F.col("stored") > 0) | (F.col("stood_at") >= period.first))
    first = F.lit(period.first).alias("minute")
    steps = _before(shards, changes, period.first).select(*NODE, first, "change")
    later = changes.select(*NODE, "minute", F.col("value").alias("change"))
    events = steps.unionByName(later.where(F.col("minute").between(period.first, period.last)))
    return _filled(events.join(F.broadcast(shards.select(*NODE, "end")), NODE), period)


def _before(shards: DataFrame, changes: DataFrame, first: int) -> DataFrame:
    """What was there when the period began, as a `change`.

    Where the standing is later, by its base: that never changes, whatever the shard does meanwhile.
    """
    places = F.broadcast(shards.select(*NODE, "stood_at"))
    until = changes.join(places, NODE).where(F.col("minute") < F.col("stood_at"))
    sums = until.groupBy(*NODE).agg(F.sum("value").alias("since"))
    base = F.col("base") - F.coalesce("since", F.lit(0))
    stored = F.when(F.col("stood_at") < first, F.col("stored")).otherwise(base)
    found = shards.join(sums, NODE, "left")
    return found.withColumn("change", F.greatest(stored, F.lit(0)))


def _filled(events: DataFrame, period: Minutes) -> DataFrame:
    in_order = Window.partitionBy(*NODE).orderBy("minute")
    following = F.lead("minute", 1, period.end).over(in_order)
    steps = (
        events.groupBy(*NODE, "end", "minute")
        .agg(F.sum("change").alias("change"))
        .withColumn("stored", F.sum("change").over(in_order))
        .withColumn("until", F.least(following, F.col("end")))
        .where((F.col("stored") > 0) & (F.col("minute") < F.col("until")))
    )
    hours = F.sequence(_hour(F.col("minute")), _hour(F.col("until") - 1), F.lit(HOUR).cast("long"))
    parts = steps.withColumn("hour", F.explode(hours))
    minutes = F.least("until", F.col("hour") + HOUR) - F.greatest("minute", "hour")
    return parts.select(
        *NODE,
        F.col("hour").alias("minute"),
        F.lit(COUNTER).alias("name"),
        (F.col("stored") * 60 * minutes).alias("value"),
    ).select(USAGE.names)


def _hour(minute: Column) -> Column:
    return minute - minute % HOUR
