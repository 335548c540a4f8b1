"""Archiving a group of buckets: written aside, read back and compared, and only then committed.

What is compared comes from two sides. The rows of buckets and seals say which messages there are,
so what was read back must be exactly these, each once, and each with an end. And what was written
is summed up on its way, so what was read back must have the same ids and bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from pushlane_spark import frames
from pushlane_spark.archive import ARCHIVE, PARTITIONS, archived_form
from pushlane_spark.decoding import decode
from pushlane_spark.frames import BUCKET, LONG, TEXT, struct
from pushlane_spark.retaining.commits import (
    Archived,
    Place,
    Turn,
    carry_out,
    decide,
    group_name,
    staged_files,
    staging,
)
from pushlane_spark.retaining.files import Files
from pushlane_spark.retaining.plan import Found, Queue
from pushlane_spark.source import Source

NAMES = struct(queue_id=TEXT, tenant=TEXT, queue=TEXT)
_ENDS = struct(frames.BUCKET_KEY, bucket_first=LONG, bucket_end=LONG)
_OPEN = ("open", "leaving")


class Archivist:
    """Archives the buckets of one look."""

    def __init__(
        self,
        spark: SparkSession,
        source: Source,
        states: DataFrame,
        queues: Mapping[str, Queue],
        files: Files,
        turn: Turn,
        at: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._source = source
        self._states = states
        rows = states.select(*BUCKET, "bucket_first", "bucket_end").collect()
        self._ends: dict[Place, tuple[int, int]] = {tuple(row[:5]): tuple(row[5:]) for row in rows}
        """By bucket: its first message, and the end behind its last."""
        self._queues = queues
        self._files = files
        self._turn = turn
        self._at = at

    def archive(self, group: Sequence[Found], now: int) -> tuple[list[Archived], dict[Place, str]]:
        """The buckets that are in the archive now, and why the others are not."""
        unfit: dict[Place, str] = {}
        while group:
            name = group_name(group)
            self._at("staging")
            written = self._stage(name, group)
            staged = staged_files(self._files, name)
            self._at("staged")
            found, wrong = self._verify(name, group, written)
            if not wrong:
                self._at("verified")
                self._turn.check()
                commit = decide(self._files, name, now, found, staged)
                self._at("committed")
                carry_out(self._files, commit, self._at)
                return found, unfit
            unfit |= wrong
            group = [one for one in group if one.place not in wrong]
            self._files.delete(staging(name))
        return [], unfit

    def _stage(self, name: str, group: Sequence[Found]) -> int:
        """Write a group aside; the checksum of what was written."""
        self._files.delete(staging(name))
        seen = Observation()
        rows = archived_form(self._messages(group)).observe(
            seen, F.count(F.lit(1)).alias("count"), F.bit_xor(_checksum()).alias("checksum")
        )
        tasks = self._spark.sparkContext.defaultParallelism
        writer = rows.coalesce(tasks).write.partitionBy(*PARTITIONS)
        writer.mode("overwrite").parquet(self._files.full(staging(name)))
        return int(seen.get["checksum"] or 0)

    def _messages(self, group: Sequence[Found]) -> DataFrame:
        keys = self._keys(group)
        states = self._states.join(F.broadcast(keys), BUCKET, "left_semi")
        decoded = decode(self._source.segments(keys), F.broadcast(states))
        ids = {one.shard.queue_id for one in group}
        named = [(id, self._queues[id].tenant, self._queues[id].name) for id in sorted(ids)]
        names = self._spark.createDataFrame(named, NAMES)
        whole = decoded.where(F.col("damage").isNull()).select(frames.MESSAGES.names)
        return whole.join(F.broadcast(names), "queue_id")

    def _keys(self, group: Sequence[Found]) -> DataFrame:
        return self._spark.createDataFrame([one.place for one in group], frames.BUCKET_KEY)

    def _verify(
        self, name: str, group: Sequence[Found], written: int
    ) -> tuple[list[Archived], dict[Place, str]]:
        staged = self._spark.read.schema(ARCHIVE).parquet(self._files.full(staging(name)))
        expected = [
            (*one.place, *self._ends[one.place]) for one in group if one.place in self._ends
        ]
        ends = self._spark.createDataFrame(expected, _ENDS)
        sums = staged.join(F.broadcast(ends), BUCKET).groupBy(*BUCKET).agg(*_sums())
        found = {tuple(row[:5]): tuple(row[5:]) for row in sums.collect()}
        archived, wrong, seen = [], {}, 0
        for *key, first, end in expected:
            place: Place = tuple(key)  # type: ignore[assignment]
            *numbers, checksum = found.get(place, (0, 0, 0, 0, 0))
            seen ^= checksum
            reason = judge(end - first, *numbers)
            if reason is not None:
                wrong[place] = reason
            else:
                archived.append(Archived(*place, end - first, checksum))
        missing = {one.place for one in group} - {*wrong, *(one.place for one in archived)}
        wrong |= dict.fromkeys(missing, "the store says nothing of it any more")
        if not wrong and seen != written:
            wrong = {one.place: "what was read back is not what was written" for one in group}
        return archived, wrong


def judge(expected: int, count: int, total: int, squares: int, open: int) -> str | None:
    """What is wrong with a bucket as it was read back: so many messages, the sum of their places
    in it, the sum of these places' squares, and how many of them have no end."""
    if count != expected:
        return f"{count} of {expected} messages could be read: the others are damaged"
    last = expected - 1
    if (total, squares) != (last * expected // 2, last * expected * (2 * expected - 1) // 6):
        return "a message is there twice, and another one not at all"
    return f"{open} of its messages have not ended" if open else None


def _sums() -> list[Column]:
    place = F.col("seq") - F.col("bucket_first")
    return [
        F.count(F.lit(1)).alias("count"),
        F.sum(place).alias("total"),
        F.sum(place * place).alias("squares"),
        F.sum(F.col("state").isin(*_OPEN).cast("int")).alias("open"),
        F.bit_xor(_checksum()).alias("checksum"),
    ]


def _checksum() -> Column:
    """Of one message: XOR is the same in any order."""
    return F.xxhash64("id", "body", "data", "state")
