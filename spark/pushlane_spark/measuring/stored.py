"""Messages themselves, stored and archived: which keys are hot, how large they are, their states.

Messages are counted where they are unpacked: what goes back to Spark are tallies, not messages, so
that no body is moved twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial, reduce
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pushlane_spark.archive import read_archive
from pushlane_spark.columns import outcomes
from pushlane_spark.decoding import place, unpack
from pushlane_spark.frames import BUCKET, LONG, TEXT, Batches, batched, rows_of, struct
from pushlane_spark.look import Look
from pushlane_spark.period import Minutes
from pushlane_spark.source import Source
from pushlane_storage.message import size_of
from pushlane_storage.segment import DamagedSegment, Segment
from pushlane_storage.usage import BINS, bin_of

TOP_KEYS = 10
"""Keys of a queue that are named."""
KEYS_AT_ONCE = 100_000
"""Tallies that one task holds before it gives them to Spark."""
KEY, STATE, SIZE, DAMAGED = "key", "state", "size", "damaged"
_PLACE = struct(queue_id=TEXT)
_COUNTS = struct(kind=TEXT, name=TEXT, count=LONG, bytes=LONG)
TALLIES = struct(_PLACE, _COUNTS)
NAMED = struct(struct(tenant=TEXT, queue=TEXT), _COUNTS)
_BATCH = 10_000


class HotKey(NamedTuple):
    tenant: str
    queue: str
    key: str
    messages: int
    bytes: int


class Stored(NamedTuple):
    """By tenant and queue, of messages that were published in the period."""

    keys: list[HotKey]
    """The most frequent of each queue, in order."""
    states: dict[tuple[str, str], dict[str, int]]
    sizes: dict[tuple[str, str], dict[int, int]]
    """By bin of the latency histograms, which do for bytes as well."""
    bytes: dict[tuple[str, str], int]
    damaged: dict[tuple[str, str], int]
    """Messages of segments that can't be read."""


NOTHING = Stored([], {}, {}, {}, {})


def look_at(
    spark: SparkSession, source: Source, period: Minutes, tenant: str | None, archive: str | None
) -> Stored:
    queues = source.queues()
    if tenant is not None:
        queues = queues.where(F.col("tenant") == tenant)
    queues = queues.select("tenant", "queue", "queue_id").localCheckpoint()
    look = Look(source, [row.queue_id for row in queues.collect()])
    found = [name_queues(tally_store(look, period), queues)]
    if archive is not None:
        found.append(tally_archive(spark, archive, look.buckets, period, tenant))
    return sum_up(reduce(DataFrame.unionByName, found))


def tally_store(look: Look, period: Minutes) -> DataFrame:
    """`TALLIES` of the messages of a look."""
    newest = F.col("last_at") >= 60_000 * period.first
    buckets = look.buckets.where(~F.col("closed") | newest)
    segments = place(look.source.segments(buckets), look.states)
    return segments.mapInArrow(partial(tally_all, period=period), TALLIES)


def tally_archive(
    spark: SparkSession, path: str, stored: DataFrame, period: Minutes, tenant: str | None
) -> DataFrame:
    """`NAMED` of buckets that are not stored any more. Bodies are not read."""
    first, last = (datetime.fromtimestamp(60 * at, UTC) for at in (period.first, period.end))
    days = F.col("day").between(f"{first:%Y-%m-%d}", f"{last:%Y-%m-%d}")
    kept = read_archive(spark, path).where(
        days if tenant is None else days & (F.col("tenant") == tenant)
    )
    within = (F.col("published_at") >= F.lit(first)) & (F.col("published_at") < F.lit(last))
    there = F.broadcast(stored.select(BUCKET))
    rows = kept.where(within).join(there, BUCKET, "left_anti")
    size = F.udf(_size_bin, "string")
    named = {
        KEY: rows.where(F.col("key").isNotNull()).withColumn("name", F.col("key")),
        STATE: rows.withColumn("name", F.col("state")),
    }
    counts = [F.count("*").alias("count"), F.sum("size").alias("bytes")]
    tallies = [
        frame.groupBy("tenant", "queue", F.lit(kind).alias("kind"), "name").agg(*counts)
        for kind, frame in named.items()
    ]
    by_size = rows.groupBy("tenant", "queue", "size").agg(F.count("*").alias("count"))
    binned = by_size.withColumns(
        {"kind": F.lit(SIZE), "name": size("size"), "bytes": F.col("size") * F.col("count")}
    )
    return reduce(DataFrame.unionByName, [*tallies, binned.select(NAMED.names)]).to(NAMED)


