"""What `pushlane doctor` says of a cluster and a keyspace."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio

from pushlane_storage.cassandra.address import Address, parse
from pushlane_storage.cassandra.home import read_replicas
from pushlane_storage.cassandra.probe import Finding, Seen, judge, probe
from pushlane_storage.cassandra.schema import STEPS
from pushlane_storage.url import BadStoreUrl, probe_store
from tests.held import let_go
from tests.storage.cassandra.tools import NODE, RING, address_of, open_store, quick
from tools.services.ports import free_port

THREE = Seen(
    release="5.0.9", took_ms=1.23, nodes={"dc1": [True] * 3}, schema=len(STEPS),
    replicas={"dc1": 3}, sync="periodic",
)  # fmt: skip


def address(options: str = "") -> Address:
    return parse(f"//a,b:9042/pushlane{options}")


def found(seen: Seen = THREE, options: str = "", **changes: Any) -> dict[str, Finding]:
    changed = msgspec.structs.replace(seen, **changes)
    return {finding.name: finding for finding in judge(address(options), changed)}


def test_all_is_well() -> None:
    assert list(found().values()) == [
        ("cassandra", "ok", "a,b:9042, Cassandra 5.0.9, 3 nodes, 1.2 ms a round trip"),
        ("keyspace", "ok", f"pushlane has schema {len(STEPS)}"),
        ("replication", "ok", "3 of each message on 3 nodes, QUORUM is 2"),
        ("commit log", "ok", "commitlog_sync is periodic"),
    ]
    (_, _, replication, _) = found(options="?dc=dc1").values()
    assert replication.text == "3 of each message on 3 nodes in dc1, LOCAL_QUORUM is 2"


@pytest.mark.parametrize(
    ("nodes", "options", "status", "text"),
    [
        ({"dc1": [True, True, False]}, "", "warning", "3 nodes, 1.2 ms a round trip: 1 down"),
        ({"dc1": [True]}, "", "ok", "1 node,"),
        (
            {"dc1": [True], "dc2": [True]},
            "?dc=dc3",
            "failed",
            "no node is in dc3, only in dc1, dc2",
        ),
    ],
)
def test_the_cluster(nodes: dict[str, list[bool]], options: str, status: str, text: str) -> None:
    finding = found(options=options, nodes=nodes)["cassandra"]
    assert finding.status == status
    assert text in finding.text


@pytest.mark.parametrize(
    ("schema", "options", "status", "text"),
    [
        (None, "", "ok", "pushlane is not there yet: the next start brings it to schema"),
        (None, "?migrate=off", "failed", "pushlane is not there: run `pushlane store migrate`"),
        (0, "", "ok", "pushlane has schema 0 yet: the next start brings it to schema"),
        (0, "?migrate=off", "failed", "pushlane has schema 0: run `pushlane store migrate`"),
        (99, "", "failed", "made by a newer version of Pushlane"),
    ],
)
def test_the_keyspace(schema: int | None, options: str, status: str, text: str) -> None:
    finding = found(options=options, schema=schema)["keyspace"]
    assert finding.status == status
    assert text in finding.text


UP = [True] * 3
ONE_DOWN = [True, True, False]


@pytest.mark.parametrize(
    ("replicas", "nodes", "options", "status", "text"),
    [
        ({"dc1": 1}, {"dc1": [True]}, "", "ok", "1 of each message on 1 node, QUORUM is 1"),
        ({"dc1": 3}, {"dc1": ONE_DOWN}, "", "ok", "QUORUM is 2"),
        ({"dc1": 3}, {"dc1": [True, False, False]}, "", "failed", "only 1 up, nothing can be"),
        ({"dc1": 3}, {"dc1": [True]}, "", "failed", "only 1 up"),
        ({"dc1": 3}, {"dc1": [True, True]}, "", "warning", "too few nodes for 3"),
        ({"dc1": 1}, {"dc1": UP}, "", "warning", "messages along, alter the keyspace to 3"),
        ({"dc1": 1}, {"dc1": [True, True]}, "", "warning", "alter the keyspace to 2"),
        ({"dc1": 2}, {"dc1": UP}, "", "warning", "no node may be down"),
        ({"": 3}, {"dc1": UP}, "", "ok", "3 of each message on 3 nodes"),
        ({"": 3}, {"dc1": UP}, "?dc=dc1", "ok", "3 of each message on 3 nodes in dc1"),
        ({"dc1": 3, "dc2": 3}, {"dc1": UP, "dc2": UP}, "", "warning", "QUORUM is 4, over all data"),
        ({"dc1": 3, "dc2": 3}, {"dc1": UP, "dc2": ONE_DOWN}, "?dc=dc1", "ok", "LOCAL_QUORUM is 2"),
        ({"dc1": 3}, {"dc1": UP, "dc2": UP}, "?dc=dc2", "failed", "no replica is in dc2"),
        ({"dc1": 1}, {"dc1": [True], "dc2": UP}, "", "ok", "1 of each message on 1 node"),
    ],
)  # fmt: skip
def test_replicas(
    replicas: dict[str, int], nodes: dict[str, list[bool]], options: str, status: str, text: str
) -> None:
    finding = found(options=options, replicas=replicas, nodes=nodes)["replication"]
    assert finding.status == status
    assert text in finding.text


@pytest.mark.parametrize(
    ("sync", "nodes", "replicas", "status"),
    [
        ("periodic", [True], {"dc1": 1}, "warning"),
        ("periodic", [True], {}, "warning"),
        ("periodic", UP, {"dc1": 1}, "warning"),
        ("periodic", UP, {}, "ok"),
        ("batch", [True], {"dc1": 1}, "ok"),
        ("group", [True], {"dc1": 1}, "ok"),
    ],
)
def test_the_commit_log(
    sync: str, nodes: list[bool], replicas: dict[str, int], status: str
) -> None:
    rows = found(sync=sync, nodes={"dc1": nodes}, replicas=replicas)
    assert rows["commit log"].status == status
    assert ("batch on a single node" in rows["commit log"].text) == (status == "warning")


def test_what_is_not_known_is_not_judged() -> None:
    assert list(found(sync=None, replicas={}, schema=None)) == ["cassandra", "keyspace"]


def test_how_replication_is_written() -> None:
    network = {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy"}
    assert read_replicas({**network, "dc1": "3", "dc2": "2/1"}) == {"dc1": 3, "dc2": 2}
    simple = {"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": "1"}
    assert read_replicas(simple) == {"": 1}


def test_nobody_is_there() -> None:
    port = free_port()
    [row] = probe_store(f"cassandra://u:secret@127.0.0.1:{port}/k")
    assert row[:2] == ("cassandra", "failed")
    assert f"can't be reached at 127.0.0.1:{port}" in row[2]
    assert "secret" not in row[2]


def test_other_stores_are_looked_at_elsewhere() -> None:
    assert probe_store("memory:") == probe_store("sqlite:/d") == []
    for url in ("mongo:x", "nothing", "cassandra://a/B"):
        with pytest.raises(BadStoreUrl):
            probe_store(url)


def test_a_real_node_before_and_after_the_first_start() -> None:
    limits = quick()
    place = address_of(NODE, "probed")
    rows = {row.name: row for row in probe(place, limits)}
    assert [row.status for row in rows.values()] == ["ok", "ok", "warning"]
    assert list(rows) == ["cassandra", "keyspace", "commit log"]
    assert rows["commit log"].text.startswith("commitlog_sync is periodic: ")
    assert "not there yet" in rows["keyspace"].text

    async def start() -> None:
        await let_go(await open_store(NODE, limits))

    trio.run(start)
    rows = {row.name: row for row in probe(address_of(NODE), limits)}
    assert rows["keyspace"].status == "ok"
    assert rows["replication"].text == "1 of each message on 1 node, QUORUM is 1"


def test_a_real_ring() -> None:
    async def start() -> None:
        await let_go(await open_store(RING, quick()))

    trio.run(start)
    rows = {row.name: row for row in probe(address_of(RING), quick())}
    assert [row.status for row in rows.values()] == ["ok"] * 4
    assert "3 nodes" in rows["cassandra"].text
    assert rows["replication"].text == "3 of each message on 3 nodes, QUORUM is 2"
