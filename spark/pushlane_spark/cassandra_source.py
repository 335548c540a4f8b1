"""The replicated store, read through the connector: whole partitions, by their keys.

What a job asks for is looked up by its partition key (the connector's direct join), so however many
queues a keyspace has, only those that are asked for are read. Reads are at a quorum: what was
confirmed to anybody is seen.

Buckets are read as servers read them: around what was dropped. Dropped buckets leave tombstones for
days, and where much passes a lane has so many of them that Cassandra refuses to read across it.
Servers write down what can be skipped, and read the pieces between: so tasks read by the store's
own classes, and not through the connector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import msgspec
import trio
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pushlane_spark import frames
from pushlane_spark.errors import JarsMissing, StoreUnreadable
from pushlane_spark.frames import BUCKET, BUCKETS, SHARD, Batches, batched, bucket_numbers, rows_of
from pushlane_spark.jars import packages
from pushlane_spark.usage_frames import (
    DAY,
    STANDINGS,
    STORED_USAGE,
    Stored,
    decode_usage,
    standings_of,
)
from pushlane_storage.bucket import CONTROL, Bucket, ShardKey
from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.buckets import Buckets
from pushlane_storage.cassandra.connection import Connection, check_driver
from pushlane_storage.cassandra.driver_ring import DriverRing
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.places import Places
from pushlane_storage.cassandra.tables import USAGE
from pushlane_storage.errors import OpenError
from pushlane_storage.url import parse_cassandra, shown
from pushlane_storage.usage import TALLY_MINUTE, UsageKey
from pushlane_storage.work import gather

_BATCH = 1_000
AT_ONCE = 500
"""Shards whose buckets are in memory together, read over one connection."""


class Nobody:
    """Owns no slot, so nothing is remembered of any shard."""

    def find(self, shard: ShardKey) -> None:
        return None


def read_buckets(batches: Batches, address: Address) -> Batches:
    """`BUCKETS` of shards: a task. `StoreDamaged`."""
    return batched(_bucket_rows(batches, address), BUCKETS, _BATCH)


def _bucket_rows(batches: Batches, address: Address) -> Iterator[dict[str, Any]]:
    shards = (ShardKey(row["queue_id"], row["shard"]) for row in rows_of(batches))
    while some := list(islice(shards, AT_ONCE)):
        for shard, buckets in trio.run(_read, some, address).items():
            for bucket in buckets:
                yield {**shard._asdict(), **bucket.key._asdict(), **bucket_numbers(bucket)}


async def _read(shards: Iterable[ShardKey], address: Address) -> dict[ShardKey, list[Bucket]]:
    limits = Limits()
    ring = DriverRing(Connection.connect(address, limits), limits)
    try:
        reader = Buckets(ring, Places(ring, limits), Nobody(), limits)
        return await gather(reader.read, shards, limits.reads)
    finally:
        await ring.close()


FORMAT = "org.apache.spark.sql.cassandra"
PAGE_KEYS = 5_000
_CONNECTION = "spark.cassandra.connection"
_AUTH = "spark.cassandra.auth"


class CassandraSource:
    def __init__(self, spark: SparkSession, url: str) -> None:
        self._spark = spark
        self._url = shown(url)
        try:
            address = parse_cassandra(url)
            check_driver()  # here, not in a task of Spark: it reads buckets with the driver
        except OpenError as error:
            raise StoreUnreadable(str(error)) from None
        self._address = _with_login(address, spark)
        self._options = connector_options(address)
        self._check()

    def _check(self) -> None:
        try:
            self._table("queues")
        except Py4JJavaError as error:
            if "ClassNotFoundException" in str(error.java_exception):
                named = f"--packages {','.join(packages())}"
                message = f"Spark has no connector to Cassandra: start it with {named}"
                raise JarsMissing(message) from error
            raise StoreUnreadable(f"{self._url} can't be read: {error.java_exception}") from error
        except Exception as error:
            raise StoreUnreadable(f"{self._url} can't be read: {error}") from error

    def queues(self) -> DataFrame:
        stored = self._table("queues")
        renamed = stored.withColumnsRenamed({"name": "queue", "id": "queue_id"})
        return renamed.to(frames.QUEUES)

    def buckets(self, queue_ids: Sequence[str] | None = None) -> DataFrame:
        lanes = self._table("lanes")
        if queue_ids is not None:
            asked = [(queue_id,) for queue_id in queue_ids]
            lanes = self._spark.createDataFrame(asked, "queue_id string").join(lanes, "queue_id")
        # The numbers are given, or so little would be put together in one task, and with it all
        # that is read for these buckets.
        tasks = self._spark.sparkContext.defaultParallelism
        shards = lanes.select(SHARD).repartition(tasks, *SHARD).distinct()
        read = partial(read_buckets, address=self._address)
        return shards.mapInArrow(read, frames.BUCKETS).repartition(tasks, *BUCKET)

    def segments(self, buckets: DataFrame) -> DataFrame:
        stored = self._table("segments").withColumnRenamed("payload", "body")
        return buckets.select(BUCKET).join(stored, BUCKET).to(frames.SEGMENTS)

    def settlements(self, buckets: DataFrame) -> DataFrame:
        keys = buckets.select(BUCKET)
        lane, *when = [F.lit(number).cast("long") for number in CONTROL]
        shards = keys.select(*SHARD, lane.cast("int"), *when).distinct()
        found = keys.union(shards).join(self._table("settlements"), BUCKET)
        return found.to(frames.SETTLEMENTS)

    def seals(self, buckets: DataFrame) -> DataFrame:
        found = buckets.select(SHARD).distinct().join(self._table("seals"), SHARD)
        return found.to(frames.SEALS)

    def usage(self, first_minute: int, last_minute: int, tenant: str | None = None) -> DataFrame:
        """By partition, of a tenant and a day. Which there are is asked first: tenants whose queues
        are deleted are known by nothing else."""
        days = range(max(first_minute, 1) // DAY, last_minute // DAY + 1)
        asked = (
            [(tenant, day) for day in days]
            if tenant is not None
            else [place for place in self._partitions() if place[1] in days]
        )
        minutes = F.col("minute").between(first_minute, last_minute)
        return decode_usage(self._usage(asked).where(minutes))

    def standings(self, tenant: str | None = None) -> DataFrame:
        tenants = [tenant] if tenant is not None else [name for name, _ in self._partitions()]
        tallies = self._usage([(name, TALLY_MINUTE // DAY) for name in sorted(set(tenants))])
        found = standings_of(_rows(tallies.where(F.col("minute") == TALLY_MINUTE)), self._of_keys)
        return self._spark.createDataFrame(found, STANDINGS)

    def _usage(self, partitions: list[tuple[str, int]]) -> DataFrame:
        keys = self._spark.createDataFrame(partitions, "tenant string, day long")
        return keys.join(self._table(USAGE.name), ["tenant", "day"]).to(STORED_USAGE)

    def _of_keys(self, wanted: list[UsageKey]) -> Iterator[Stored]:
        places = [
            (key.tenant, key.minute // DAY, key.queue, key.minute, key.node) for key in wanted
        ]
        columns = "tenant string, day long, queue string, minute long, node string"
        keys = self._spark.createDataFrame(places, columns)
        return _rows(keys.join(self._table(USAGE.name), keys.columns).to(STORED_USAGE))

    def _partitions(self) -> list[tuple[str, int]]:
        try:
            connection = Connection.connect(self._address, Limits())
        except OpenError as error:
            raise StoreUnreadable(f"{self._url} can't be read: {error}") from error
        try:
            return usage_partitions(connection, self._address.keyspace)
        finally:
            connection.close()

    def _table(self, name: str) -> DataFrame:
        return self._spark.read.format(FORMAT).options(table=name, **self._options).load()


def _with_login(address: Address, spark: SparkSession) -> Address:
    """Who is not named in the URL may be in Spark's settings, where the connector looks, too."""
    user = address.user or spark.conf.get(f"{_AUTH}.username", None)
    password = address.password or spark.conf.get(f"{_AUTH}.password", None)
    return msgspec.structs.replace(address, user=user, password=password)


