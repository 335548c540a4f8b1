"""The asyncio shell against a fake server: connections, tokens, errors, the end."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

import pushlane
from pushlane.wire import frames
from pushlane.wire.errors import Throttled
from tests.sdk.asyncio.loop import on_asyncio
from tests.sdk.fake_server import fake_server

FAST = pushlane.Settings(backoff_base_ms=5, backoff_max_ms=20, connect_ms=300)


@on_asyncio
async def test_publishes_of_a_moment_share_a_frame() -> None:
    async with fake_server() as fake, pushlane.connect(fake.url) as client:
        ids = await asyncio.gather(*[client.publish("q", n) for n in range(300)])
        assert len(set(ids)) == 300
        publishes = [frame for frame in fake.model.received if isinstance(frame, frames.Publish)]
        assert len(publishes) == 1
        assert [m.seq for m in publishes[0].messages] == list(range(1, 301))


@on_asyncio
async def test_a_broken_connection_loses_and_repeats_nothing() -> None:
    options = {"settings": FAST, "transport": "ws"}  # else it would poll after a few cuts
    async with fake_server() as fake, pushlane.connect(fake.url, **options) as client:  # type: ignore[arg-type]
        got = []

        async def handle(message: pushlane.Message) -> None:
            got.append(message.body)

        consumer = asyncio.create_task(client.consume("q", handle))
        for round in range(5):
            fake.is_mute = True
            publishes = [
                asyncio.create_task(client.publish("q", round * 50 + n)) for n in range(50)
            ]
            await asyncio.sleep(0.01)
            await fake.cut()
            fake.is_mute = False
            await asyncio.gather(*publishes)
        async with asyncio.timeout(60):
            while len(set(got)) < 250:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        stored = [bytes(m.message.body) for m in fake.model.queues["q"]]  # type: ignore[arg-type]
        assert stored == [b"%d" % n for n in range(250)]
        await client.close()
        await consumer
        assert {m.settled for m in fake.model.queues["q"]} == {"ack"}


@on_asyncio
async def test_a_token_is_asked_for_at_each_connect() -> None:
    tokens = iter(["one", "two"])

    async def ask() -> str:
        await asyncio.sleep(0)
        return next(tokens)

    async with fake_server() as fake:
        async with pushlane.connect(fake.url, token=ask, settings=FAST) as client:
            await client.publish("q", 1)
            await fake.cut()
            await client.publish("q", 2)
        hellos = [frame for frame in fake.model.received if isinstance(frame, frames.Hello)]
        assert [hello.token for hello in hellos] == ["one", "two"]


@on_asyncio
async def test_a_token_that_can_not_be_had_fails_the_connect_with_its_reason() -> None:
    def ask() -> str:
        raise KeyError("vault")

    async with fake_server() as fake:
        with pytest.raises(pushlane.ConnectionLost, match="vault") as caught:
            await pushlane.connect(fake.url, token=ask, settings=FAST)
        assert isinstance(caught.value.__cause__, KeyError)


@on_asyncio
async def test_bad_credentials_are_final() -> None:
    async with fake_server() as fake:
        fake.model.tokens = {"good"}
        with pytest.raises(pushlane.Unauthorized, match="no such token"):
            await pushlane.connect(fake.url, token="bad")
        assert len(fake.paths) == 1
        async with pushlane.connect(fake.url, token="good", settings=FAST) as client:
            fake.model.tokens = set()
            await fake.cut()
            with pytest.raises(pushlane.Unauthorized):
                await client.publish("q", 1)
            assert client.state == "closed"
            with pytest.raises(pushlane.Unauthorized):
                await client.publish("q", 2)


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, "unauthorized"), (403, "forbidden"), (404, "not_found"), (418, "bad_request")],
)
@on_asyncio
async def test_an_upgrade_that_is_refused_is_final(status: int, error: str) -> None:
    async with fake_server() as fake:
        fake.reject = status
        with pytest.raises(pushlane.PushlaneError, match=str(status)) as caught:
            await pushlane.connect(fake.url, transport="ws")
        assert caught.value.code == error
        assert fake.paths == ["/v1/ws"]


@on_asyncio
async def test_an_upgrade_that_is_refused_for_now_is_tried_again() -> None:
    async with fake_server() as fake:
        fake.reject = 503
        with pytest.raises(pushlane.Unavailable):
            await pushlane.connect(fake.url, settings=FAST)
        assert len(fake.paths) > 3


@on_asyncio
async def test_no_websocket_there() -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 smtp.example.com ESMTP\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(garbage, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(pushlane.ConnectionLost):
        await pushlane.connect(f"ws://127.0.0.1:{port}", settings=FAST)
    server.close()
    await server.wait_closed()


@on_asyncio
async def test_a_server_that_never_answers() -> None:
    done = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = pushlane.Settings(connect_ms=100, dial_ms=100)
    with pytest.raises(pushlane.ConnectionLost, match="in time"):
        await pushlane.connect(f"ws://127.0.0.1:{port}", settings=settings)
    done.set()
    server.close()
    await server.wait_closed()


@on_asyncio
async def test_a_silent_server_is_left() -> None:
    async with fake_server() as fake:
        fake.model.heartbeat_ms = 100
        states: list[str] = []
        async with pushlane.connect(fake.url, settings=FAST, on_state=states.append):
            async with asyncio.timeout(60):
                while states.count("open") < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


@on_asyncio
async def test_goaway_moves_the_client() -> None:
    async with fake_server() as fake:
        async with pushlane.connect(fake.url, settings=FAST) as client:
            await fake.send(frames.Goaway("drain", 20))
            await asyncio.sleep(0.01)
            await client.publish("q", 1)
        hellos = [frame for frame in fake.model.received if isinstance(frame, frames.Hello)]
        assert len(hellos) == 2
        assert hellos[1].resume is not None


@on_asyncio
async def test_throttled_is_waited_for() -> None:
    async with fake_server() as fake, pushlane.connect(fake.url) as client:
        fake.model.refuse.append(Throttled("slow", 30))
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await client.publish("q", 1)
        assert loop.time() - begun >= 0.03


@on_asyncio
async def test_a_cancelled_publish_that_was_not_sent_is_forgotten() -> None:
    async with fake_server() as fake, pushlane.connect(fake.url, settings=FAST) as client:
        fake.reject = 503
        await fake.cut()
        task = asyncio.create_task(client.publish("q", "no"))
        await asyncio.sleep(0.02)
        assert client.state == "connecting"
        task.cancel()
        await asyncio.wait([task])
        fake.reject = None
        await client.publish("q", "yes")
        assert [bytes(m.message.body) for m in fake.model.queues["q"]] == [b'"yes"']  # type: ignore[arg-type]
        assert task.cancelled()


@on_asyncio
async def test_publishers_wait_for_room() -> None:
    settings = pushlane.Settings(waiting_messages=4)
    async with fake_server() as fake, pushlane.connect(fake.url, settings=settings) as client:
        tasks = [asyncio.create_task(client.publish("q", n)) for n in range(100)]
        await asyncio.sleep(0)
        tasks[50].cancel()
        await asyncio.wait(tasks)
        assert len(fake.model.queues["q"]) == 99
        results = await client.publish_many("q", range(100))
        assert all(result.id for result in results)


@on_asyncio
async def test_the_end_of_a_client_says_1000_and_fails_what_is_left() -> None:
    async with fake_server() as fake:
        client = await pushlane.connect(fake.url)
        fake.is_mute = True
        publish = asyncio.create_task(client.publish("q", 1))
        await asyncio.sleep(0.01)
        await client.close(timeout_ms=50)
        with pytest.raises(pushlane.ConnectionLost, match="closed"):
            await publish
        await client.close()
        await asyncio.sleep(0.05)
        assert fake.closes == [1000]


@on_asyncio
async def test_a_block_that_fails_does_not_wait_long() -> None:
    settings = pushlane.Settings(hangup_ms=50)
    async with fake_server() as fake:
        publishes: list[asyncio.Task[str]] = []

        async def fail() -> None:
            async with pushlane.connect(fake.url, settings=settings) as client:
                fake.is_mute = True
                publishes.append(asyncio.create_task(client.publish("q", 1)))
                await asyncio.sleep(0.01)
                raise KeyError

        with pytest.raises(KeyError):
            await fail()
        with pytest.raises(pushlane.ConnectionLost):
            await publishes[0]


@on_asyncio
async def test_bad_arguments() -> None:
    for arguments, said in (
        ({"url": "tcp://x"}, "not a server URL"),
        ({"url": "ws://user:secret@x"}, "credentials"),
        ({"url": "ws://x?token=1"}, "query"),
        ({"url": "ws://x:99999"}, "port"),
        ({"url": "ws://"}, "host"),
        ({"transport": "carrier pigeon"}, "transport"),
        ({"encoding": "xml"}, "encoding"),
    ):
        with pytest.raises(pushlane.BadRequest, match=said):
            pushlane.connect(**arguments)  # type: ignore[arg-type]


@on_asyncio
async def test_the_url_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fake_server() as fake:
        monkeypatch.setenv("PUSHLANE_URL", fake.url.replace("ws://", "http://"))
        async with pushlane.connect() as client:
            assert await client.publish("q", 1)


@pytest.mark.parametrize("transport", ["ws", "auto"])
@on_asyncio
async def test_the_name_reaches_the_server(transport: Literal["ws", "auto"]) -> None:
    async with fake_server() as fake:
        async with pushlane.connect(fake.url, name="worker-7", transport=transport):
            pass
        hellos = [one for one in fake.model.received if isinstance(one, frames.Hello)]
    assert [hello.client for hello in hellos] == ["worker-7"]


@on_asyncio
async def test_an_option_that_no_message_has() -> None:
    async with fake_server() as fake, pushlane.connect(fake.url) as client:
        with pytest.raises(pushlane.BadRequest, match="'delay': did you mean 'delay_ms'"):
            await client.publish("q", 1, delay=5)  # type: ignore[arg-type]
        assert fake.model.queues == {}


def test_a_token_without_tls_to_another_machine_gets_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pushlane.connect("ws://10.0.0.1")  # nothing is dialled before it is awaited
    pushlane.connect("wss://10.0.0.1", token="s3cret")
    pushlane.connect("ws://127.0.0.1", token="s3cret")
    assert caplog.messages == []
    pushlane.connect("ws://10.0.0.1:8420", token="s3cret")
    [line] = caplog.messages
    assert "10.0.0.1:8420 without TLS" in line
    monkeypatch.setenv("PUSHLANE_TOKEN", "s3cret")
    pushlane.connect("http://10.0.0.1")
    assert len(caplog.messages) == 2
    assert "s3cret" not in caplog.text
