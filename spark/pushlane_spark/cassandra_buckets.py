"""Bucket rows in Cassandra, read as servers read them: around what was dropped.

Dropped buckets leave tombstones for days, and where much passes a lane has so many of them that
Cassandra refuses to read across it. Servers write down what can be skipped, and read the pieces
between: so tasks read by the store's own classes, and not through the connector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import trio

from pushlane_spark.frames import BUCKETS, Batches, batched, bucket_numbers, rows_of
from pushlane_storage.bucket import Bucket, ShardKey
from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.buckets import Buckets
from pushlane_storage.cassandra.connection import Connection
from pushlane_storage.cassandra.crowd import gather
from pushlane_storage.cassandra.driver_ring import DriverRing
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.places import Places

_BATCH = 1_000
AT_ONCE = 500
"""Shards whose buckets are in memory together, read over one connection."""


class Nobody:
    """Owns no slot, so nothing is remembered of any shard."""

    def find(self, shard: ShardKey) -> None:
        return None


def read_buckets(batches: Batches, address: Address) -> Batches:
    """`BUCKETS` of shards: a task. `StoreDamaged`."""
    return batched(_rows(batches, address), BUCKETS, _BATCH)


def _rows(batches: Batches, address: Address) -> Iterator[dict[str, Any]]:
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
