"""How the driver is set up: credentials, TLS, data centre, and what may not be repeated."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest
import trustme
from cassandra import InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster
from cassandra.policies import FallthroughRetryPolicy

from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.connection import (
    DRIVER_THREADS,
    MORE_NODES,
    SECOND_SECONDS,
    SUSPECT_SECONDS,
    Connection,
    make_cluster,
)
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.statements import Statement
from pushlane_storage.cassandra.suspects import SuspectsLast
from pushlane_storage.errors import DriverMissing, OpenError, Unreachable
from tests.storage.cassandra.tools import NODE, SURE, address_of, connection_to
from tests.storage.samples import unique

PLAIN = Address(hosts=["127.0.0.1"], keyspace="k")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    authority = trustme.CA()
    own = authority.issue_cert("client.example.org")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    own.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    own.private_key_pem.write_to_path(tmp_path / "key.pem")
    return {name: str(tmp_path / f"{name}.pem") for name in ("ca", "cert", "key")}


@pytest.fixture
def clusters() -> Iterator[list[Cluster]]:
    made: list[Cluster] = []
    yield made
    for cluster in made:
        cluster.shutdown()


def make(clusters: list[Cluster], **changes: Any) -> Cluster:
    cluster = make_cluster(msgspec.structs.replace(PLAIN, **changes), Limits(request_ms=7_000))
    clusters.append(cluster)
    return cluster


def test_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cassandra", None)
    with pytest.raises(DriverMissing, match=r"pip install 'pushlane-server\[cluster\]'"):
        Connection.connect(PLAIN, Limits())


def test_without_options(clusters: list[Cluster]) -> None:
    cluster = make(clusters)
    assert cluster.ssl_context is None
    assert cluster.auth_provider is None
    profile = cluster.profile_manager.profiles[EXEC_PROFILE_DEFAULT]
    assert isinstance(profile.retry_policy, FallthroughRetryPolicy)
    assert profile.request_timeout == 7


def test_a_node_that_hangs_is_asked_last_until_its_heartbeat_told(clusters: list[Cluster]) -> None:
    cluster = make(clusters)
    profile = cluster.profile_manager.profiles[EXEC_PROFILE_DEFAULT]
    assert isinstance(profile.load_balancing_policy, SuspectsLast)
    assert profile.speculative_execution_policy.delay == SECOND_SECONDS
    assert profile.speculative_execution_policy.max_attempts == MORE_NODES
    noticed = 2 * cluster.idle_heartbeat_interval + cluster.idle_heartbeat_timeout
    assert noticed <= SUSPECT_SECONDS


def test_credentials(clusters: list[Cluster]) -> None:
    provider = make(clusters, user="me", password="secret").auth_provider
    assert (provider.username, provider.password) == ("me", "secret")


def test_the_data_centre(clusters: list[Cluster]) -> None:
    profile = make(clusters, dc="east").profile_manager.profiles[EXEC_PROFILE_DEFAULT]
    assert profile.load_balancing_policy._child._child_policy.local_dc == "east"


def test_tls_trusts_who_it_is_told_to(clusters: list[Cluster], files: dict[str, str]) -> None:
    cluster = make(clusters, tls=files["ca"], tls_cert=files["cert"], tls_key=files["key"])
    context = cluster.ssl_context
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1
    assert make(clusters, tls=True).ssl_context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("changes", [{"tls": "nowhere.pem"}, {"tls": True, "tls_cert": "nowhere"}])
def test_tls_that_can_not_be_used(changes: dict[str, Any]) -> None:
    with pytest.raises(OpenError, match="TLS options"):
        make_cluster(msgspec.structs.replace(PLAIN, **changes), Limits())


def test_tls_to_a_node_without_it() -> None:
    address = msgspec.structs.replace(address_of(NODE), tls=True)
    with pytest.raises(Unreachable):
        Connection.connect(address, msgspec.structs.replace(SURE, connect_ms=5_000))


def test_a_driver_that_connects_to_a_node_that_hangs_has_threads_left(
    clusters: list[Cluster],
) -> None:
    """It would prepare nothing again and connect to nobody else meanwhile."""
    assert make(clusters).executor._max_workers == DRIVER_THREADS > 2


def test_statements_are_prepared_once() -> None:
    connection = connection_to(NODE)
    statement = Statement(f"SELECT release_version AS {unique('as').replace('-', '_')}"
                          " FROM system.local", ())  # fmt: skip
    with pytest.raises(AssertionError, match="not prepared"):
        connection.begin([statement], 1, 8, True, 60)
    assert connection.missing([statement]) == statement.text
    answers: SimpleQueue[Exception | None] = SimpleQueue()
    for _ in range(2):
        connection.prepare_soon(statement.text, answers.put)
        assert answers.get(timeout=60) is None
        assert connection.missing([statement]) is None
        [row] = connection.begin([statement], 1, 8, True, 60).result()
        assert next(iter(row.values()))
    assert connection.count_nodes() == 1
    assert (connection.down, connection.suspects) == (0, 0)


def test_a_statement_that_can_not_be_prepared() -> None:
    answers: SimpleQueue[Exception | None] = SimpleQueue()
    connection_to(NODE).prepare_soon("SELECT nonsense FROM system.local", answers.put)
    assert isinstance(answers.get(timeout=60), InvalidRequest)
