"""Publishing: ids, bodies, options, batches, errors."""

from __future__ import annotations

import time

import pytest

import pushlane
from tests.behaviour.worlds import World, behaviour

BODIES = [
    None, True, 0, -1.5, "", "ünï", [], {}, [1, [2, [3]]], {"a": {"b": None}}, 2**70, "x" * 5000,
]  # fmt: skip


@behaviour
async def test_every_body_comes_back(world: World) -> None:
    async with world.connect() as client:
        ids = await world.shell.all(*[client.publish(world.queue, body) for body in BODIES])
        assert len(set(ids)) == len(BODIES)
        subscription = await client.subscribe(world.queue)
        messages = await world.receive(subscription, len(BODIES))
        assert [message.body for message in messages] == BODIES
        assert [message.id for message in messages] == ids
        assert all(message.data is None for message in messages)
        await world.shell.all(*[message.ack() for message in messages])


@behaviour
async def test_bytes_headers_and_key_come_back(world: World) -> None:
    async with world.connect() as client:
        data = bytes(range(256))
        headers = {"type": "raw", "ü": "\n"}
        await client.publish(world.queue, data=data, headers=headers, key="k")
        subscription = await client.subscribe(world.queue)
        (message,) = await world.receive(subscription, 1)
        assert (message.data, message.body, message.key) == (data, None, "k")
        assert message.headers == headers
        assert message.attempt == 1
        assert message.fence > 0
        assert not message.lost
        await message.ack()


@behaviour
async def test_every_encoding_carries_the_same(world: World) -> None:
    for encoding in world.shell.encodings:
        options = {} if encoding == "json" else {"encoding": encoding}
        async with world.connect(**options) as client:
            await client.publish(world.queue, {"a": [1, "ü"]})
            await client.publish(world.queue, data=b"\x00\xff")
            subscription = await client.subscribe(world.queue)
            first, second = await world.receive(subscription, 2)
            assert first.body == {"a": [1, "ü"]}
            assert second.data == b"\x00\xff"
            await world.shell.all(first.ack(), second.ack())


@behaviour
async def test_a_dedup_id_stores_one(world: World) -> None:
    async with world.connect() as client:
        first = await client.publish(world.queue, 1, dedup="d")
        assert await client.publish(world.queue, 2, dedup="d") == first
        items = [pushlane.Item(body=3, dedup="d"), 4, pushlane.Item(body=5, dedup="e")]
        results = await client.publish_many(world.queue, items)
        assert [result.duplicate for result in results] == [True, False, False]
        assert results[0].id == first


@behaviour
async def test_many_are_stored_in_order(world: World) -> None:
    async with world.connect() as client:
        results = await client.publish_many(world.queue, iter(range(1500)))
        assert len({result.id for result in results}) == 1500
        subscription = await client.subscribe(world.queue, credit=1000)
        got = []
        for _ in range(15):
            messages = await world.receive(subscription, 100)
            got += [message.body for message in messages]
            await world.shell.all(*[message.ack() for message in messages])
        assert got == list(range(1500))


@behaviour
async def test_a_bad_message_fails_alone(world: World) -> None:
    async with world.connect() as client:
        items = [1, pushlane.Item(body=2, key="k", priority=9), "x" * 300_000, 3]
        results = await client.publish_many(world.queue, items)
        assert [result.error and result.error.code for result in results] == [
            None, "bad_request", "too_large", None,
        ]  # fmt: skip


@behaviour
async def test_what_is_wrong_is_said_by_type(world: World) -> None:
    async with world.connect() as client:
        with pytest.raises(pushlane.BadRequest, match="name"):
            await client.publish("no/such name", 1)
        with pytest.raises(pushlane.BadRequest, match="exactly one"):
            await client.publish(world.queue)
        with pytest.raises(pushlane.BadRequest, match="exactly one"):
            await client.publish(world.queue, 1, data=b"")
        with pytest.raises(pushlane.TooLarge):
            await client.publish(world.queue, data=bytes(2 * 2**20))
        with pytest.raises(pushlane.BadRequest, match=r"JSON|surrogate"):
            await client.publish(world.queue, "\ud800")
        assert await client.publish(world.queue, "still alive")


@behaviour
async def test_a_delayed_message_waits(world: World) -> None:
    async with world.connect() as client:
        subscription = await client.subscribe(world.queue)
        began = time.monotonic()
        await client.publish(world.queue, "late", delay_ms=700)
        (message,) = await world.receive(subscription, 1)
        assert message.body == "late"
        assert time.monotonic() - began > 0.69
        await message.ack()


@behaviour
async def test_higher_priority_comes_first(world: World) -> None:
    async with world.connect() as client:
        for priority in (0, 9, 4):
            await client.publish(world.queue, priority, priority=priority)
        subscription = await client.subscribe(world.queue, credit=1)
        got = []
        for _ in range(3):
            (message,) = await world.receive(subscription, 1)
            got.append(message.body)
            await message.ack()
        assert got == [9, 4, 0]
