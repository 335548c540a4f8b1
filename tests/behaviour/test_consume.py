"""Consuming: iterators, handlers, acks and nacks, leases, credit."""

from __future__ import annotations

from typing import Any

import pytest

import pushlane
from tests.behaviour.worlds import World, behaviour

KEPT_MS = 4_000
"""Of a lease that is extended in time, also by a client whose machine is busy."""


@behaviour
async def test_each_message_goes_to_one_consumer(world: World) -> None:
    got: list[list[int]] = [[], []]
    async with world.connect() as one, world.connect() as two:

        async def first(message: Any) -> None:
            got[0].append(message.body)

        async def second(message: Any) -> None:
            got[1].append(message.body)

        async with (
            world.shell.background(one.consume(world.queue, first)),
            world.shell.background(two.consume(world.queue, second)),
        ):
            await one.publish_many(world.queue, range(500))
            await world.eventually(lambda: len(got[0]) + len(got[1]) >= 500)
            await world.shell.sleep(0.1)
    assert sorted(got[0] + got[1]) == list(range(500))


@behaviour
async def test_an_acked_message_never_comes_again(world: World) -> None:
    async with world.connect() as client:
        await client.publish(world.queue, 1)
        subscription = await client.subscribe(world.queue)
        (message,) = await world.receive(subscription, 1)
        await message.ack()
        with pytest.raises(pushlane.Conflict):
            await message.ack()
    async with world.connect() as client:
        subscription = await client.subscribe(world.queue)
        with pytest.raises(TimeoutError):
            await world.receive(subscription, 1, seconds=0.3)


@behaviour
async def test_a_nacked_message_comes_again(world: World) -> None:
    async with world.connect() as client:
        await client.publish(world.queue, 1)
        subscription = await client.subscribe(world.queue)
        (first,) = await world.receive(subscription, 1)
        await first.nack("not yet", delay_ms=0)
        (second,) = await world.receive(subscription, 1)
        assert second.id == first.id
        assert second.attempt == 2
        assert second.fence > first.fence
        await second.ack()


@behaviour
async def test_a_rejected_message_goes_to_the_dead_letters(world: World) -> None:
    async with world.connect() as client:
        await client.publish(world.queue, "bad")
        subscription = await client.subscribe(world.queue)
        (message,) = await world.receive(subscription, 1)
        await message.reject(ValueError("no such customer"))
        dead = await client.subscribe(world.queue + ".dead")
        (letter,) = await world.receive(dead, 1)
        assert letter.body == "bad"
        assert letter.dead.cause == "rejected"
        assert letter.dead.error == "ValueError: no such customer"
        await letter.ack()


@behaviour
async def test_a_handler_that_raises_gets_it_again(world: World) -> None:
    attempts = []

    async def handle(message: Any) -> None:
        attempts.append(message.attempt)
        if message.attempt == 1:
            raise RuntimeError("once")

    async with (
        world.connect() as client,
        world.shell.background(client.consume(world.queue, handle)),
    ):
        await client.publish(world.queue, 1)
        await world.eventually(lambda: len(attempts) == 2)
    assert attempts == [1, 2]


@behaviour
async def test_concurrency_is_a_limit(world: World) -> None:
    running = 0
    most = 0
    done = 0

    async def handle(message: Any) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await world.shell.sleep(0.05)
        running -= 1
        done += 1

    async with world.connect() as client:
        await client.publish_many(world.queue, range(60))
        async with world.shell.background(client.consume(world.queue, handle, concurrency=7)):
            await world.eventually(lambda: done == 60)
    assert most == 7


@behaviour
async def test_async_with_acks_and_nacks(world: World) -> None:
    async with world.connect() as client:
        await client.publish(world.queue, 1)
        subscription = await client.subscribe(world.queue)
        (message,) = await world.receive(subscription, 1)
        with pytest.raises(RuntimeError, match="once"):
            async with message:
                raise RuntimeError("once")
        (message,) = await world.receive(subscription, 1)
        assert message.attempt == 2
        async with message:
            pass
        with pytest.raises(TimeoutError):
            await world.receive(subscription, 1, seconds=0.3)


