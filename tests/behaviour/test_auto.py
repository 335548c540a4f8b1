"""`transport="auto"`: a WebSocket where one can be had, polling where not."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

import pushlane
from tests.behaviour.proxy import REFUSED, Proxy
from tests.behaviour.worlds import World, behaviour

HURRY = pushlane.Settings(upgrade_ms=200, backoff_base_ms=10)


def behind_a_proxy(world: World, answer: bytes | None) -> Proxy:
    port = urlsplit(world.server.url).port
    assert port is not None
    return Proxy(port, answer)


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
    with behind_a_proxy(world, REFUSED) as proxy:
        async with world.shell.connect(proxy.url, on_state=states.append) as client:
            assert client.state == "polling"
            await _works(world, client)
        assert proxy.upgrades == 1
    assert states == ["polling", "closed"]


@behaviour
async def test_polling_where_upgrades_are_cut(world: World) -> None:
    with behind_a_proxy(world, b"") as proxy:
        async with world.shell.connect(proxy.url, settings=HURRY) as client:
            assert client.state == "polling"
            await _works(world, client)
        assert proxy.upgrades == HURRY.upgrade_tries


@behaviour
async def test_polling_where_upgrades_are_swallowed(world: World) -> None:
    with behind_a_proxy(world, None) as proxy:
        async with world.shell.connect(proxy.url, settings=HURRY) as client:
            assert client.state == "polling"
            await _works(world, client)
        assert proxy.upgrades == HURRY.upgrade_tries


@behaviour
async def test_ws_means_ws(world: World) -> None:
    with behind_a_proxy(world, REFUSED) as proxy, pytest.raises(pushlane.BadRequest, match="400"):
        async with world.shell.connect(proxy.url, transport="ws"):
            pass
