"""Changes of transport on a real server, behind proxies that change their mind or cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

import pushlane
from pushlane import testing
from tests.behaviour.proxy import REFUSED, Proxy
from tests.sdk.asyncio.loop import on_asyncio

PROBING = pushlane.Settings(probe_base_ms=50, probe_max_ms=200, backoff_base_ms=10)


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

    # An answer that is cut on its way keeps its messages for the time of a lease.
    task = asyncio.create_task(client.consume(queue, handle, lease_ms=3000))
    try:
        yield
    finally:
        task.cancel()


@on_asyncio
async def test_back_to_a_websocket_when_upgrades_are_let_through(port: int) -> None:
    states: list[str] = []
    got: list[int] = []
    with Proxy(port, REFUSED) as proxy:
        async with (
            pushlane.connect(proxy.url, settings=PROBING, on_state=states.append) as client,
            consuming(client, "back", got),
        ):
            count = 0
            while client.state != "open":
                await asyncio.gather(*[client.publish("back", count + n) for n in range(10)])
                count += 10
                proxy.lets_upgrades = proxy.upgrades > 2 and count >= 100
            await asyncio.gather(*[client.publish("back", count + n) for n in range(10)])
            await _eventually(lambda: len(got) >= count + 10)
            await asyncio.sleep(0.1)
            assert sorted(got) == list(range(count + 10))
    assert states == ["polling", "connecting", "open", "closed"]


@on_asyncio
async def test_a_lease_is_kept_and_the_change_waits_for_it(port: int) -> None:
    settings = pushlane.Settings(probe_base_ms=50, probe_max_ms=50, change_ms=100)
    attempts: list[int] = []
    is_done = asyncio.Event()

    async def handle(message: pushlane.Message) -> None:
        attempts.append(message.attempt)
        await is_done.wait()

    with Proxy(port, REFUSED) as proxy:
        async with pushlane.connect(proxy.url, settings=settings) as client:
            await client.publish("slow", 1)
            task = asyncio.create_task(client.consume("slow", handle))
            await _eventually(lambda: bool(attempts))
            proxy.lets_upgrades = True
            await asyncio.sleep(0.5)
            assert client.state == "polling"
            is_done.set()
            await _eventually(lambda: client.state == "open")
            await client.publish("slow", 2)
            await _eventually(lambda: len(attempts) == 2)
            assert (await client.queues.stats("slow"))["acked"] >= 1
            task.cancel()
    assert attempts == [1, 1]


async def _cut(port: int, queue: str, seconds: float, count: int) -> None:
    states: list[str] = []
    got: list[int] = []
    pace = 6 * seconds / count
    with Proxy(port, lets_upgrades=True, cuts_after=seconds) as proxy:
        async with (
            pushlane.connect(proxy.url, on_state=states.append) as client,
            consuming(client, queue, got),
        ):
            for n in range(count):
                await client.publish(queue, n)
                await asyncio.sleep(pace)
            await _eventually(lambda: len(set(got)) == count)
            await _eventually(lambda: client.state == "polling")
        assert proxy.cuts > 3
    assert states.count("open") >= 4  # three that were cut, and one to change from


@on_asyncio
async def test_polling_where_a_proxy_cuts(port: int) -> None:
    await _cut(port, "cut", 0.5, 100)
