"""Shards change hands with all that is out: consumers notice a pause, and nothing else."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.core.act import START, Act
from pushlane_dispatcher.settings import Settings
from pushlane_storage.interface import StoreUnknown
from tests.dispatcher.cluster.test_cluster import HOUR, Client, make, numbered, owners
from tests.dispatcher.cluster.world import Node, World, cluster, until
from tests.dispatcher.rig import TENANT, message

ANYWHERE = pytest.mark.parametrize("redis", [False, True])


def owner(world: World, number: int = 0) -> Node:
    return next(node for node in world.nodes if node.name == owners(world).get(number))


async def move_all(node: Node) -> None:
    """What a drain does, once."""
    node.cluster._drain(True)
    await node.cluster.give_up(list(node.dispatcher._shards.slots_since()))


async def drain(world: World, node: Node) -> None:
    """Until it has nothing any more; then it takes slots again."""
    await node.cluster.set_draining(node.name, True)
    await until(lambda: owners(world) != {} and node.name not in owners(world).values())
    await node.cluster.set_draining(node.name, False)
    others = [each for each in world.nodes if each is not node]
    await until(lambda: all(len(each.cluster.members.places) == 3 for each in others))


@ANYWHERE
async def test_leases_move_along(redis: bool, autojump_clock: object) -> None:
    async with cluster(3, redis=redis) as world:
        await make(world, shards=8)
        took = [
            await Client(node).subscribe(
                session=f"s{n}", credit=100, lease_ms=HOUR, explicit=bool(n)
            )
            for n, node in enumerate(world.nodes)
        ]
        await Client(world.nodes[0]).publish(*numbered(0, 64))
        await until(lambda: sum(len(one.bodies) for one in took) == 64)
        started = await took[1].settle(Act("start"), *took[1].receipts[:2])
        assert started.lost == []
        before = owners(world)
        await move_all(world.nodes[2])
        await Client(world.nodes[0]).publish(*numbered(64, 96))
        await until(lambda: sum(len(one.bodies) for one in took) == 96)
        assert set(before.values()) != set(owners(world).values())
        assert sorted(int(body) for one in took for body in one.bodies) == list(range(96))
        for one in took:
            settled = await one.ack(*one.receipts)
            assert (settled.lost, settled.duplicate, settled.error, one.gone) == ([], [], None, [])
        assert sum(node.cluster.numbers()["not_handed"] for node in world.nodes) == 0


@ANYWHERE
async def test_leases_move_as_often_as_need_be(redis: bool, autojump_clock: object) -> None:
    async with cluster(3, redis=redis) as world:
        await make(world, shards=1)
        consumer = await Client(world.nodes[0]).subscribe(credit=100, lease_ms=HOUR)
        await Client(world.nodes[1]).publish(*numbered(0, 10))
        await until(lambda: len(consumer.bodies) == 10)
        for n in range(1, 6):
            here = owner(world)
            await drain(world, here)
            await Client(here).publish(*numbered(10 * n, 10 * n + 10))
            await until(lambda n=n: len(consumer.bodies) == 10 * n + 10)  # type: ignore[misc]
            assert owner(world) is not here
            done = await consumer.ack(consumer.receipts[n])
            assert (done.lost, done.error) == ([], None)
        done = await consumer.ack(*consumer.receipts)
        assert len(consumer.receipts) == 60
        assert done.lost == []
        assert sum(high - low + 1 for _, low, high in done.duplicate) == 5
        assert (consumer.gone, len(consumer.bodies)) == ([], 60)


async def test_a_node_that_gets_no_word_gets_the_slot_without(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(2, redis=False, settings=Settings(hand_bytes=10)) as world:
        await make(world, shards=1)
        consumer = await Client(world.nodes[0]).subscribe(credit=100, lease_ms=HOUR)
        await Client(world.nodes[0]).publish(*numbered(0, 10))
        await until(lambda: len(consumer.bodies) == 10)
        here = owner(world)
        with caplog.at_level(logging.WARNING):
            await move_all(here)
        assert "too much is out to be handed over" in caplog.text
        assert here.cluster.numbers()["not_handed"] == 1
        await until(lambda: len(consumer.bodies) == 20)
        assert len(consumer.gone) > 0, "as after a crash: what it had is delivered again"


@pytest.mark.parametrize("linked", [True, False])
async def test_an_heir_that_does_not_answer_is_not_waited_for(
    linked: bool, autojump_clock: object
) -> None:
    patience = ClusterSettings(hand_ms=500)
    async with cluster(2, redis=False, cluster=patience) as world:
        await make(world, shards=1)
        consumer = await Client(world.nodes[0]).subscribe(credit=100, lease_ms=HOUR)
        await Client(world.nodes[0]).publish(*numbered(0, 10))
        await until(lambda: len(consumer.bodies) == 10)
        here = owner(world)
        other = next(node for node in world.nodes if node is not here)
        if linked:
            world.air.cuts.add(frozenset((here.address, other.address)))  # nobody notices
        else:
            world.air.cut(here.address, other.address)
        began = trio.current_time()
        await move_all(here)
        assert trio.current_time() - began < 1
        assert here.cluster.numbers()["not_handed"] == 1
        world.air.join(here.address, other.address)


async def test_a_slot_that_could_not_be_given_back_opens_here_again_with_its_leases(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(2, redis=False) as world:
        await make(world, shards=1)
        consumer = await Client(world.nodes[0]).subscribe(credit=100, lease_ms=HOUR)
        await Client(world.nodes[0]).publish(*numbered(0, 10))
        await until(lambda: len(consumer.bodies) == 10)
        here = owner(world)
        slots = here.store.ownership.slots

        async def fail(slot: int) -> None:
            await trio.lowlevel.checkpoint()
            raise StoreUnknown("it does not answer")

        with monkeypatch.context() as patches:
            patches.setattr(here.dispatcher._shards._slots._ownership, "release", fail)
            await here.cluster.give_up(list(here.dispatcher._shards.slots_since()))
        assert len(slots) == 1
        await Client(here).publish(*numbered(10, 20))
        await until(lambda: len(consumer.bodies) == 20)
        assert owner(world) is here
        done = await consumer.ack(*consumer.receipts)
        assert (done.lost, consumer.gone) == ([], [])


async def test_settles_wait_for_the_next_owner_and_starts_do_not_get_lost(
    autojump_clock: Any,
) -> None:
    async with cluster(2, redis=False) as world:
        await make(world, shards=1)
        for node in world.nodes:
            consumer = await Client(node).subscribe(
                session=node.name, credit=10, lease_ms=HOUR, explicit=True
            )
            await Client(node).publish(message(node.name.encode()))
            await until(lambda: len(consumer.bodies) == 1)  # noqa: B023
            async with trio.open_nursery() as nursery:
                nursery.start_soon(move_all, owner(world))
                await trio.lowlevel.checkpoint()
                for _ in range(100):
                    done = await consumer.settle(START, *consumer.receipts, silently=True)
                    assert (done.lost, done.error) == ([], None)
                    done = await consumer.settle(Act("ack"), *consumer.receipts)
                    if done.error is None:
                        break
                    await trio.sleep(0.05)
            assert (done.lost, consumer.gone) == ([], [])
            for each in world.nodes:
                each.cluster._drain(False)
            await until(lambda: len(world.nodes[0].cluster.members.places) == 2)
        stats = await world.nodes[0].dispatcher.stats(TENANT, "q")
        assert stats.stored == 0
