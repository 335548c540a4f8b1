"""Where a proxy cuts everything again and again: a real server, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

import pushlane
from pushlane import testing
from tests.behaviour.proxy import Proxy
from tests.sdk.asyncio.loop import on_asyncio

NO_PROBES = pushlane.Settings(probe_base_ms=10**10, probe_max_ms=10**10)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with testing.server(store="memory") as url:
        found = urlsplit(url).port
        assert found is not None
        yield found


async def _eventually(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def consuming(client: pushlane.Client, queue: str, got: list[int]) -> AsyncIterator[None]:
    async def handle(message: pushlane.Message) -> None:
        got.append(message.body)

    task = asyncio.create_task(client.consume(queue, handle))
    try:
        yield
    finally:
        task.cancel()


@on_asyncio
async def test_polling_where_a_proxy_cuts(port: int) -> None:
    states: list[str] = []
    got: list[int] = []
    count = 100
    with Proxy(port, lets_upgrades=True, cuts_after=0.5) as proxy:
        async with (
            pushlane.connect(proxy.url, settings=NO_PROBES, on_state=states.append) as client,
            consuming(client, "cut", got),
        ):
            for n in range(count):
                await client.publish("cut", n)
                await asyncio.sleep(0.03)
            await _eventually(lambda: len(got) == count)
            await _eventually(lambda: client.state == "polling")
        assert proxy.cuts >= 3
    assert sorted(got) == list(range(count))
    assert states.count("open") == 3  # all of them were cut
