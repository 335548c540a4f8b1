"""A Cassandra of one's own. What kills and pauses do to a ring: tests/outages."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import RoundRobinPolicy

from tests.tools.test_process import wait_gone
from tools.services.cassandra import Ring, running_cassandra
from tools.services.cassandra_files import Options
from tools.services.ports import answers

KEYSPACE = (
    "CREATE KEYSPACE sample WITH replication = "
    "{{'class': 'SimpleStrategy', 'replication_factor': {}}}"
)


@contextmanager
def session(ring: Ring) -> Iterator[Any]:
    profile = ExecutionProfile(
        RoundRobinPolicy(), consistency_level=ConsistencyLevel.QUORUM, request_timeout=60
    )
    cluster = Cluster(
        ring.hosts, port=ring.port, execution_profiles={EXEC_PROFILE_DEFAULT: profile}
    )
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()


def prepare(ring: Ring) -> None:
    with session(ring) as cql:
        cql.execute(KEYSPACE.format(len(ring.nodes)))
        cql.execute("CREATE TABLE sample.numbers (n int PRIMARY KEY)")


def insert(ring: Ring, n: int) -> None:
    with session(ring) as cql:
        cql.execute("INSERT INTO sample.numbers (n) VALUES (%s)", [n])


def numbers(ring: Ring) -> list[int]:
    """Asked again for a while: whoever was away is taken for dead a moment longer."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with session(ring) as cql:
                return sorted(row.n for row in cql.execute("SELECT n FROM sample.numbers"))
        except NoHostAvailable:
            assert time.monotonic() < deadline
            time.sleep(1)


def test_one_node_and_what_a_kill_leaves() -> None:
    with running_cassandra(options=Options(sync="batch")) as ring:
        [node] = ring.nodes
        assert ring.url("sample") == f"cassandra://127.0.0.1:{ring.port}/sample"
        prepare(ring)
        insert(ring, 1)
        node.kill()
        assert not node.answers()
        node.start()
        assert numbers(ring) == [1]
        pid = node.process.pid
    wait_gone(pid)
    assert not answers(node.host, node.port)
