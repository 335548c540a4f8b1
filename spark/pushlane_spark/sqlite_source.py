"""The embedded store, read through JDBC: read-only, beside a server or without one.

Tables are read in parts, each a range of bucket numbers, over a connection of its own. What a job
asks for is part of the statement, so SQLite looks up those buckets only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pushlane_spark import frames
from pushlane_spark.errors import StoreUnreadable
from pushlane_spark.frames import (
    BUCKET,
    BYTES,
    LONG,
    SHARD,
    Batches,
    batched,
    bucket_numbers,
    rows_of,
    struct,
)
from pushlane_spark.usage_frames import (
    DAY,
    STANDINGS,
    STORED_USAGE,
    Stored,
    decode_usage,
    standings_of,
)
from pushlane_storage.bucket import CONTROL
from pushlane_storage.copy.errors import SourceMissing
from pushlane_storage.copy.sqlite_source import check_tables, read_only
from pushlane_storage.sqlite.columns import NO_MARKS, bucket_of
from pushlane_storage.sqlite.folder import DATABASE
from pushlane_storage.usage import TALLY_MINUTE, UsageKey

DRIVER = "org.sqlite.JDBC"
PARTS = 16
"""Most parts that a table is read in."""
PART_BUCKETS = 4
"""Fewest buckets that make a part of their own: each opens a connection."""
FETCH_ROWS = 64

_PLACE = (
    "shard.queue_id AS queue_id, shard.number AS shard, bucket.lane AS lane,"
    " bucket.epoch AS epoch, bucket.start AS start, bucket.id AS place"
)
_IN_PLACE = "JOIN shard ON shard.id = bucket.shard"
_BUCKETS = (
    f"SELECT {_PLACE}, bucket.first AS first, closed, drained, count, size, last_at, checksum,"
    f" CAST(marks AS BLOB) AS marks FROM bucket {_IN_PLACE} WHERE bucket.first IS NOT NULL"
)
_SEGMENTS = (
    f"SELECT {_PLACE}, segment.first AS first, segment.count AS count, segment.size AS size,"
    " segment.last_at AS last_at, segment.format AS format, segment.checksum AS checksum,"
    f" segment.head AS head, CAST(coalesce(mark.marks, x'{NO_MARKS.hex()}') AS BLOB) AS marks,"
    " CAST(payload.body AS BLOB) AS body"
    f" FROM bucket {_IN_PLACE} JOIN segment ON segment.bucket = bucket.id"
    " LEFT JOIN mark ON mark.payload = segment.payload"
    " LEFT JOIN payload ON payload.id = segment.payload WHERE 1"
)
_SETTLEMENTS = (
    f"SELECT {_PLACE}, owner, n, settlement.checksum AS checksum,"
    " CAST(settlement.body AS BLOB) AS body"
    f" FROM bucket {_IN_PLACE} JOIN settlement ON settlement.bucket = bucket.id WHERE 1"
)
_SEALS = (
    "SELECT shard.queue_id AS queue_id, shard.number AS shard, owner, checksum,"
    " CAST(seal.body AS BLOB) AS body FROM seal JOIN shard ON shard.id = seal.shard WHERE 1"
)
_STORED_BUCKETS = struct(
    struct(frames.BUCKET_KEY, first=LONG, closed=LONG, drained=LONG, count=LONG, size=LONG),
    struct(last_at=LONG, checksum=LONG, marks=BYTES, place=LONG),
)
_USAGE = "SELECT tenant, queue, minute, node, CAST(counters AS BLOB) AS counters FROM usage"
_TENANTS = """
WITH RECURSIVE known (tenant) AS (
    SELECT min(tenant) FROM usage
    UNION ALL
    SELECT (SELECT min(tenant) FROM usage WHERE tenant > known.tenant) FROM known
    WHERE known.tenant IS NOT NULL
)
SELECT tenant FROM known WHERE tenant IS NOT NULL
"""
"""All tenants, each by one step in the key of the table, which begins with them."""
_QUEUES = "SELECT tenant, name AS queue, id AS queue_id, version, deleting, config FROM queue"


class SqliteSource:
    def __init__(self, spark: SparkSession, url: str) -> None:
        self._spark = spark
        self._database = Path(url.partition(":")[2]) / DATABASE
        self._check(url)

    def _check(self, url: str) -> None:
        if not self._database.is_file():
            advice = "give the folder of a server's --data"
            raise StoreUnreadable(f"{url} is not a store, it has no {DATABASE}: {advice}")
        try:
            with closing(read_only(self._database)) as connection:
                check_tables(url, connection)
        except (SourceMissing, sqlite3.Error) as error:
            raise StoreUnreadable(f"{url} can't be read: {error}") from error

    def queues(self) -> DataFrame:
        return self._read(_QUEUES, frames.QUEUES)

    def buckets(self, queue_ids: Sequence[str] | None = None) -> DataFrame:
        stored = self._read(_BUCKETS + _among(queue_ids), _STORED_BUCKETS, in_parts=True)
        return stored.mapInArrow(_checked, frames.BUCKETS)

    def segments(self, buckets: DataFrame) -> DataFrame:
        return self._of(_SEGMENTS, frames.SEGMENTS, buckets.select(BUCKET))

    def settlements(self, buckets: DataFrame) -> DataFrame:
        keys = buckets.select(BUCKET)
        lane, *when = [F.lit(number).cast("long") for number in CONTROL]
        shards = keys.select(*SHARD, lane.cast("int"), *when).distinct()
        return self._of(_SETTLEMENTS, frames.SETTLEMENTS, keys.union(shards))

    def seals(self, buckets: DataFrame) -> DataFrame:
        shards = buckets.select(SHARD).distinct()
        text = _SEALS + _among(_queues_of(shards))
        return self._read(text, frames.SEALS).join(F.broadcast(shards), SHARD, "left_semi")

    def usage(self, first_minute: int, last_minute: int, tenant: str | None = None) -> DataFrame:
        """In parts by time. Tenants are named, so that each part looks its minutes up."""
        tenants = self._tenants() if tenant is None else [tenant]
        first, last = max(first_minute, 1), max(last_minute, 1)
        asked = f"WHERE tenant IN ({_quoted(tenants)}) AND minute BETWEEN {first} AND {last}"
        parts = min(PARTS, 1 + (last - first) // DAY)
        reader = self._reader(f"{_USAGE} {asked}", STORED_USAGE).options(
            partitionColumn="minute", lowerBound=first, upperBound=last + 1, numPartitions=parts
        )
        return decode_usage(reader.load().to(STORED_USAGE))

    def standings(self, tenant: str | None = None) -> DataFrame:
        tenants = self._tenants() if tenant is None else [tenant]
        with closing(read_only(self._database)) as connection:
            asked = f"{_USAGE} WHERE tenant IN ({_quoted(tenants)}) AND minute = {TALLY_MINUTE}"
            found = standings_of(connection.execute(asked), partial(_rows, connection))
        return self._spark.createDataFrame(found, STANDINGS)

    def _tenants(self) -> list[str]:
        with closing(read_only(self._database)) as connection:
            return [tenant for (tenant,) in connection.execute(_TENANTS)]

    def _of(self, text: str, columns: StructType, keys: DataFrame) -> DataFrame:
        """The rows of some buckets. Queues and times are for SQLite to look up, the rest is
        sorted out here."""
        found = keys.agg(F.min("start"), F.max("start"), F.collect_set("queue_id")).first()
        assert found is not None
        low, high, queue_ids = found
        if low is None:
            return self._spark.createDataFrame([], columns)
        asked = f"{_among(queue_ids)} AND bucket.start BETWEEN {low} AND {high}"
        columns = struct(columns, place=LONG)
        stored = self._read(text + asked, columns, in_parts=True, asked=asked).drop("place")
        return stored.join(F.broadcast(keys), BUCKET, "left_semi")

    def _read(
        self, text: str, columns: StructType, *, in_parts: bool = False, asked: str = ""
    ) -> DataFrame:
        """`asked` bounds the parts to the buckets that are asked for."""
        reader = self._reader(text, columns)
        if in_parts:
            low, high = self._places(asked)
            parts = max(1, min(PARTS, (high - low) // PART_BUCKETS))
            reader = reader.options(
                partitionColumn="place", lowerBound=low, upperBound=high + 1, numPartitions=parts
            )
        return reader.load().to(columns)

    def _reader(self, text: str, columns: StructType) -> DataFrameReader:
        return (
            self._spark.read.format("jdbc")
            .option("driver", DRIVER)
            .option("url", f"jdbc:sqlite:{self._database.absolute().as_uri()}?mode=ro")
            .option("dbtable", f"({text}) AS stored")
            .option("customSchema", _as_text(columns))
            .option("fetchsize", FETCH_ROWS)
        )

    def _places(self, asked: str) -> tuple[int, int]:
        """The first and the last number of a bucket."""
        with closing(read_only(self._database)) as connection:
            [found] = connection.execute(
                "SELECT coalesce(min(bucket.id), 0), coalesce(max(bucket.id), 0)"
                f" FROM bucket {_IN_PLACE} WHERE 1{asked}"
            )
        return found[0], found[1]


def _rows(connection: sqlite3.Connection, keys: list[UsageKey]) -> Iterator[Stored]:
    place = "tenant = ? AND minute = ? AND queue = ? AND node = ?"
    for key in keys:
        asked = (key.tenant, key.minute, key.queue, key.node)
        yield from connection.execute(f"{_USAGE} WHERE {place}", asked)


def _as_text(columns: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in columns)


def _queues_of(keys: DataFrame) -> list[str]:
    return [row.queue_id for row in keys.select("queue_id").distinct().collect()]


def _among(queue_ids: Sequence[str] | None) -> str:
    """A condition on the queue. Nothing in here is a user's: ids are ours, and quoted all the
    same."""
    if queue_ids is None:
        return ""
    return f" AND shard.queue_id IN ({_quoted(queue_ids)})"


def _quoted(texts: Sequence[str]) -> str:
    return ", ".join("'" + text.replace("'", "''") + "'" for text in texts)


def _checked(batches: Batches) -> Batches:
    """Bucket rows as they count; `StoreDamaged`."""
    return batched(map(_bucket, rows_of(batches)), frames.BUCKETS, 1_000)


def _bucket(row: dict[str, int]) -> dict[str, object]:
    names = "lane, epoch, start, first, closed, drained, count, size, last_at, checksum, marks"
    found = bucket_of(tuple(row[name] for name in names.split(", ")))
    place = {name: row[name] for name in SHARD} | found.key._asdict()
    return {**place, **bucket_numbers(found)}
