"""A look at a cluster and a keyspace from outside the server: for `pushlane doctor`.

`look` asks and changes nothing; `judge` says what of that an operator should know. Nodes are told
apart by data centre: quorums are of one, where the URL names it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.connection import Connection
from pushlane_storage.cassandra.home import EVERYWHERE, replicas_of
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.schema import NODES_FOR_SAFETY, STEPS
from pushlane_storage.cassandra.tables import SCHEMA
from pushlane_storage.errors import KeyspaceNewer, OpenError


class Finding(NamedTuple):
    name: str
    status: str
    """`ok`, `warning` or `failed`."""
    text: str


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    release: str
    took_ms: float
    nodes: dict[str, list[bool]]
    """By data centre: whether each node is up."""
    schema: int | None
    """The version of the tables; None: there are none."""
    replicas: dict[str, int]
    """By data centre; empty when there is no keyspace."""
    sync: str | None
    """`commitlog_sync` of the node that was asked; None: it doesn't say."""


def probe(address: Address, limits: Limits | None = None) -> list[Finding]:
    """What was found, the worst of it too: this raises nothing that a cluster could be to blame
    for. It blocks."""
    try:
        connection = Connection.connect(address, limits or Limits())
    except OpenError as error:
        return [Finding("cassandra", "failed", str(error))]
    try:
        seen = look(connection)
    except Exception as error:  # whatever the driver raises
        return [Finding("cassandra", "failed", f"{_place(address)}: {error}")]
    finally:
        connection.close()
    return list(judge(address, seen))


# Looking


def look(connection: Connection) -> Seen:
    started = time.perf_counter()
    [local] = connection.execute("SELECT release_version FROM system.local")
    took_ms = (time.perf_counter() - started) * 1000
    replicas = replicas_of(connection)
    nodes: dict[str, list[bool]] = {}
    for host in connection.cluster.metadata.all_hosts():
        nodes.setdefault(host.datacenter, []).append(bool(host.is_up))
    return Seen(
        release=local["release_version"],
        took_ms=took_ms,
        nodes=nodes,
        schema=_schema(connection) if replicas else None,
        replicas=replicas,
        sync=_sync(connection),
    )


def _schema(connection: Connection) -> int | None:
    keyspace = connection.address.keyspace
    if not connection.execute(
        "SELECT table_name FROM system_schema.tables"
        f" WHERE keyspace_name = '{keyspace}' AND table_name = '{SCHEMA.name}'"
    ):
        return None
    found = connection.execute(
        f"SELECT version FROM {keyspace}.{SCHEMA.name} WHERE id = 'pushlane'"
    )
    return found[0]["version"] if found else None


def _sync(connection: Connection) -> str | None:
    from cassandra import InvalidRequest, Unauthorized

    try:
        found: list[Any] = connection.execute(
            "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'"
        )
    except (InvalidRequest, Unauthorized):
        return None
    return found[0]["value"] if found else None


# Judging


def judge(address: Address, seen: Seen) -> Iterator[Finding]:
    yield _judge_cluster(address, seen)
    yield _judge_keyspace(address, seen)
    if seen.replicas:
        yield _judge_replicas(address, seen)
    if seen.sync is not None:
        yield _judge_sync(address, seen)


def _judge_cluster(address: Address, seen: Seen) -> Finding:
    states = [state for group in seen.nodes.values() for state in group]
    text = f"{_place(address)}, Cassandra {seen.release}, {_nodes(states)}"
    text += f", {seen.took_ms:.1f} ms a round trip"
    if address.dc is not None and address.dc not in seen.nodes:
        there = ", ".join(sorted(seen.nodes))
        return Finding(
            "cassandra", "failed", f"{text}: no node is in {address.dc}, only in {there}"
        )
    down = states.count(False)
    if down:
        return Finding("cassandra", "warning", f"{text}: {down} down")
    return Finding("cassandra", "ok", text)


def _judge_keyspace(address: Address, seen: Seen) -> Finding:
    known, name = len(STEPS), address.keyspace
    if seen.schema is not None and seen.schema > known:
        return Finding("keyspace", "failed", str(KeyspaceNewer(name, seen.schema, known)))
    if seen.schema == known:
        return Finding("keyspace", "ok", f"{name} has schema {known}")
    what = f"{name} is not there" if seen.schema is None else f"{name} has schema {seen.schema}"
    if address.migrate:
        return Finding("keyspace", "ok", f"{what} yet: the next start brings it to schema {known}")
    return Finding("keyspace", "failed", f"{what}: run `pushlane store migrate`")


def _judge_replicas(address: Address, seen: Seen) -> Finding:
    name, dc = "replication", address.dc
    if dc is not None and dc not in seen.replicas and EVERYWHERE not in seen.replicas:
        return Finding(name, "failed", f"no replica is in {dc}: alter the keyspace")
    count, states = _reach(address, seen)
    quorum = count // 2 + 1
    where = f" in {dc}" if dc is not None else ""
    level = "LOCAL_QUORUM" if address.is_local else "QUORUM"
    text = f"{count} of each message on {_nodes(states)}{where}, {level} is {quorum}"
    if states.count(True) < quorum:
        return Finding(
            name, "failed", f"{text}: only {states.count(True)} up, nothing can be stored"
        )
    if dc is None and len(seen.replicas) > 1:
        advice = "name yours with dc=NAME (docs/cassandra.md, Data centres)"
        return Finding(name, "warning", f"{text}, over all data centres: {advice}")
    fault = _fault(count, len(states))
    return Finding(
        name, "ok" if fault is None else "warning", ": ".join(filter(None, (text, fault)))
    )


def _reach(address: Address, seen: Seen) -> tuple[int, list[bool]]:
    """The replicas that quorums are made of, and the nodes that may hold them."""
    if address.dc is not None and address.dc in seen.replicas:
        return seen.replicas[address.dc], seen.nodes.get(address.dc, [])
    return sum(seen.replicas.values()), [
        state
        for name, group in seen.nodes.items()
        if name in seen.replicas or EVERYWHERE in seen.replicas
        for state in group
    ]


def _fault(count: int, nodes: int) -> str | None:
    if count > nodes:
        return f"there are too few nodes for {count}"
    if count == 1 and nodes > 1:
        return f"a node that is lost takes its messages along, alter the keyspace to {_best(nodes)}"
    if count == 2:
        return "no node may be down"
    return None


def _best(nodes: int) -> int:
    return min(NODES_FOR_SAFETY, nodes)


def _judge_sync(address: Address, seen: Seen) -> Finding:
    text = f"commitlog_sync is {seen.sync}"
    alone = bool(seen.replicas) and _reach(address, seen)[0] == 1
    alone = alone or sum(map(len, seen.nodes.values())) == 1
    if seen.sync == "periodic" and alone:
        advice = "a power cut loses what was acknowledged last, set it to batch on a single node"
        return Finding("commit log", "warning", f"{text}: {advice}")
    return Finding("commit log", "ok", text)


def _nodes(states: list[bool]) -> str:
    return "1 node" if len(states) == 1 else f"{len(states)} nodes"


def _place(address: Address) -> str:
    return f"{','.join(address.hosts)}:{address.port}"
