"""Bucket rows in Cassandra: what was dropped is not walked over."""

from __future__ import annotations

import trio
from pyspark.sql import SparkSession

from pushlane_spark.source import open_source
from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.cassandra.connection import Connection
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.url import parse_cassandra
from tests.held import held, let_go
from tests.spark.usage_store import make_keyspace
from tests.storage.samples import LANE, START, claimed_all, messages

ONE, TWO = ShardKey("q", 0), ShardKey("q", 1)
Place = tuple[str, int, int, int, int, bool]


async def write(url: str) -> list[Place]:
    """Buckets in two shards, some of them dropped; those that are left."""
    store = await held(CassandraStore.open(parse_cassandra(url)))
    one, two = await claimed_all(store, ONE, TWO)
    for start in range(START, START + 6):
        await one.append(0, messages(1), start=start)
    for start in (START, START + 1, START + 3):
        key = one.bucket(start=start)
        await one.drain(key)
        await store.drop(ONE, key)
    await two.append(0, messages(1), lane=7)
    await store.mark_bucket(TWO, Bucket(two.bucket(7), two.seq(0), closed=True, count=1))
    found = [(shard, row) for shard in (ONE, TWO) for row in (await store.outline(shard)).buckets]
    await let_go(store)
    return [(*shard, *row.key, row.closed) for shard, row in found]


def put_back(url: str, key: BucketKey) -> None:
    """A row where all was dropped, as only somebody could see who walks over it."""
    address = parse_cassandra(url)
    connection = Connection.connect(address, Limits())
    text = f"INSERT INTO {address.keyspace}.buckets (queue_id, shard, lane, epoch, start, first)"
    try:
        connection.session.execute(f"{text} VALUES ('q', 0, %s, %s, %s, 0)", tuple(key))
    finally:
        connection.close()


def test_dropped_buckets_are_not_read(spark: SparkSession) -> None:
    url = make_keyspace("dropped")
    left = trio.run(write, url)
    assert len(left) == 3 + 1
    put_back(url, BucketKey(LANE, left[0][3], START))
    source = open_source(spark, url)
    columns = ["queue_id", "shard", "lane", "epoch", "start", "closed"]
    for buckets in (source.buckets(), source.buckets(["q", "another"])):
        assert sorted(tuple(row) for row in buckets.select(columns).collect()) == left
    assert source.buckets(["another"]).collect() == []
