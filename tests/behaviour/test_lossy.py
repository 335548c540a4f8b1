"""A network that loses answers: what is repeated happens once."""

from __future__ import annotations

import pytest

import pushlane
from tests.behaviour.proxy import Proxy
from tests.behaviour.worlds import World, behaviour

HURRY = pushlane.Settings(backoff_base_ms=10, backoff_max_ms=50)


class LossyProxy(Proxy):
    """Lets everything through, but loses the next answers on request, and cuts with them."""

    def __init__(self, world: World) -> None:
        super().__init__(world.port, lets_upgrades=True)


@behaviour
async def test_publishes_whose_answers_are_lost_are_stored_once(world: World) -> None:
    options = {"transport": world.transport, "settings": HURRY}
    with LossyProxy(world) as proxy:
        async with world.shell.connect(proxy.url, **options) as client:
            for n in range(5):
                proxy.losses = 2
                ids = [await client.publish(world.queue, f"{n}-{i}") for i in range(10)]
                assert len(set(ids)) == 10
                assert proxy.losses == 0
                one = await client.publish(world.queue, n, dedup=f"d-{n}")
                proxy.losses = 2
                assert await client.publish(world.queue, "again", dedup=f"d-{n}") == one
    async with world.connect() as client:
        assert (await client.queues.stats(world.queue))["ready"] == 55


@behaviour
async def test_acks_whose_answers_are_lost_count(world: World) -> None:
    options = {"transport": world.transport, "settings": HURRY}
    with LossyProxy(world) as proxy:
        async with world.shell.connect(proxy.url, **options) as client:
            await client.publish_many(world.queue, range(3))
            subscription = await client.subscribe(world.queue)
            for message in await world.receive(subscription, 3):
                proxy.losses = 2
                await message.ack()
                assert proxy.losses == 0
            with pytest.raises(TimeoutError):
                await world.receive(subscription, 1, seconds=0.3)
    async with world.connect() as client:
        stats = await client.queues.stats(world.queue)
        assert (stats["ready"], stats["leased"], stats["acked"]) == (0, 0, 3)
