"""A ring of three that loses nodes while it is written to."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
import trio
from cassandra import ConsistencyLevel, OperationTimedOut, RequestExecutionException
from cassandra.cluster import NoHostAvailable
from cassandra.query import SimpleStatement

from pushlane_storage.bucket import Bucket, ShardKey
from pushlane_storage.cassandra.address import parse
from pushlane_storage.cassandra.connection import Connection
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.schema import create_table
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.cassandra.tables import SEGMENTS
from pushlane_storage.interface import StoreError, StoreRefused, StoreUnknown
from tests.storage.samples import Owner, claimed, messages, seqs_of
from tools.services.cassandra import Ring, running_cassandra

log = logging.getLogger(__name__)
QUICK = Limits(request_ms=5_000, connect_ms=30_000, close_ms=30_000)


@pytest.fixture(scope="module")
def ring() -> Iterator[Ring]:
    with running_cassandra(3) as ring:
        yield ring


class Row:
    """A segment's row that stands on the last node alone."""

    def __init__(self, connection: Connection, host: str) -> None:
        self._connection = connection
        replication = "lone WITH replication = {'class': 'NetworkTopologyStrategy',"
        connection.execute(f"CREATE KEYSPACE {replication} 'replication_factor': 1}}", 60)
        connection.execute(create_table("lone", SEGMENTS, uuid4()), 60)
        insert = connection.session.prepare(
            "INSERT INTO lone.segments (queue_id, shard, lane, epoch, start, first, count, payload)"
            " VALUES (?, ?, ?, ?, ?, 7, 5, 0xff)"
        )
        self._queue = next(
            f"q{number}"
            for number in itertools.count()
            if self._home(insert.bind((f"q{number}", 0, 4, 1, 1)).routing_key) == host
        )
        connection.session.execute(insert, (self._queue, 0, 4, 1, 1))
        connection.execute(f"ALTER KEYSPACE {replication} 'datacenter1': 3}}", 60)

    def _home(self, key: bytes) -> str:
        [replica] = self._connection.cluster.metadata.get_replicas("lone", key)
        return str(replica.address)

    def read(self, columns: str) -> list[dict[str, Any]]:
        query = SimpleStatement(
            f"SELECT {columns} FROM lone.segments WHERE queue_id = '{self._queue}' AND shard = 0"
            " AND lane = 4 AND epoch = 1 AND start = 1",
            consistency_level=ConsistencyLevel.QUORUM,
        )
        return list(self._connection.session.execute(query, timeout=60))


def test_a_read_repairs_what_it_names_and_nothing_else(
    ring: Ring, request: pytest.FixtureRequest
) -> None:
    """That is why the segments of a bucket that was cut off are read with their bodies."""
    address = parse(ring.url("lone").removeprefix("cassandra:"))
    connection = Connection.connect(address, QUICK)
    request.addfinalizer(connection.close)
    row = Row(connection, ring.nodes[2].host)
    for _ in range(20):  # every two of the three are asked, sooner or later
        row.read("first, count")
    ring.nodes[2].kill()
    [found] = until_read(row)
    assert found["count"] == 5
    assert found["payload"] is None, "if this changes, heads can be read without bodies"
    ring.nodes[2].start()
    for _ in range(20):
        row.read("*")
    ring.nodes[2].kill()
    [found] = until_read(row)
    assert found["payload"] == b"\xff"
    ring.nodes[2].start()


def until_read(row: Row) -> list[dict[str, Any]]:
    """A node was killed: the others notice after a moment."""
    faults = []
    for _ in range(20):
        try:
            return row.read("*")
        except (RequestExecutionException, OperationTimedOut, NoHostAvailable) as error:
            faults.append(error)
            time.sleep(1)
    raise AssertionError(f"two of three don't answer: {faults}")


class Writer:
    """Appends one message after the other, each until it is decided."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.stored: list[int] = []
        self.faults: list[StoreError] = []

    async def run(self, upto: int) -> None:
        key = self.owner.bucket()
        for counter in range(len(self.stored), upto):
            segment = self.owner.segment(counter, messages(1))
            opens = Bucket(key, self.owner.seq(0))
            while True:
                try:
                    await self.owner.store.append(self.owner.shard, segment, opens)
                    break
                except (StoreUnknown, StoreRefused) as error:
                    self.faults.append(error)
                    await trio.sleep(0.1)
            self.stored.append(segment.first)

    async def check(self, store: CassandraStore) -> None:
        found = await store.segments(self.owner.shard, self.owner.bucket(), 0, 100_000)
        assert seqs_of(found) == self.stored


async def test_nodes_go_and_come_back(ring: Ring) -> None:
    address = parse(ring.url("outage").removeprefix("cassandra:"))
    store = await CassandraStore.open(address, QUICK)
    writer = Writer(await claimed(store))
    await writer.run(20)

    # One of three: the others are a quorum.
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run, 300)
        await trio.sleep(0.2)
        await trio.to_thread.run_sync(ring.nodes[2].kill)
    await writer.check(store)
    assert await store.claim(0, "node") == 1, "lightweight transactions go on, too"
    assert await store.usage("t", 0, 1) == []

    # One of three hangs: slower to notice, and just as harmless.
    await trio.to_thread.run_sync(ring.nodes[2].start)
    await trio.to_thread.run_sync(ring.nodes[1].pause)
    began = trio.current_time()
    with trio.fail_after(120):
        await writer.run(400)
    log.info("100 writes took %.1f s while a node hung", trio.current_time() - began)
    await writer.check(store)
    await trio.to_thread.run_sync(ring.nodes[1].resume)
    await trio.to_thread.run_sync(ring.nodes[2].kill)

    # Two of three: nothing is confirmed, nothing is read.
    await trio.to_thread.run_sync(ring.nodes[1].kill)
    shard, key = writer.owner.shard, writer.owner.bucket()
    segment = writer.owner.segment(400, messages(1))
    with pytest.raises((StoreUnknown, StoreRefused)):
        await store.append(shard, segment, None)
    with pytest.raises((StoreUnknown, StoreRefused)):
        await store.segments(shard, key, 0, 1)
    with pytest.raises((StoreUnknown, StoreRefused)):
        await store.claim(1, "node")
    with pytest.raises((StoreUnknown, StoreRefused)):
        await store.buckets(ShardKey("other", 0))

    # One comes back.
    await trio.to_thread.run_sync(partial(ring.nodes[1].start, wait=False))
    with trio.fail_after(180):
        await writer.run(410)
    await writer.check(store)
    await store.close()
    assert store.stats().in_flight == 0