@behaviour
async def test_a_lease_that_runs_out_is_lost(world: World) -> None:
    async with world.connect() as client:
        await client.publish(world.queue, 1)
        subscription = await client.subscribe(world.queue, lease_ms=1000)
        (first,) = await world.receive(subscription, 1)
        await world.eventually(lambda: bool(first.lost))
        with pytest.raises(pushlane.LeaseLost):
            await first.ack()
        (second,) = await world.receive(subscription, 1)
        assert second.id == first.id
        await second.ack()


@behaviour
async def test_a_handler_keeps_its_lease(world: World) -> None:
    """For longer than a lease: what was granted first has run out when the handler ends."""
    attempts = []

    async def handle(message: Any) -> None:
        attempts.append(message.attempt)
        first = last = await ends(message)
        while last <= first + KEPT_MS:
            await world.shell.sleep(0.1)
            last = await ends(message)
        attempts.append("done")

    async def ends(message: Any) -> int:
        told = await client.queues.explain(world.queue, message.id)
        while told["state"] == "reserved":  # its start is on its way, in another request
            told = await client.queues.explain(world.queue, message.id)
        assert told["state"] == "leased"
        until: int = told["until"]
        return until

    async with (
        world.connect() as client,
        world.shell.background(client.consume(world.queue, handle, lease_ms=KEPT_MS)),
    ):
        await client.publish(world.queue, 1)
        await world.eventually(lambda: "done" in attempts)
        await world.shell.sleep(0.3)
    assert attempts == [1, "done"]


@behaviour
async def test_credit_is_a_limit_and_the_rest_goes_elsewhere(world: World) -> None:
    async with world.connect() as one, world.connect() as two:
        first = await one.subscribe(world.queue, credit=3)
        await one.publish_many(world.queue, range(10))
        held = await world.receive(first, 3)
        with pytest.raises(TimeoutError):
            await world.receive(first, 1, seconds=0.3)
        second = await two.subscribe(world.queue)
        rest = await world.receive(second, 7)
        bodies = [message.body for message in held + rest]
        assert sorted(bodies) == list(range(10))
        await world.shell.all(*[message.ack() for message in held + rest])


@behaviour
async def test_a_key_keeps_its_order_one_at_a_time(world: World) -> None:
    running: set[str] = set()
    got: dict[str, list[int]] = {"a": [], "b": [], "c": []}

    async def handle(message: Any) -> None:
        assert message.key not in running, "two of a key at a time"
        running.add(message.key)
        await world.shell.sleep(0.001)
        got[message.key].append(message.body)
        running.discard(message.key)

    async with world.connect() as client:
        items = [pushlane.Item(body=n, key="abc"[n % 3]) for n in range(90)]
        await client.publish_many(world.queue, items)
        async with world.shell.background(client.consume(world.queue, handle)):
            await world.eventually(lambda: sum(map(len, got.values())) == 90)
    for numbers in got.values():
        assert numbers == sorted(numbers)


@behaviour
async def test_ack_none_is_at_most_once(world: World) -> None:
    async with world.connect() as client:
        subscription = await client.subscribe(world.queue, ack="none")
        await client.publish(world.queue, "gone")
        (message,) = await world.receive(subscription, 1)
        assert message.body == "gone"
        assert message.fence is None
        with pytest.raises(pushlane.Conflict):
            await message.ack()
    async with world.connect() as client:
        again = await client.subscribe(world.queue)
        with pytest.raises(TimeoutError):
            await world.receive(again, 1, seconds=0.3)


@behaviour
async def test_a_closed_subscription_gives_back_and_ends(world: World) -> None:
    async with world.connect() as client:
        await client.publish_many(world.queue, range(5))
        subscription = await client.subscribe(world.queue)
        (taken,) = await world.receive(subscription, 1)
        await subscription.close()
        with pytest.raises(StopAsyncIteration):
            await subscription.__anext__()
        await taken.ack()
        other = await client.subscribe(world.queue)
        rest = await world.receive(other, 4)
        assert [message.attempt for message in rest] == [1] * 4
        assert sorted(message.body for message in rest) == [1, 2, 3, 4]
        await world.shell.all(*[message.ack() for message in rest])
