"""Nodes with one role: those that serve clients own no slots."""

from __future__ import annotations

from typing import Any

import pytest

from pushlane.wire.errors import NotFound
from tests.dispatcher.cluster.test_cluster import HOUR, Client, make, numbered, owners
from tests.dispatcher.cluster.world import Node, cluster, until
from tests.dispatcher.rig import TENANT

ONLY_GATEWAY: dict[str, Any] = {"about": {"roles": ("gateway",)}}
ONLY_DISPATCHER: dict[str, Any] = {"about": {"roles": ("dispatcher",)}}


async def test_a_node_that_only_serves_clients_passes_everything_on(
    autojump_clock: object,
) -> None:
    async with cluster(1, **ONLY_DISPATCHER) as world:
        await world.start("b", **ONLY_DISPATCHER)
        front = await world.start("f", **ONLY_GATEWAY)
        await world.linked()
        await make(world, shards=8)
        client = Client(front)
        consumer = await client.subscribe(credit=100, lease_ms=HOUR)
        assert not (await client.publish(*numbered(0, 64))).failed
        await until(lambda: len(consumer.bodies) == 64)
        assert set(owners(world).values()) == {"a", "b"}
        done = await consumer.ack(*consumer.receipts)
        assert (done.lost, done.error) == ([], None)
        assert (await front.dispatcher.stats(TENANT, "q")).stored == 0
        assert front.cluster.numbers()["slots"] == 0
        assert roles(front) == {"a": ("dispatcher",), "b": ("dispatcher",), "f": ("gateway",)}
        assert all(node.linked(*(set(world.nodes) - {node})) for node in world.nodes)


async def test_it_takes_no_slots_when_the_others_are_gone(autojump_clock: Any) -> None:
    async with cluster(1) as world:
        front = await world.start("f", **ONLY_GATEWAY)
        await world.linked()
        await make(world, shards=4)
        client = Client(front)
        await client.publish(*numbered(0, 8))
        world.kill(world.nodes[0])
        consumer = None
        await until(lambda: front.cluster.members.places == [])
        await world.start("a")
        await world.linked()
        consumer = await client.subscribe(credit=100, lease_ms=HOUR)
        await until(lambda: len(consumer.bodies) == 8)
        assert set(owners(world).values()) == {"a"}
        assert front.cluster.numbers()["slots"] == 0


async def test_a_queue_is_deleted_through_it(autojump_clock: object) -> None:
    async with cluster(2) as world:
        front = await world.start("f", **ONLY_GATEWAY)
        await world.linked()
        await make(world)
        client = Client(front)
        await client.publish(*numbered(0, 8))
        await front.dispatcher.delete(TENANT, "q")
        with pytest.raises(NotFound):
            await front.dispatcher.get(TENANT, "q")
        await until(lambda: front.cluster.numbers()["slots"] == 0)
        assert not (await client.publish(*numbered(0, 8))).failed
        assert "f" not in owners(world).values()


def roles(node: Node) -> dict[str, tuple[str, ...]]:
    return {member.name: member.roles for member in node.cluster.members.all}
