"""The source layer: one way to read every store, whatever it is.

A source reads while servers write, so it promises what any reader without a lock can: every row is
one that was stored, rows of one statement fit together, and those of two may be a moment apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from pushlane_spark.cassandra_source import CassandraSource
from pushlane_spark.errors import StoreUnreadable
from pushlane_spark.sqlite_source import SqliteSource


class Source(Protocol):
    """The tables of a store as the frames of `frames`."""

    def queues(self) -> DataFrame:
        """`QUEUES`, of all tenants."""
        ...

    def buckets(self, queue_ids: Sequence[str] | None = None) -> DataFrame:
        """`BUCKETS` of these queues, or of all; each row was checked."""
        ...

    def segments(self, buckets: DataFrame) -> DataFrame:
        """`SEGMENTS` of the buckets of a frame that has `BUCKET`; nothing is checked yet."""
        ...

    def settlements(self, buckets: DataFrame) -> DataFrame:
        """`SETTLEMENTS` of these buckets, and those that speak of their whole shards."""
        ...

    def seals(self, buckets: DataFrame) -> DataFrame:
        """`SEALS` of the shards of these buckets."""
        ...

    def usage(self, first_minute: int, last_minute: int, tenant: str | None = None) -> DataFrame:
        """`USAGE` of these minutes, both included, of all tenants or of one."""
        ...

    def standings(self, tenant: str | None = None) -> DataFrame:
        """`STANDINGS` of all shards that were ever counted, of all tenants or of one."""
        ...


def open_source(spark: SparkSession, url: str) -> Source:
    """The source that a store URL names; `StoreUnreadable`."""
    scheme, colon, _ = url.partition(":")
    if colon and scheme == "sqlite":
        return SqliteSource(spark, url)
    if colon and scheme == "cassandra":
        return CassandraSource(spark, url)
    known = "sqlite:DIR and cassandra://HOST/KEYSPACE can be"
    raise StoreUnreadable(f"Spark can't read a store {scheme + colon!r}: {known}")
