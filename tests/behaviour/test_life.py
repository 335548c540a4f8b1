"""The life of a client: its state, its end, and a server that goes and comes back."""

from __future__ import annotations

from typing import Any

import pytest

import pushlane
from tests.behaviour.worlds import World, behaviour


@behaviour
async def test_the_states_of_a_client(world: World) -> None:
    states: list[str] = []
    async with world.connect(on_state=states.append, name="watched") as client:
        assert client.state == world.open_state
    assert client.state == "closed"
    assert states == [world.open_state, "closed"]
    with pytest.raises(pushlane.ConnectionLost):
        await client.publish(world.queue, 1)
    with pytest.raises(pushlane.ConnectionLost):
        await client.subscribe(world.queue)


@behaviour
async def test_close_waits_for_handlers_and_sends_back_the_rest(world: World) -> None:
    begun: list[int] = []
    done: list[int] = []

    async def handle(message: Any) -> None:
        begun.append(message.body)
        await world.shell.sleep(0.5)
        done.append(message.body)

    async with world.connect() as client:
        await client.publish_many(world.queue, range(10))
        async with world.shell.background(client.consume(world.queue, handle, concurrency=2)):
            await world.eventually(lambda: len(begun) == 2)
            await client.close()
    assert sorted(done) == sorted(begun)
    async with world.connect() as client:
        subscription = await client.subscribe(world.queue)
        rest = await world.receive(subscription, 10 - len(done))
        assert all(message.attempt == 1 for message in rest)
        assert sorted([message.body for message in rest] + done) == list(range(10))
        await world.shell.all(*[message.ack() for message in rest])


@behaviour
async def test_what_a_client_held_goes_back_when_it_closes(world: World) -> None:
    async with world.connect() as client:
        await client.publish(world.queue, 1)
        subscription = await client.subscribe(world.queue)
        await world.receive(subscription, 1)
    async with world.connect() as client:
        subscription = await client.subscribe(world.queue)
        (message,) = await world.receive(subscription, 1)
        assert message.attempt == 2
        await message.ack()


@behaviour
async def test_nobody_there(world: World) -> None:
    hurry = pushlane.Settings(connect_ms=300)
    client = world.shell.connect("ws://127.0.0.1:9", transport=world.transport, settings=hurry)
    with pytest.raises(pushlane.ConnectionLost, match="no connection"):
        async with client:
            pass


@behaviour
async def test_a_server_that_drains_and_comes_back(own_world: World) -> None:
    await _go_and_come_back(own_world, gracefully=True)


@behaviour
async def test_a_server_that_crashes_and_comes_back(own_world: World) -> None:
    await _go_and_come_back(own_world, gracefully=False)


async def _go_and_come_back(world: World, *, gracefully: bool) -> None:
    """Publishing and consuming go on over two restarts; what was stored durably is all there.

    What was started before a crash comes again when its lease is over, where leases outlive the
    server.
    """
    got: list[int] = []
    states: list[str] = []
    keeps = world.server._store != "memory"

    async def handle(message: Any) -> None:
        got.append(message.body)

    async with (
        world.connect(on_state=states.append) as client,
        world.shell.background(client.consume(world.queue, handle, lease_ms=5_000)),
    ):
        for n in range(2):
            publishes = world.shell.all(
                *[client.publish(world.queue, n * 100 + i) for i in range(100)]
            )
            async with world.shell.background(publishes) as task:
                await world.shell.sleep(0.005 * n)
                server = world.server
                await world.shell.thread(server.stop if gracefully else server.kill)
                await world.shell.thread(server.start)
                assert len(set(await task)) == 100
            await world.eventually(lambda: states.count(world.open_state) == n + 2)  # noqa: B023
        if keeps:
            await world.eventually(lambda: set(got) == set(range(200)), seconds=60)
        await client.publish(world.queue, 1000)
        await world.eventually(lambda: 1000 in got)
    assert states == [world.open_state, *["connecting", world.open_state] * 2, "closed"]
