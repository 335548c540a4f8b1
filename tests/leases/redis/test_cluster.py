"""Routing over a cluster; the conformance suite runs on a real one, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from redis.exceptions import AskError, MovedError

from pushlane_leases.interface import Forgotten, LeaseCacheError, NotNow
from pushlane_leases.redis.cache import RedisLeases
from pushlane_leases.redis.calls import Command
from pushlane_leases.redis.cluster import SLOTS, Cluster, Node, read_slots, slot_of
from pushlane_leases.redis.connection import Connection
from pushlane_leases.redis.entry import epoch_key, runs_key
from pushlane_leases.redis.url import RedisLimits, make_pool
from tests.leases.samples import NOW, by_receipt, run
from tools.services.redis import Redis, running_redis_cluster

A, B, C = ("a", 1), ("b", 2), ("c", 3)
LOW, HIGH = "{b}", "{a}"  # slots 3300 and 15495


class Fake:
    """A cluster in memory: who owns the lower and the upper half, and who is away."""

    def __init__(self) -> None:
        self.owners = [A, B]
        self.away: set[Node] = set()
        self.closed: list[Node] = []
        self.asked: list[tuple[Node, list[str]]] = []
        self.moving: dict[str, Node] = {}
        """Keys that are on their way."""
        self.said: list[Node] | None = None
        """Who owns which half by nodes that have not heard of a change yet."""

    def connect(self, node: Node) -> Connection:
        return FakeConnection(self, node)

    def answer(self, node: Node, command: Command) -> Any:
        half = SLOTS // 2
        low, high = ([host.encode(), port, b"id"] for host, port in self.said or self.owners)
        if command == ("CLUSTER", "SLOTS"):
            return [[0, half - 1, low, low], [half, SLOTS - 1, high]]
        owner = self.owners[slot_of(command) >= half]
        if owner == node and command[1] in self.moving:
            host, port = self.moving[str(command[1])]
            return AskError(f"1 {host}:{port}")
        if owner != node:
            return MovedError(f"{slot_of(command)} {owner[0]}:{owner[1]}")
        return node[0] + ":" + str(command[1])


class FakeConnection(Connection):
    def __init__(self, fake: Fake, node: Node) -> None:
        self.fake, self.node = fake, node

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        self.fake.asked.append((self.node, [str(command[-1]) for command in commands]))
        if self.node in self.fake.away:
            raise LeaseCacheError("gone")
        replies: list[Any] = []
        for command in commands:
            if replies and replies[-1] == "asked":
                replies.append(self.node[0] + ":" + str(command[1]))
            elif command == ("ASKING",):
                replies.append("asked")
            else:
                replies.append(self.fake.answer(self.node, command))
        return replies

    def close(self) -> None:
        self.fake.closed.append(self.node)


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def cluster(fake: Fake) -> Cluster:
    return Cluster(A, fake.connect)


def get(*keys: str) -> list[Command]:
    return [("GET", key) for key in keys]


def test_each_command_goes_to_its_node_and_each_node_is_asked_once(
    fake: Fake, cluster: Cluster
) -> None:
    answers = cluster.exchange(get(HIGH, LOW, HIGH))
    assert answers == [f"b:{HIGH}", f"a:{LOW}", f"b:{HIGH}"]
    assert fake.asked == [(A, ["SLOTS"]), (B, [HIGH, HIGH]), (A, [LOW])]


def test_a_slot_that_moved_is_found(fake: Fake, cluster: Cluster) -> None:
    cluster.exchange(get(LOW, HIGH))
    fake.owners = [C, B]
    assert cluster.exchange(get(LOW, HIGH)) == [f"c:{LOW}", f"b:{HIGH}"]
    assert fake.closed == [A], "it owns nothing any more"


def test_who_lost_a_slot_knows_better_than_who_has_not_heard(fake: Fake, cluster: Cluster) -> None:
    cluster.exchange(get(LOW, HIGH))
    fake.owners, fake.said = [C, B], [A, B]
    assert cluster.exchange(get(LOW, HIGH)) == [f"c:{LOW}", f"b:{HIGH}"]
    fake.asked.clear()
    assert cluster.exchange(get(LOW)) == [f"c:{LOW}"]
    assert fake.asked == [(C, [LOW])], "it remembers"


def test_a_slot_that_is_on_its_way_is_asked_for_where_it_goes(fake: Fake, cluster: Cluster) -> None:
    """The old node answers for keys that it still has, and names the new one for others."""
    cluster.exchange(get(LOW, HIGH))
    fake.moving = {LOW: C}
    fake.asked.clear()
    assert cluster.exchange(get(LOW, HIGH, LOW)) == [f"c:{LOW}", f"b:{HIGH}", f"c:{LOW}"]
    assert fake.asked == [(A, [LOW, LOW]), (B, [HIGH]), (C, ["ASKING", LOW, "ASKING", LOW])]
    fake.asked.clear()
    assert cluster.exchange(get(LOW)) == [f"c:{LOW}"]
    assert fake.asked[0] == (A, [LOW]), "until it has moved, its keys are looked for there first"


def test_a_node_that_is_gone_fails_its_own_commands(fake: Fake, cluster: Cluster) -> None:
    cluster.exchange(get(LOW, HIGH))
    fake.away = {B}
    answers = cluster.exchange(get(HIGH, LOW))
    assert isinstance(answers[0], LeaseCacheError)
    assert answers[1] == f"a:{LOW}"
    fake.owners = [A, C]
    assert cluster.exchange(get(HIGH)) == [f"c:{HIGH}"], "another took over"


def test_nobody_answers(fake: Fake, cluster: Cluster) -> None:
    fake.away = {A, B}
    with pytest.raises(LeaseCacheError, match="no node of the cluster answers: gone"):
        cluster.exchange(get(LOW))
    fake.away = {A}
    fake.owners = [B, B]
    other = Cluster(B, fake.connect)
    assert other.exchange(get(LOW)) == [f"b:{LOW}"]


def test_it_closes_all(fake: Fake, cluster: Cluster) -> None:
    cluster.exchange(get(LOW, HIGH))
    cluster.close()
    assert sorted(fake.closed) == [A, B]


def test_slots_that_nobody_has(fake: Fake) -> None:
    owners = read_slots([[0, 0, [b"", 7, b"id"]], [2, 3, [b"h", 8, b"id"]]], "asked")
    assert owners[:5] == [("asked", 7), None, ("h", 8), ("h", 8), None]
    assert len(owners) == SLOTS


def test_a_script_belongs_where_its_keys_do() -> None:
    assert slot_of(("EVALSHA", "sha", 2, "{a}:epoch", "{a}:runs")) == slot_of(("GET", "{a}"))


# On a real one


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Redis]]:
    with running_redis_cluster(3) as nodes:
        yield nodes


async def test_shards_on_all_nodes(nodes: list[Redis]) -> None:
    leases = RedisLeases(f"{nodes[0].url}?cluster=true")
    shards = [f"queue/{n}" for n in range(30)]
    for shard in shards:
        await leases.claim(shard, 1, NOW)
        await leases.grant(shard, 1, [run(1, 3)])
    for shard in shards:
        assert by_receipt(await leases.claim(shard, 1, NOW)) == by_receipt([run(1, 3)])
    await leases.close()
    for node in nodes:
        with node.client() as client:
            assert client.dbsize() > 0


def rows_of(node: Redis) -> Any:
    [rows] = Connection(make_pool(node.url, RedisLimits())).exchange([("CLUSTER", "SLOTS")])
    return rows


async def test_a_slot_changes_its_node(nodes: list[Redis]) -> None:
    leases = RedisLeases(f"{nodes[0].url}?cluster=true", RedisLimits(answer_ms=5_000))
    slot = slot_of(("GET", epoch_key("moving")))
    await leases.claim("moving", 1, NOW)
    for node in nodes:
        with node.client() as client:
            client.flushall()
    owner = read_slots(rows_of(nodes[0]), "")[slot]
    [other, *_] = [node for node in nodes if (node.host, node.port) != owner]
    with other.client() as client:
        to = client.execute_command("CLUSTER MYID")
    for node in nodes:
        with node.client() as client:
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", to)
    with pytest.raises(Forgotten):
        await leases.grant("moving", 1, [run(1)])
    assert len(await leases.claim("moving", 1, NOW)) == 1
    await leases.close()


async def test_a_slot_that_is_moved_while_it_is_used(nodes: list[Redis]) -> None:
    leases = RedisLeases(f"{nodes[0].url}?cluster=true", RedisLimits(answer_ms=5_000))
    shard = "on its way"
    slot = slot_of(("GET", epoch_key(shard)))
    await leases.grant(shard, 1, [run(1, 3)])
    owner = read_slots(rows_of(nodes[0]), "")[slot]
    [source] = [node for node in nodes if (node.host, node.port) == owner]
    [other, *_] = [node for node in nodes if node is not source]
    with source.client() as old, other.client() as new:
        new.execute_command("SCRIPT FLUSH")
        ids = [client.execute_command("CLUSTER MYID") for client in (old, new)]
        new.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
        old.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
        await leases.grant(shard, 1, [run(4)])
        old.migrate(other.host, other.port, epoch_key(shard), 0, 5_000)
        with pytest.raises(NotNow, match="TryAgainError"):
            await leases.grant(shard, 1, [run(5)])
        old.migrate(other.host, other.port, runs_key(shard), 0, 5_000)
        assert sum(one.count for one in await leases.claim(shard, 1, NOW)) == 4, "by ASK"
        for client in (new, old):
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[1])
    assert sum(one.count for one in await leases.claim(shard, 1, NOW)) == 4
    await leases.close()
