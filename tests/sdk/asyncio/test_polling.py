"""The asyncio shell without a WebSocket: connections, tokens, repeats, the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import pushlane
from tests.sdk.asyncio.loop import on_asyncio
from tests.sdk.fake_api import FakeApi, fake_api
from tests.sdk.fake_server import fake_server

FAST = pushlane.Settings(backoff_base_ms=5, backoff_max_ms=20, connect_ms=300, retry_base_ms=5)


def poll(fake: FakeApi, **options: object) -> pushlane.connect:
    return pushlane.connect(fake.url, transport="poll", **{"settings": FAST, **options})  # type: ignore[arg-type]


async def until(is_true: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not is_true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@on_asyncio
async def test_publishes_of_a_moment_share_a_request_and_requests_a_connection() -> None:
    async with fake_api() as fake, poll(fake) as client:
        assert client.state == "polling"
        ids = await asyncio.gather(*[client.publish("q", n) for n in range(300)])
        assert len(set(ids)) == 300
        assert len(fake.paths("messages")) == 1
        for n in range(10):
            await client.publish("q", n)
        assert fake.connections == 1


@on_asyncio
async def test_an_answer_that_is_lost_stores_nothing_twice() -> None:
    states: list[str] = []
    async with fake_api() as fake, poll(fake, on_state=states.append) as client:
        fake.cuts = 4  # of each two, the first might be that of a connection kept too long
        ids = await asyncio.gather(*[client.publish("q", n) for n in range(10)])
        assert len(fake.paths("messages")) == 5
        assert sorted(fake.stored) == sorted(ids)
        assert sorted(fake.stored.values()) == list(range(10))
    assert states == ["polling", *["connecting", "polling"] * 2, "closed"]


@on_asyncio
async def test_a_kept_connection_that_was_closed_meanwhile_is_no_loss() -> None:
    states: list[str] = []
    async with fake_api() as fake, poll(fake, on_state=states.append) as client:
        for n in range(3):
            fake.drop_idle()
            if n:
                await asyncio.sleep(0.01)
            await client.publish("q", n)
        assert len(fake.stored) == 3
    assert states == ["polling", "closed"]


@on_asyncio
async def test_throttled_is_waited_for() -> None:
    async with fake_api() as fake, poll(fake) as client:
        error = {"code": "throttled", "message": "slow", "retry_ms": 30}
        fake.refuse.append((429, {"error": error}))
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await client.publish("q", 1)
        assert loop.time() - begun >= 0.03


@on_asyncio
async def test_only_as_many_are_received_as_can_be_worked_on() -> None:
    async with fake_api() as fake, poll(fake) as client:
        fake.put(*range(1, 10))
        go = asyncio.Event()
        begun: list[int] = []

        async def handle(message: pushlane.Message) -> None:
            begun.append(message.body)
            await go.wait()

        consumer = asyncio.create_task(client.consume("q", handle, concurrency=3))
        await until(lambda: len(begun) == 3)
        await asyncio.sleep(0.05)
        assert len(fake.ready) == 6
        assert fake.waiting == 0
        go.set()
        await until(lambda: len(begun) == 9)
        await client.close()
        await consumer
        acked = [receipt for what, receipts in fake.settled for receipt in receipts]
        assert {what for what, _ in fake.settled} == {"ack"}
        assert sum(_count(receipt) for receipt in acked) == 9


def _count(receipt: str) -> int:
    first, _, last = receipt.removeprefix("P.").partition("-")
    return int(last or first) - int(first) + 1


@on_asyncio
async def test_a_poll_that_nobody_waits_for_is_cancelled() -> None:
    async with fake_api() as fake, poll(fake) as client:
        subscription = await client.subscribe("q")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(subscription.__anext__(), 0.05)
        await until(lambda: fake.waiting == 0)
        waiter = asyncio.create_task(subscription.__anext__())
        await until(lambda: fake.waiting == 1)
        fake.put(1)
        assert (await waiter).body == 1


@on_asyncio
async def test_the_end_cancels_the_poll_and_gives_back_what_is_held() -> None:
    async with fake_api() as fake:
        async with poll(fake) as client:
            fake.put(1)
            subscription = await client.subscribe("q")
            assert (await subscription.__anext__()).body == 1
            waiter = asyncio.create_task(subscription.__anext__())
            await until(lambda: fake.waiting == 1)
        await until(lambda: fake.waiting == 0)
        with pytest.raises(StopAsyncIteration):
            await waiter
        assert fake.settled == [("nack", ["P.1"])]


@on_asyncio
async def test_bad_credentials_are_final_and_new_ones_are_asked_for() -> None:
    tokens = iter(["one", "two", "three"])
    async with fake_api() as fake:
        fake.tokens = {"one"}
        with pytest.raises(pushlane.Unauthorized, match="no such token"):
            await poll(fake, token="zero")
        async with poll(fake, token=lambda: next(tokens)) as client:
            fake.tokens = {"two"}
            assert await client.publish("q", 1)
            fake.tokens = set()
            with pytest.raises(pushlane.Unauthorized):
                await client.publish("q", 2)
            assert client.state == "closed"


@on_asyncio
async def test_a_token_that_no_header_can_hold_is_not_shown() -> None:
    async with fake_api() as fake:
        for token in ("sec\nret", "secrét"):
            with pytest.raises(pushlane.Unauthorized, match="characters") as caught:
                await poll(fake, token=token)
            assert "ret" not in str(caught.value)


@pytest.mark.parametrize("transport", ["ws", "poll"])
@on_asyncio
async def test_the_token_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    monkeypatch.setenv("PUSHLANE_TOKEN", "good")
    async with fake_api() as api, fake_server() as server:
        api.tokens = {"good"}
        server.model.tokens = {"good"}
        url = server.url if transport == "ws" else api.url
        async with pushlane.connect(url, transport=transport) as client:  # type: ignore[arg-type]
            assert await client.publish("q", 1)
        with pytest.raises(pushlane.Unauthorized):
            await pushlane.connect(url, transport=transport, token="bad")  # type: ignore[arg-type]


@on_asyncio
async def test_a_server_that_never_answers_does_not_delay_the_end() -> None:
    done = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    settings = pushlane.Settings(connect_ms=100, dial_ms=100, hangup_ms=60_000)
    with pytest.raises(pushlane.ConnectionLost, match="in time"):
        await pushlane.connect(url, transport="poll", settings=settings)
    done.set()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(("status", "code"), [(404, "not_found"), (418, "bad_request")])
@on_asyncio
async def test_auto_tries_polling_before_it_gives_up(status: int, code: str) -> None:
    async with fake_server() as fake:
        fake.reject = status
        with pytest.raises(pushlane.PushlaneError, match=str(status)) as caught:
            await pushlane.connect(fake.url)
        assert caught.value.code == code
        assert fake.paths == ["/v1/ws", "/v1/limits"]
