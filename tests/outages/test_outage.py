"""The store on a ring of three that loses nodes while it is written to.

Nodes notice late that another one is gone, and requests that ask it meanwhile time out. So
whatever must succeed is tried for a long time, and what must fail has no time to succeed in.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest
import trio
from cassandra import ConsistencyLevel, OperationTimedOut, RequestExecutionException
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.query import SimpleStatement

from pushlane_storage.bucket import Bucket, ShardKey
from pushlane_storage.cassandra.address import parse
from pushlane_storage.cassandra.connection import Connection
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.schema import create_table
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.cassandra.tables import SEGMENTS
from pushlane_storage.interface import StoreError, StoreRefused, StoreUnknown
from pushlane_storage.outcome import append
from pushlane_storage.slot import SLOTS, slot_of
from tests.held import held, let_go
from tests.storage.samples import Owner, claimed, messages, seqs_of, unique
from tools.services.cassandra import Ring

log = logging.getLogger(__name__)
QUICK = Limits(request_ms=5_000, connect_ms=60_000, close_ms=30_000)
PATIENCE_S = 180.0
DRIVER_FAULTS = (
    RequestExecutionException, OperationTimedOut, NoHostAvailable, ConnectionException,
)  # fmt: skip


class Row:
    """A segment's row that stands on one node alone."""

    def __init__(self, connection: Connection, host: str) -> None:
        self._connection = connection
        self._keyspace = unique("lone").replace("-", "_")
        replication = f"{self._keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy',"
        connection.execute(f"CREATE KEYSPACE {replication} 'replication_factor': 1}}", 60)
        connection.execute(create_table(self._keyspace, SEGMENTS, uuid4()), 60)
        insert = connection.session.prepare(
            f"INSERT INTO {self._keyspace}.segments"
            " (queue_id, shard, lane, epoch, start, first, count, payload)"
            " VALUES (?, ?, ?, ?, ?, 7, 5, 0xff)"
        )
        self._queue = next(
            f"q{number}"
            for number in itertools.count()
            if self._home(insert.bind((f"q{number}", 0, 4, 1, 1)).routing_key) == host
        )
        connection.session.execute(insert, (self._queue, 0, 4, 1, 1), timeout=60)
        connection.execute(f"ALTER KEYSPACE {replication} 'datacenter1': 3}}", 60)

    def _home(self, key: bytes) -> str:
        [replica] = self._connection.cluster.metadata.get_replicas(self._keyspace, key)
        return str(replica.address)

    def read(self, columns: str, level: int) -> dict[str, Any]:
        """Until it is read: some node may be gone, or just back."""
        query = SimpleStatement(
            f"SELECT {columns} FROM {self._keyspace}.segments WHERE queue_id = '{self._queue}'"
            " AND shard = 0 AND lane = 4 AND epoch = 1 AND start = 1",
            consistency_level=level,
            is_idempotent=True,
        )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                [row] = self._connection.session.execute(query, timeout=20)
                return dict(row)
            except DRIVER_FAULTS:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)


def test_a_read_repairs_what_it_names_and_nothing_else(ring: Ring) -> None:
    """That is why the segments of a bucket that was cut off are read with their bodies."""
    address = parse(ring.url("lone").removeprefix("cassandra:"))
    connection = Connection.connect(address, QUICK)
    home = ring.nodes[2]
    try:
        row = Row(connection, home.host)
        row.read("first, count", ConsistencyLevel.ALL)  # all three are asked, so all are repaired
        home.pause()
        found = row.read("*", ConsistencyLevel.QUORUM)
        home.resume()
        assert found["count"] == 5
        assert found["payload"] is None, "if this changes, heads can be read without bodies"
        row.read("*", ConsistencyLevel.ALL)
        home.pause()
        assert row.read("*", ConsistencyLevel.QUORUM)["payload"] == b"\xff"
    finally:
        home.resume()
        connection.close()


class Writer:
    """Appends one message after the other, each until it is decided."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.stored: list[int] = []
        self.faults: list[StoreError] = []

    async def run(self, upto: int) -> None:
        for counter in range(len(self.stored), upto):
            await self._write(counter)
            self.stored.append(self.owner.seq(counter))

    async def _write(self, counter: int) -> None:
        segment = self.owner.segment(counter, messages(1))
        opens = Bucket(self.owner.bucket(), self.owner.seq(0))
        while True:
            try:
                await append(self.owner.store, self.owner.shard, segment, opens)
                return
            except (StoreUnknown, StoreRefused) as error:
                self.faults.append(error)
                await trio.sleep(0.1)

    async def check(self) -> None:
        """All that was confirmed is there, in its order."""
        store, shard, key = self.owner.store, self.owner.shard, self.owner.bucket()
        found = await until_answered(lambda: store.segments(shard, key, 0, 100_000))
        assert seqs_of(found) == self.stored


async def until_answered(call: Callable[[], Awaitable[Any]]) -> Any:
    with trio.fail_after(PATIENCE_S):
        while True:
            try:
                return await call()
            except (StoreUnknown, StoreRefused) as error:
                log.info("again: %r", error)
                await trio.sleep(0.5)


async def must_fail(*calls: Callable[[], Awaitable[Any]]) -> None:
    """All at once: each takes its time."""

    async def fails(call: Callable[[], Awaitable[Any]]) -> None:
        with pytest.raises((StoreUnknown, StoreRefused)):
            await call()

    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(fails, call)


@pytest.fixture
async def store(ring: Ring) -> AsyncIterator[CassandraStore]:
    address = parse(ring.url(unique("outage").replace("-", "_")).removeprefix("cassandra:"))
    store = await held(CassandraStore.open(address, QUICK))
    yield store
    await let_go(store)
    assert store.stats().in_flight == 0


async def test_nodes_go_and_come_back(ring: Ring, store: CassandraStore) -> None:
    owner = await claimed(store)
    slot = (slot_of(owner.shard) + 1) % SLOTS  # a claim of its own would end the owner's
    writer = Writer(owner)
    await writer.run(20)

    # One of three: the others are a quorum.
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run, 200)
        await trio.sleep(0.2)
        await trio.to_thread.run_sync(ring.nodes[2].kill)
    await writer.check()
    await until_answered(
        lambda: store.ownership.claim(slot, "node")
    )  # lightweight transactions go on, too
    assert await until_answered(lambda: store.usage.read("t", 0, 1)) == []

    # Two of three: nothing is confirmed, nothing is read.
    ring.nodes[1].pause()
    shard, segment = owner.shard, owner.segment(200, messages(1))
    await must_fail(
        lambda: append(store, shard, segment, None),
        lambda: store.segments(shard, owner.bucket(), 0, 1),
        lambda: store.ownership.claim((slot + 1) % SLOTS, "node"),
        lambda: store.outline(ShardKey("other", 0)),
    )

    # One goes on, the other comes back.
    ring.nodes[1].resume()
    with trio.fail_after(PATIENCE_S):
        await writer.run(220)
    await writer.check()
    await trio.to_thread.run_sync(ring.nodes[2].start)

    # One of three hangs: slower to notice, and just as harmless.
    ring.nodes[1].pause()
    began = trio.current_time()
    with trio.fail_after(PATIENCE_S):
        await writer.run(300)
    log.info("80 writes took %.1f s while a node hung", trio.current_time() - began)
    await writer.check()
    ring.nodes[1].resume()
