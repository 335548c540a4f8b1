"""A change of transport takes the session along: what is leased, and what is under way.

A world's transport is the one to change from: from a WebSocket that is cut, and none can be had any
more, to polling; or from polling to a WebSocket, as soon as one can be had.
"""

from __future__ import annotations

from typing import Any

import pushlane
from tests.behaviour.proxy import REFUSED, Proxy
from tests.behaviour.worlds import World, behaviour

HURRY = pushlane.Settings(
    probe_base_ms=50, probe_max_ms=200, backoff_base_ms=10, backoff_max_ms=50, upgrade_ms=60_000
)
ROUNDED_MS = 10
"""What is told in Unix time is worked out anew each time, from two clocks."""


class ChangingProxy(Proxy):
    """Lets the world's transport through first, and then only the other."""

    def __init__(self, world: World) -> None:
        super().__init__(world.port, REFUSED, lets_upgrades=world.transport == "ws")

    def turn(self) -> None:
        self.lets_upgrades = not self.lets_upgrades
        if not self.lets_upgrades:
            self.cut()


def _other_state(world: World) -> str:
    return "open" if world.transport == "poll" else "polling"


@behaviour
async def test_a_handler_keeps_its_lease_over_a_change(world: World) -> None:
    begun: list[Any] = []
    done: list[Any] = []
    states: list[str] = []

    async def handle(message: Any) -> None:
        begun.append(message)
        while client.state != _other_state(world) or not leases:
            await world.shell.sleep(0.01)
        done.append(message)

    leases: list[Any] = []
    with ChangingProxy(world) as proxy:
        options = {"settings": HURRY, "on_state": states.append}
        async with world.shell.connect(proxy.url, **options) as client:
            id = await client.publish(world.queue, 1)
            async with world.shell.background(client.consume(world.queue, handle)):
                await world.eventually(lambda: len(begun) == 1)
                before = await _lease(world, client, id)
                proxy.turn()
                await world.eventually(lambda: client.state == _other_state(world))
                leases = [before, await _lease(world, client, id)]
                await world.eventually(lambda: bool(done))
                # What comes later comes over the new transport, to the same subscription.
                await client.publish(world.queue, 2)
                await world.eventually(lambda: len(done) == 2)
        await _are_acked(world, 2)
    (session, since, attempts), after = leases
    assert (session, attempts) == (after[0], after[2])
    assert abs(since - after[1]) <= ROUNDED_MS
    assert [message.body for message in begun] == [1, 2]
    assert [message.attempt for message in begun] == [1, 1]
    assert not any(message.lost for message in begun)
    assert states == [world.open_state, "connecting", _other_state(world), "closed"]


async def _lease(world: World, client: Any, id: str) -> tuple[Any, ...]:
    """All that tells one lease from another."""
    told = await client.queues.explain(world.queue, id)
    while told["state"] == "reserved":  # its start is on its way, in another request
        await world.shell.sleep(0.05)
        told = await client.queues.explain(world.queue, id)
    assert told["state"] == "leased"
    return told["session"], told["since"], told["attempts"]


async def _are_acked(world: World, count: int) -> None:
    async with world.connect() as client:
        stats = await client.queues.stats(world.queue)
        assert (stats["ready"], stats["leased"], stats["acked"]) == (0, 0, count)


@behaviour
async def test_messages_in_hand_can_be_settled_after_a_change(world: World) -> None:
    with ChangingProxy(world) as proxy:
        async with world.shell.connect(proxy.url, settings=HURRY) as client:
            await client.publish_many(world.queue, range(4))
            subscription = await client.subscribe(world.queue)
            first, second = await world.receive(subscription, 2)
            proxy.turn()
            await world.eventually(lambda: client.state == _other_state(world))
            await first.ack()
            await second.nack(delay_ms=0)
            rest = await world.receive(subscription, 3)
            assert sorted(message.body for message in rest) == [1, 2, 3]
            assert sorted(message.attempt for message in rest) == [1, 1, 2]
            await world.shell.all(*[message.ack() for message in rest])
        await _are_acked(world, 4)


@behaviour
async def test_what_is_under_way_during_a_change_happens_once(world: World) -> None:
    got: list[int] = []

    async def handle(message: Any) -> None:
        got.append(message.body)

    with ChangingProxy(world) as proxy:
        async with (
            world.shell.connect(proxy.url, settings=HURRY) as client,
            world.shell.background(client.consume(world.queue, handle)),
        ):
            count = 0
            while client.state != _other_state(world):
                publishes = [client.publish(world.queue, count + n) for n in range(10)]
                if count == 50:
                    proxy.turn()
                assert len(set(await world.shell.all(*publishes))) == 10
                count += 10
            await client.publish(world.queue, count)
            await world.eventually(lambda: len(got) > count)
        assert sorted(got) == list(range(count + 1))
        await _are_acked(world, count + 1)