def _rows(stored: DataFrame) -> Iterator[Stored]:
    """Of `STORED_USAGE`."""
    return ((row[0], row[1], row[2], row[3], row[4]) for row in stored.toLocalIterator())


def usage_partitions(connection: Connection, keyspace: str) -> list[tuple[str, int]]:
    """All tenants and days that have usage: only keys are read, page by page."""
    from cassandra.query import SimpleStatement

    text = f"SELECT DISTINCT tenant, day FROM {keyspace}.{USAGE.name}"
    found = connection.session.execute(SimpleStatement(text, fetch_size=PAGE_KEYS))
    return [(row["tenant"], row["day"]) for row in found]


def connector_options(address: Address) -> dict[str, str]:
    level = "LOCAL_QUORUM" if address.is_local else "QUORUM"
    options = {
        "keyspace": address.keyspace,
        "directJoinSetting": "on",
        f"{_CONNECTION}.host": ",".join(address.hosts),
        f"{_CONNECTION}.port": str(address.port),
        "spark.cassandra.input.consistency.level": level,
    }
    if address.dc is not None:
        options[f"{_CONNECTION}.localDC"] = address.dc
    if address.user is not None:
        options[f"{_AUTH}.username"] = address.user
        options[f"{_AUTH}.password"] = address.password or ""
    if isinstance(address.tls, str) or address.tls_cert is not None:
        raise StoreUnreadable(
            "Java reads no certificates from such files: say tls=on, and give Spark key stores"
            f" with {_CONNECTION}.ssl.trustStore.path and {_CONNECTION}.ssl.keyStore.path"
        )
    if address.tls is not None:
        options[f"{_CONNECTION}.ssl.enabled"] = "true"
    return options
