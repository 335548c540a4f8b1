"""A process that can't show that it lives grants nothing."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

from pushlane_dispatcher.heart import Heart
from tests.dispatcher.cluster.test_cluster import HOUR, Client, make, numbered, owners
from tests.dispatcher.cluster.world import cluster, until
from tests.storage.cassandra.model_ring import FaultyRing, ModelRing

PATIENCE_S = 5
"""Half of `judge_ms`."""


class Fates:
    """Whether heartbeats land."""

    def __init__(self) -> None:
        self.fails = False

    def __call__(self, kind: str, operation: Any) -> str:
        is_beat = kind == "write" and operation.table.name == "heartbeats"
        return "lost" if self.fails and is_beat else "fine"

    def ring(self, ring: ModelRing) -> FaultyRing:
        return FaultyRing(ring, self)


async def test_a_node_whose_heart_stands_still_grants_nothing_until_it_beats(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    fates = Fates()
    async with cluster(1, ring_of=fates.ring) as world:
        (node,) = world.nodes
        dispatcher, client = node.dispatcher, Client(node)
        await make(world, shards=2)
        consumer = await client.subscribe(credit=100, lease_ms=HOUR)
        await client.publish(*numbered(0, 10))
        await until(lambda: len(consumer.bodies) == 10)
        fates.fails = True
        await trio.sleep(PATIENCE_S)
        await client.publish(*numbered(10, 20))
        await until(lambda: len(consumer.bodies) == 20)
        assert not dispatcher.seems_dead, "it has some time left"
        with caplog.at_level(logging.WARNING, "pushlane_dispatcher.heart"):
            await until(lambda: dispatcher.seems_dead)
            done = await client.publish(*numbered(20, 30))
            assert not done.failed, "whether that counts the store says"
            settled = await consumer.ack(*consumer.receipts[:5])
            assert (settled.lost, settled.error) == ([], None)
            await trio.sleep(2)
            assert len(consumer.bodies) == 20
            numbers = dispatcher.heart_numbers()
            assert (numbers["stands_still"], numbers["stops"]) == (True, 1)
            assert numbers["failing_ms"] > PATIENCE_S * 1000
            fates.fails = False
            await until(lambda: len(consumer.bodies) == 30)
        assert (dispatcher.seems_dead, dispatcher.heart_numbers()["stops"]) == (False, 1)
        said = [record for record in caplog.records if record.name == "pushlane_dispatcher.heart"]
        assert len(said) == 2, "each change is said once"


async def test_a_node_that_was_paused_grants_nothing_before_its_heart_has_beaten(
    autojump_clock: Any,
) -> None:
    fates = Fates()
    async with cluster(1, ring_of=fates.ring) as world:
        (node,) = world.nodes
        await make(world, shards=1)
        client = Client(node)
        consumer = await client.subscribe(credit=100, lease_ms=HOUR)
        assert owners(world) == {0: node.name}
        fates.fails = True
        await trio.testing.wait_all_tasks_blocked()
        autojump_clock.jump(30)
        done = await client.publish(*numbered(0, 10))
        assert not done.failed
        await trio.testing.wait_all_tasks_blocked()
        assert consumer.bodies == [], "not even at once"
        fates.fails = False
        await until(lambda: len(consumer.bodies) == 10)


def test_who_shares_its_store_with_nobody_has_nothing_to_show() -> None:
    assert not Heart().stands_still