def _size_bin(size: int) -> str:
    return str(bin_of(size))


def name_queues(tallies: DataFrame, queues: DataFrame) -> DataFrame:
    """`NAMED` of `TALLIES`."""
    return tallies.join(F.broadcast(queues), "queue_id").select(NAMED.names)


def sum_up(tallies: DataFrame) -> Stored:
    counts = [F.sum("count").alias("count"), F.sum("bytes").alias("bytes")]
    sums = tallies.groupBy("tenant", "queue", "kind", "name").agg(*counts)
    order = Window.partitionBy("tenant", "queue", "kind").orderBy(F.desc("count"), "name")
    ranked = sums.withColumn("place", F.row_number().over(order))
    found = Stored([], {}, {}, {}, {})
    most = F.when(F.col("kind") == KEY, TOP_KEYS).otherwise(BINS)
    for row in ranked.where(F.col("place") <= most).orderBy("tenant", "queue", "place").collect():
        queue = row.tenant, row.queue
        if row.kind == KEY:
            found.keys.append(HotKey(*queue, row.name, row["count"], row.bytes))
        elif row.kind == SIZE:
            found.sizes.setdefault(queue, {})[int(row.name)] = row["count"]
        elif row.kind == STATE:
            found.states.setdefault(queue, {})[row.name] = row["count"]
            found.bytes[queue] = found.bytes.get(queue, 0) + row.bytes
        else:
            found.damaged[queue] = row["count"]
    return found


class Tally:
    """What one task has counted, by queue, kind and name: messages and bytes."""

    def __init__(self, period: Minutes) -> None:
        self._first, self._end = 60_000 * period.first, 60_000 * period.end
        self._found: dict[tuple[str, str, str], list[int]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, row: dict[str, Any]) -> None:
        """A segment, with the state of its bucket."""
        queue = row["queue_id"]
        try:
            segment = unpack(row)
        except DamagedSegment:
            self._count(queue, DAMAGED, "", row["count"], row["size"])
            return
        self._messages(queue, segment, row)

    def _messages(self, queue: str, segment: Segment, row: dict[str, Any]) -> None:
        exist = segment.messages[: max(row["bucket_end"] - segment.first, 0)]
        ends = outcomes(row, segment.first, len(exist))
        for message, end in zip(exist, ends, strict=True):
            if self._first <= message.published_at < self._end:
                size = size_of(message)
                self._count(queue, STATE, end.state, 1, size)
                self._count(queue, SIZE, str(bin_of(size)), 1, size)
                if message.key is not None:
                    self._count(queue, KEY, message.key, 1, size)

    def _count(self, queue: str, kind: str, name: str, count: int, size: int) -> None:
        known = self._found.get((queue, kind, name))
        if known is None:
            self._found[queue, kind, name] = [count, size]
        else:
            known[0] += count
            known[1] += size

    def take(self) -> Iterator[dict[str, Any]]:
        found, self._found = self._found, {}
        for key, value in found.items():
            yield dict(zip(TALLIES.names, (*key, *value), strict=True))


def tally_all(batches: Batches, period: Minutes) -> Batches:
    def found() -> Iterator[dict[str, Any]]:
        tally = Tally(period)
        for row in rows_of(batches):
            tally.add(row)
            if len(tally) >= KEYS_AT_ONCE:
                yield from tally.take()
        yield from tally.take()

    return batched(found(), TALLIES, _BATCH)
