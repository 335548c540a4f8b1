"""`transport="auto"`: a WebSocket where one can be had, polling where not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

import pushlane
from tests.behaviour.proxy import REFUSED, Proxy
from tests.behaviour.worlds import World, behaviour

NEVER = 20 * 24 * 3_600_000
"""Milliseconds: nearly the longest that a timer of JavaScript can have."""
NO_PROBES = pushlane.Settings(
    probe_base_ms=NEVER, probe_max_ms=NEVER, upgrade_ms=60_000, backoff_base_ms=10
)
"""Each upgrade that the proxy sees is one of the first connect, and none is given up."""
HURRY = structs.replace(NO_PROBES, upgrade_ms=200)


async def _works(world: World, client: Any) -> None:
    """Publish, consume, look: all of it."""
    got: list[int] = []

    async def handle(message: Any) -> None:
        got.append(message.body)

    results = await client.publish_many(world.queue, range(20))
    assert all(result.id for result in results)
    async with world.shell.background(client.consume(world.queue, handle)):
        await world.eventually(lambda: sorted(got) == list(range(20)))

    assert (await client.queues.get(world.queue))["name"] == world.queue


@behaviour
async def test_a_websocket_where_there_is_one(world: World) -> None:
    async with world.shell.connect(world.server.url, transport="auto") as client:
        assert client.state == "open"
        await _works(world, client)


@behaviour
async def test_polling_where_upgrades_are_refused(world: World) -> None:
    states: list[str] = []
    with Proxy(world.port, REFUSED) as proxy:
        options = {"settings": NO_PROBES, "on_state": states.append}
        async with world.shell.connect(proxy.url, **options) as client:
            assert client.state == "polling"
            await _works(world, client)
        assert proxy.upgrades == 1
    assert states == ["polling", "closed"]


@behaviour
async def test_polling_where_upgrades_are_cut(world: World) -> None:
    with Proxy(world.port, b"") as proxy:
        async with world.shell.connect(proxy.url, settings=NO_PROBES) as client:
            assert client.state == "polling"
            await _works(world, client)
        assert proxy.upgrades == NO_PROBES.upgrade_tries


@behaviour
async def test_polling_where_upgrades_are_swallowed(world: World) -> None:
    with Proxy(world.port, None) as proxy:
        async with world.shell.connect(proxy.url, settings=HURRY) as client:
            assert client.state == "polling"
            await _works(world, client)
        # Where all is slow one may be given up before the proxy has seen it.
        assert 0 < proxy.upgrades <= HURRY.upgrade_tries


@behaviour
async def test_ws_means_ws(world: World) -> None:
    with Proxy(world.port, REFUSED) as proxy, pytest.raises(pushlane.BadRequest, match="400"):
        async with world.shell.connect(proxy.url, transport="ws"):
            pass
