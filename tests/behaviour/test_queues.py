"""Looking after queues: `Client.queues`."""

from __future__ import annotations

from contextlib import suppress

import pytest

import pushlane
from tests.behaviour.worlds import World, behaviour


@behaviour
async def test_a_queue_from_making_to_deleting(world: World) -> None:
    async with world.connect() as client:
        queues, name = client.queues, world.queue
        with pytest.raises(pushlane.NotFound):
            await queues.get(name)
        assert (await queues.create(name, max_attempts=3))["max_attempts"] == 3
        assert (await queues.update(name, lease_ms=5000))["max_attempts"] == 3
        assert (await queues.get(name))["lease_ms"] == 5000
        listed = (await queues.list(limit=1000))["queues"]
        assert name in [queue["name"] for queue in listed]
        await queues.delete(name)
        with pytest.raises(pushlane.NotFound):
            await queues.get(name)


@behaviour
async def test_declaring_a_queue_changes_nothing_of_one_that_is_there(world: World) -> None:
    async with world.connect() as client:
        queues, name = client.queues, world.queue
        made = await queues.create(name, max_attempts=3)
        assert await queues.create(name, max_attempts=3) == made
        with pytest.raises(pushlane.Conflict, match="max_attempts is 3, not 4"):
            await queues.create(name, max_attempts=4)
        assert await queues.ensure(name, max_attempts=4) == made
        await queues.pause(name)
        replaced = await queues.replace(name, lease_ms=5000)
        assert (replaced["max_attempts"], replaced["paused"]) == (5, True)


@behaviour
async def test_looking_at_messages_takes_none(world: World) -> None:
    async with world.connect() as client:
        ids = [await client.publish(world.queue, n) for n in range(3)]
        assert (await client.queues.stats(world.queue))["ready"] == 3
        peeked = (await client.queues.peek(world.queue, limit=2))["messages"]
        assert [message["body"] for message in peeked] == [0, 1]
        assert (await client.queues.explain(world.queue, ids[0]))["state"] == "ready"
        assert (await client.queues.stats(world.queue))["ready"] == 3
        assert await client.queues.purge(world.queue) == {"purged": 3}
        assert (await client.queues.stats(world.queue))["ready"] == 0


@behaviour
async def test_a_paused_queue_delivers_nothing(world: World) -> None:
    async with world.connect() as client:
        await client.queues.create(world.queue)
        await client.queues.pause(world.queue)
        await client.publish(world.queue, 1)
        subscription = await client.subscribe(world.queue)
        with pytest.raises(TimeoutError):
            await world.receive(subscription, 1, seconds=0.3)
        await client.queues.resume(world.queue)
        (message,) = await world.receive(subscription, 1)
        await message.ack()


@behaviour
async def test_dead_letters_can_be_sent_back(world: World) -> None:
    async with world.connect() as client:
        await client.publish(world.queue, "again")
        subscription = await client.subscribe(world.queue)
        (message,) = await world.receive(subscription, 1)
        await message.reject("not now")
        dead = world.queue + ".dead"
        redriven = 0
        for _ in range(100):
            with suppress(pushlane.NotFound):  # the letter may still be on its way there
                redriven += (await client.queues.redrive(dead))["redriven"]
            if redriven:
                break
            await world.shell.sleep(0.05)
        (message,) = await world.receive(subscription, 1)
        assert message.body == "again"
        await message.ack()


@behaviour
async def test_deleting_a_queue_ends_its_subscriptions(world: World) -> None:
    async with world.connect() as client:
        subscription = await client.subscribe(world.queue)

        async def delete() -> None:
            await world.shell.sleep(0.2)
            await client.queues.delete(world.queue)

        with pytest.raises(pushlane.NotFound):
            await world.shell.all(world.receive(subscription, 1), delete())


@behaviour
async def test_deleting_a_queue_while_nobody_waits_for_its_messages(world: World) -> None:
    async with world.connect() as client:
        subscription = await client.subscribe(world.queue)
        await client.queues.delete(world.queue)
        with pytest.raises(pushlane.NotFound):
            await world.receive(subscription, 1)
