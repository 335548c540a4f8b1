"""What lay in queues while nobody looked.

Servers look at what is stored every few seconds, in queues that are open. One that nobody uses is
closed after some minutes, and what lies in it takes up room all the same. But it can't change then:
so the minutes in which nobody looked are filled with what the last change left, which the shards'
own rows tell (`STORED`). What lay in a queue that was deleted counts up to its last change.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pushlane_spark.period import Minutes
from pushlane_spark.source import Source
from pushlane_spark.usage_frames import HOUR, USAGE
from pushlane_storage.tally import STORED

LOOKED = "stored_byte_s"
QUEUE = ["tenant", "queue"]
NODE = [*QUEUE, "node"]


def with_idle_storage(
    source: Source, usage: DataFrame, period: Minutes, now: int, tenant: str | None
) -> DataFrame:
    """`USAGE` of a period, and what lay in queues in those of its minutes in which nobody looked,
    by the hour. `now` is a minute: nothing is said of later ones."""
    period = Minutes(period.first, min(period.end, now))
    if period.first >= period.end:
        return usage
    standings = source.standings(tenant)
    newest = standings.agg(F.max("minute")).first()
    if newest is None or newest[0] is None:
        return usage
    known = source.usage(period.first, max(period.last, newest[0]), tenant)
    changes = known.where(F.col("name") == STORED)
    looked = usage.where(F.col("name") == LOOKED)
    ids = source.queues().select("queue_id")
    return usage.unionByName(idle_storage(standings, changes, looked, ids, period))


def idle_storage(
    standings: DataFrame, changes: DataFrame, looked: DataFrame, ids: DataFrame, period: Minutes
) -> DataFrame:
    """`USAGE`: rows for each queue and hour in which something lay there and nobody looked.

    `changes` are those from the period's first minute up to the last standing, at least; `ids` are
    those of the queues that there are.
    """
    ends = _ends(standings, ids)
    over = ends.where(F.col("minute") < period.first)
    before = _before(standings, changes).join(over, NODE, "left_anti")
    parts = [
        _events(before.withColumn("minute", F.lit(period.first)), F.col("stored")),
        _events(changes, F.col("value")),
        _events(ends, -F.col("stored")),
        _events(looked, F.lit(0), looked=True),
    ]
    events = reduce(DataFrame.unionByName, parts)
    return _filled(events.where(F.col("minute").between(period.first, period.last)), period)


def _events(frame: DataFrame, change: Column, *, looked: bool = False) -> DataFrame:
    """By queue and minute: by how much it changed what is stored, and whether somebody looked."""
    return frame.select(
        *QUEUE, "minute", change.cast("long").alias("change"), F.lit(looked).alias("looked")
    )


def _before(standings: DataFrame, changes: DataFrame) -> DataFrame:
    """What was `stored` in each shard when the period began."""
    anchors = standings.withColumnRenamed("minute", "stood_at")
    since = (
        changes.join(F.broadcast(anchors.select(*NODE, "stood_at")), NODE)
        .where(F.col("minute") <= F.col("stood_at"))
        .groupBy(*NODE)
        .agg(F.sum("value").alias("since"))
    )
    stored = F.col("stored") - F.coalesce("since", F.lit(0))
    return anchors.join(since, NODE, "left").select(*NODE, stored.alias("stored"))


def _ends(standings: DataFrame, ids: DataFrame) -> DataFrame:
    """The first minutes without the shards of deleted queues, and what was `stored` in them."""
    owned = standings.withColumn("queue_id", F.split("node", "/")[0])
    gone = owned.join(ids, "queue_id", "left_anti")
    return gone.select(*NODE, (F.col("minute") + 1).alias("minute"), "stored")


def _filled(events: DataFrame, period: Minutes) -> DataFrame:
    in_order = Window.partitionBy(*QUEUE).orderBy("minute")
    steps = (
        events.groupBy(*QUEUE, "minute")
        .agg(F.sum("change").alias("change"), F.max("looked").alias("looked"))
        .withColumn("stored", F.sum("change").over(in_order))
        .withColumn("until", F.lead("minute", 1, period.end).over(in_order))
        .withColumn("since", F.col("minute") + F.col("looked").cast("long"))
        .where((F.col("stored") > 0) & (F.col("since") < F.col("until")))
    )
    hours = F.sequence(_hour(F.col("since")), _hour(F.col("until") - 1), F.lit(HOUR).cast("long"))
    parts = steps.withColumn("hour", F.explode(hours))
    minutes = F.least("until", F.col("hour") + HOUR) - F.greatest("since", "hour")
    return parts.select(
        *QUEUE,
        F.col("hour").alias("minute"),
        F.lit("").alias("node"),
        F.lit(LOOKED).alias("name"),
        (F.col("stored") * 60 * minutes).alias("value"),
    ).to(USAGE)


def _hour(minute: Column) -> Column:
    return minute - minute % HOUR
