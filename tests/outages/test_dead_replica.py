"""A replica that just died holds up no read, whichever of the others is asked.

Cassandra says of a node for some 20 seconds that it is up when it was killed. Meanwhile reads go to
it, too, and whether another replica steps in soon depends on an option of the table (`PROMPT`).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from cassandra import ConsistencyLevel

from pushlane_storage.cassandra.address import parse
from pushlane_storage.cassandra.connection import Connection
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.ring import Table
from pushlane_storage.cassandra.schema import migrate
from pushlane_storage.cassandra.tables import NODES, QUEUES, ROSTER, SEGMENTS, SLOTS
from tests.storage.samples import unique
from tools.services.cassandra import Ring, running_cassandra
from tools.services.cassandra_files import Options

SURE = Limits(request_ms=60_000, connect_ms=60_000)
READ_TIMEOUT_S = 10.0
"""Of Cassandra's, as `tools.services` sets it. So often the nodes look at the options of tables."""
SOON_S = READ_TIMEOUT_S / 2 - 1
"""With percentiles it is half of the time-out, with `ALWAYS` all of it."""
KEYS = 3
EXAMPLES = {"text": str, "int": int, "bigint": int}


@pytest.fixture
def ring() -> Iterator[Ring]:
    """Replicas are asked in the order of the ring: of some rows the dead one would be the first."""
    with running_cassandra(3, Options(heap_mb=400, dynamic_snitch=False)) as ring:
        yield ring


@pytest.fixture
def connection(ring: Ring) -> Iterator[Connection]:
    address = parse(ring.url(unique("dead").replace("-", "_")).removeprefix("cassandra:"))
    connection = Connection.connect(address, SURE)
    yield connection
    connection.close()


def queries(connection: Connection, table: Table, first: str) -> list[Any]:
    """Reads of rows of which this node would be asked first."""
    keyspace = connection.address.keyspace
    where = " AND ".join(f"{name} = ?" for name in table.partition)
    prepared = connection.session.prepare(f"SELECT * FROM {keyspace}.{table.name} WHERE {where}")
    found = []
    for number in itertools.count():
        key = [EXAMPLES[table.columns[name]](number) for name in table.partition]
        query = prepared.bind(key)
        replicas = connection.cluster.metadata.get_replicas(keyspace, query.routing_key)
        if replicas[0].address == first:
            query.consistency_level = ConsistencyLevel.QUORUM
            found.append(query)
            if len(found) == KEYS:
                break
    return found


def longest(connection: Connection, reads: list[Any], hosts: list[str]) -> float:
    """How long the slowest took, all begun at once, each through each of these nodes."""
    nodes = [node for node in connection.cluster.metadata.all_hosts() if node.address in hosts]
    began = time.monotonic()
    futures = [
        connection.session.execute_async(read, host=node, timeout=60)
        for read in reads
        for node in nodes
    ]
    for future in futures:
        future.result()
    return time.monotonic() - began


async def test_a_replica_that_just_died(ring: Ring, connection: Connection) -> None:
    await migrate(connection.address, SURE)
    connection.cluster.refresh_schema_metadata()
    dead, *others = ring.nodes
    hosts = [node.host for node in others]
    tables = (NODES, SLOTS, QUEUES, ROSTER, SEGMENTS)
    reads = [read for table in tables for read in queries(connection, table, dead.host)]
    await trio.sleep(READ_TIMEOUT_S + 1)  # no table was read through any node until now
    await trio.to_thread.run_sync(dead.kill)
    assert await trio.to_thread.run_sync(longest, connection, reads, hosts) < SOON_S
