"""The asyncio shell without a WebSocket: requests, connections, repeats, the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import pushlane
from pushlane.wire.errors import Throttled
from tests.sdk.asyncio.loop import on_asyncio
from tests.sdk.fake_pipe import FakePipes, fake_pipes
from tests.sdk.fake_server import fake_server

FAST = pushlane.Settings(backoff_base_ms=5, backoff_max_ms=20, retry_base_ms=5)


def poll(fake: FakePipes, **options: object) -> pushlane.connect:
    return pushlane.connect(fake.url, transport="poll", **{"settings": FAST, **options})  # type: ignore[arg-type]


async def until(is_true: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not is_true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@on_asyncio
async def test_publishes_of_a_moment_share_a_request_and_two_connections_are_enough() -> None:
    async with fake_pipes() as fake, poll(fake) as client:
        assert client.state == "polling"
        ids = await asyncio.gather(*[client.publish("q", n) for n in range(300)])
        assert len(set(ids)) == 300
        assert len(fake.sends) == 1
        for n in range(10):
            await client.publish("q", n)
        subscriptions = [await client.subscribe(f"q{n}") for n in range(10)]
        assert len(subscriptions) == 10
        assert fake.connections == 2


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@on_asyncio
async def test_pipes_carry_json_whatever_was_wished_for(encoding: str) -> None:
    async with fake_pipes() as fake, poll(fake, encoding=encoding) as client:
        await client.publish("q", data=b"\x00\xff")
        subscription = await client.subscribe("q")
        message = await subscription.__anext__()
        assert message.data == b"\x00\xff"
        await message.ack()


@on_asyncio
async def test_a_send_whose_answer_is_lost_is_repeated_and_taken_once() -> None:
    states: list[str] = []
    async with fake_pipes() as fake, poll(fake, on_state=states.append) as client:
        fake.lose_sends = 1
        ids = await asyncio.gather(*[client.publish("q", n) for n in range(10)])
        await until(lambda: len(fake.sends) == 2)
        assert [asked.n for asked in fake.sends] == [1, 1]
        assert [stored.id for stored in fake.model.queues["q"]] == ids
    assert states == ["polling", "closed"]


@on_asyncio
async def test_a_send_that_is_lost_twice_loses_the_link_and_nothing_else() -> None:
    states: list[str] = []
    async with fake_pipes() as fake, poll(fake, on_state=states.append) as client:
        fake.lose_sends = 2
        fake.lose_receives = 1
        ids = await asyncio.gather(*[client.publish("q", n) for n in range(10)])
        assert [stored.id for stored in fake.model.queues["q"]] == ids
        await until(lambda: states == ["polling", "connecting", "polling"])
        assert len(fake.model.sessions) == 1


@on_asyncio
async def test_a_receive_whose_answer_is_lost_gets_it_again() -> None:
    states: list[str] = []
    async with fake_pipes() as fake, poll(fake, on_state=states.append) as client:
        subscription = await client.subscribe("q")
        fake.lose_receives = 2
        await client.publish("q", 1)
        assert (await subscription.__anext__()).body == 1
        assert fake.lose_receives == 0
    assert states == ["polling", "closed"]


@on_asyncio
async def test_receives_that_break_again_and_again_lose_the_link() -> None:
    states: list[str] = []
    async with fake_pipes() as fake, poll(fake, on_state=states.append) as client:
        subscription = await client.subscribe("q")
        fake.lose_receives = 5  # more than one link bears, less than two
        await client.publish("q", 1)
        message = await subscription.__anext__()
        assert (message.body, message.attempt) == (1, 1)
        await message.ack()
        assert states == ["polling", "connecting", "polling"]


@on_asyncio
async def test_connections_that_were_closed_meanwhile_are_no_loss() -> None:
    states: list[str] = []
    async with fake_pipes() as fake, poll(fake, on_state=states.append) as client:
        for n in range(2):
            await client.publish("q", n)
            await until(lambda: fake.waiting)
            fake.drop_idle()
            await asyncio.sleep(0.01)
        await client.publish("q", 3)
        assert len(fake.model.queues["q"]) == 3
    assert states == ["polling", "closed"]


@on_asyncio
async def test_a_pipe_that_is_gone_is_replaced_and_the_session_goes_on() -> None:
    states: list[str] = []
    async with fake_pipes() as fake, poll(fake, on_state=states.append) as client:
        await client.publish("q", 1)
        subscription = await client.subscribe("q")
        message = await subscription.__anext__()
        fake.pipes.clear()
        await client.publish("q", 2)
        await message.ack()
        assert fake.model.queues["q"][0].settled == "ack"
        assert len(fake.model.sessions) == 1
    assert states == ["polling", "connecting", "polling", "closed"]


@on_asyncio
async def test_what_the_server_closes_with_counts_as_with_a_websocket() -> None:
    states: list[str] = []
    async with fake_pipes() as fake, poll(fake, on_state=states.append) as client:
        await fake.close(1001, "drain")
        await until(lambda: states == ["polling", "connecting", "polling"])
        assert fake.closes == []
        await fake.close(4001, "taken_over")
        await until(lambda: client.state == "closed")


@on_asyncio
async def test_throttled_is_waited_for() -> None:
    async with fake_pipes() as fake, poll(fake) as client:
        fake.model.refuse.append(Throttled("slow", 30))
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await client.publish("q", 1)
        assert loop.time() - begun >= 0.03


@on_asyncio
async def test_a_server_that_drains_is_asked_again_when_it_said() -> None:
    error = {"code": "unavailable", "message": "draining", "retry_ms": 50}
    async with fake_pipes() as fake:
        fake.refuse.append((503, {"error": error}))
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with poll(fake) as client:
            assert client.state == "polling"
            assert loop.time() - begun >= 0.05


@on_asyncio
async def test_the_end_says_so_and_what_is_held_goes_back() -> None:
    async with fake_pipes() as fake:
        async with poll(fake) as client:
            await client.publish("q", 1)
            subscription = await client.subscribe("q")
            assert (await subscription.__anext__()).body == 1
            waiter = asyncio.create_task(subscription.__anext__())
            await until(lambda: fake.waiting == 1)
        with pytest.raises(StopAsyncIteration):
            await waiter
        assert fake.closes == [1000]
        assert not fake.model.sessions
        assert len(fake.model.ready["q"]) == 1
        await until(lambda: fake.waiting == 0)


@on_asyncio
async def test_bad_credentials_are_final_and_new_ones_are_asked_for() -> None:
    tokens = iter(["one", "two", "three"])
    async with fake_pipes() as fake:
        fake.model.tokens = {"one"}
        with pytest.raises(pushlane.Unauthorized, match="no such token"):
            await poll(fake, token="zero")
        async with poll(fake, token=lambda: next(tokens)) as client:
            fake.model.tokens = {"two"}
            fake.pipes.clear()
            assert await client.publish("q", 1)
            fake.model.tokens = set()
            fake.pipes.clear()
            with pytest.raises(pushlane.Unauthorized):
                await client.publish("q", 2)
            assert client.state == "closed"


@pytest.mark.parametrize("transport", ["ws", "poll"])
@on_asyncio
async def test_the_token_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    monkeypatch.setenv("PUSHLANE_TOKEN", "good")
    async with fake_pipes() as pipes, fake_server() as server:
        pipes.model.tokens = server.model.tokens = {"good"}
        url = server.url if transport == "ws" else pipes.url
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


@on_asyncio
async def test_something_else_than_a_server_is_found_out() -> None:
    async with fake_pipes() as fake:
        fake.refuse.extend([(200, {"hello": "please log in"})] * 100)
        with pytest.raises(pushlane.Unavailable, match="not a Pushlane server"):
            await poll(fake, settings=pushlane.Settings(connect_ms=300))


@pytest.mark.parametrize(("status", "code"), [(404, "not_found"), (418, "bad_request")])
@on_asyncio
async def test_auto_tries_polling_before_it_gives_up(status: int, code: str) -> None:
    asked: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.partition(b" HTTP")[0])
        writer.write(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(pushlane.PushlaneError, match=str(status)) as caught:
        await pushlane.connect(url)
    assert caught.value.code == code
    assert asked == [b"GET /v1/ws", b"POST /v1/pipe"]
    server.close()
    await server.wait_closed()
