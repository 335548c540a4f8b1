"""The whole server in this process, over real sockets: sessions, keys, drain, slow readers."""

from __future__ import annotations

import socket as plain
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import trio
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.trio.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from pushlane.wire.codec import CODECS, JSON, MSGPACK, Codec
from pushlane.wire.frames import (
    Ack,
    Beat,
    ClientFrame,
    Deliver,
    Done,
    ErrorFrame,
    Goaway,
    Hello,
    Nack,
    Publish,
    Published,
    PublishMessage,
    Resume,
    ServerFrame,
    Subscribe,
    Subscribed,
    Welcome,
)
from pushlane_gateway.auth.key import make_key
from pushlane_gateway.auth.key_file import add_key, remove_key
from pushlane_gateway.auth.rule import parse_rules
from pushlane_gateway.configuration.errors import ConfigurationError
from pushlane_gateway.configuration.load import load
from pushlane_gateway.server import Server, open_server
from pushlane_gateway.session.settings import SessionSettings
from pushlane_storage.queue import QueueConfig

F = TypeVar("F")
BODY = msgspec.Raw(b'"%s"' % (b"x" * 10_000))


@asynccontextmanager
async def serving(
    *settings: str, data: Path | None = None, **session: Any
) -> AsyncIterator[Server]:
    flags = {"listen": ["127.0.0.1:0"], "store": "memory:" if data is None else f"sqlite:{data}"}
    configuration = load(flags=flags, settings=settings, environment={})
    async with open_server(configuration, sessions=SessionSettings(**session)) as server:
        yield server


class Client:
    def __init__(self, ws: ClientConnection, codec: Codec) -> None:
        self.ws = ws
        self.codec = codec

    async def say(self, *frames: ClientFrame) -> None:
        for frame in frames:
            data = self.codec.encode(frame)
            await self.ws.send(data.decode() if self.codec.is_text else data)

    async def hear(self) -> ServerFrame:
        with trio.fail_after(30):
            data = await self.ws.recv()
        return self.codec.decode_server(data.encode() if isinstance(data, str) else data)

    async def hear_a(self, kind: type[F]) -> F:
        frame = await self.hear()
        assert isinstance(frame, kind), frame
        return frame

    async def _read_all(self) -> None:
        while True:
            await self.ws.recv()

    async def closed(self) -> tuple[int, str]:
        with trio.fail_after(30), pytest.raises(ConnectionClosed) as closed:
            await self._read_all()
        assert closed.value.rcvd is not None
        return closed.value.rcvd.code, closed.value.rcvd.reason


@asynccontextmanager
async def client(
    server: Server, codec: Codec = JSON, token: str | None = None, **options: Any
) -> AsyncIterator[Client]:
    address = server.addresses[0]
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with connect(
        f"ws://127.0.0.1:{address.port}/v1/ws",
        subprotocols=[Subprotocol(codec.subprotocol)],
        additional_headers=headers,
        max_size=None,
        **options,
    ) as ws:
        yield Client(ws, codec)


@pytest.mark.parametrize("codec", CODECS.values(), ids=["json", "msgpack"])
async def test_the_whole_way_over_a_socket(codec: Codec) -> None:
    async with serving() as server, client(server, codec) as it:
        await it.say(Hello(), Publish(1, "q", [PublishMessage(body=msgspec.Raw(b"[1]"))]))
        welcome = await it.hear_a(Welcome)
        assert welcome.server.startswith("pushlane ")
        assert (await it.hear_a(Published)).failed == []
        await it.say(Subscribe(2, "q", 1))
        await it.hear_a(Subscribed)
        (found,) = (await it.hear_a(Deliver)).messages
        assert found.body == msgspec.Raw(b"[1]")
        await it.say(Ack(1, [found.receipt or ""], 3))
        assert await it.hear_a(Done) == Done(3)


async def test_a_dropped_connection_resumes() -> None:
    async with serving() as server:
        async with client(server) as it:
            await it.say(Hello(), Subscribe(1, "q", 10))
            session = (await it.hear_a(Welcome)).session
            await it.hear_a(Subscribed)
            await it.say(Publish(2, "q", [PublishMessage(data=b"1"), PublishMessage(data=b"2")]))
            await it.hear_a(Published)
            receipts = [one.receipt or "" for one in (await it.hear_a(Deliver)).messages]
            it.ws.stream.socket.setsockopt(  # type: ignore[attr-defined]
                plain.SOL_SOCKET, plain.SO_LINGER, b"\1\0\0\0\0\0\0\0"
            )
            await it.ws.stream.aclose()
        async with client(server, MSGPACK) as again:
            await again.say(Hello(resume=Resume(session, {"1": receipts[:1]})))
            welcome = await again.hear_a(Welcome)
            assert (welcome.resumed, welcome.lost) == (True, {})
            (found,) = (await again.hear_a(Deliver)).messages
            assert (found.receipt, found.data) == (receipts[1], b"2")
            await again.say(Ack(1, receipts, 1))
            assert await again.hear_a(Done) == Done(1)


async def test_a_good_close_ends_the_session() -> None:
    async with serving() as server:
        async with client(server) as it:
            await it.say(Hello())
            session = (await it.hear_a(Welcome)).session
        async with client(server) as again:
            await again.say(Hello(resume=Resume(session)))
            assert (await again.hear_a(Welcome)).resumed is False


async def test_beats_over_a_socket() -> None:
    async with serving("limits.heartbeat_ms=200") as server, client(server) as it:
        await it.say(Hello())
        await it.hear_a(Welcome)
        await it.hear_a(Beat)
        await it.hear_a(Beat)


async def test_keys_and_their_revocation(tmp_path: Path) -> None:
    keys = tmp_path / "data" / "keys.json"
    key, secret = make_key(
        name="ann", tenant="default", rules=parse_rules(["consume:q"]), now=1_000
    )
    add_key(keys, key)
    async with serving("auth.reload_ms=100", data=tmp_path / "data") as server:
        async with client(server) as nobody:
            await nobody.say(Hello())
            assert (await nobody.hear_a(ErrorFrame)).code == "unauthorized"
            assert await nobody.closed() == (1008, "unauthorized")
        async with client(server, token=secret.reveal()) as it:
            await it.say(Hello(), Publish(1, "q", [PublishMessage(data=b"1")]))
            await it.hear_a(Welcome)
            error = await it.hear_a(ErrorFrame)
            assert (error.code, error.message) == ("forbidden", "ann may not publish q")
            remove_key(keys, key.id)
            assert (await it.hear_a(ErrorFrame)).code == "unauthorized"
            assert await it.closed() == (1008, "unauthorized")


async def test_foreign_pages_may_not_connect() -> None:
    async with serving() as server:
        with pytest.raises(InvalidStatus) as refused:
            async with client(server, origin=Origin("http://evil.example")):
                raise AssertionError("connected")
        assert refused.value.response.status_code == 403


async def get(server: Server, path: str) -> tuple[int, bytes]:
    address = server.addresses[0]
    async with await trio.open_tcp_stream("127.0.0.1", address.port) as stream:
        await stream.send_all(
            b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % path.encode()
        )
        answer = b"".join([chunk async for chunk in stream])
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def test_health() -> None:
    async with serving() as server:
        assert await get(server, "/healthz") == (200, b"ok\n")
        assert await get(server, "/readyz") == (200, b"ready\n")
        server.http.draining.set()
        assert await get(server, "/readyz") == (503, b"draining\n")
        assert (await get(server, "/nowhere"))[0] == 404


async def test_drain_over_sockets() -> None:
    async with serving() as server, client(server) as it:
        await it.say(Hello())
        await it.hear_a(Welcome)
        with trio.fail_after(10):
            await server.drain()
        assert (await it.hear_a(Goaway)).reason == "drain"
        assert await it.closed() == (1001, "drain")
        with pytest.raises(OSError, match="all attempts to connect"):
            await get(server, "/healthz")


async def never_read(server: Server, *frames: ClientFrame) -> trio.SocketStream:
    """A client that says this and never reads; it masks with zeros."""
    stream = await trio.open_tcp_stream("127.0.0.1", server.addresses[0].port)
    await stream.send_all(
        b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    for frame in frames:
        data = JSON.encode(frame)
        await stream.send_all(bytes((0x81, 0x80 | len(data))) + bytes(4) + data)
    return stream


async def test_a_client_that_never_reads_harms_nobody() -> None:
    async with (
        serving(outbox_bytes=200_000, slow_ms=700) as server,
        await never_read(server, Hello(), Subscribe(1, "q", 10_000)),
        client(server) as it,
    ):
        await it.say(Hello(), Subscribe(1, "q", 50))
        await it.hear_a(Welcome)
        await it.hear_a(Subscribed)
        received = 0
        for n in range(200):
            await it.say(Publish(n + 10, "q", [PublishMessage(body=BODY)] * 20))
            while isinstance(frame := await it.hear(), Deliver):
                received += len(frame.messages)
                await it.say(Ack(1, [one.receipt or "" for one in frame.messages]))
            assert isinstance(frame, Published)
        assert server.metrics.limits.counts["outbox_bytes"] >= 1
        assert received > 1_500  # the stuck one has the kernel's buffers full, and no more
        with trio.fail_after(20):
            while not server.metrics.goaways.counts["slow_consumer"]:  # noqa: ASYNC110
                await trio.sleep(0.05)


async def test_what_cannot_be_served() -> None:
    configuration = load(flags={"listen": ["unix:/nowhere/x"], "store": "memory:"}, environment={})
    with pytest.raises(ConfigurationError, match="can't listen on unix:/nowhere/x: No such file"):
        async with open_server(configuration):
            raise AssertionError("opened")


async def test_sessions_and_shards_go_by_the_configuration(tmp_path: Path) -> None:
    flags = {"listen": ["127.0.0.1:0"], "store": f"sqlite:{tmp_path / 'data'}"}
    settings = ("session.goaway_ms=1234", "limits.credit=20000")
    configuration = load(flags=flags, settings=settings, environment={})
    async with open_server(configuration) as server:
        assert server.sessions.context.settings.goaway_ms == 1234
        assert server.dispatcher._context.bounds.credit == 20_000
        names = {metric.name for metric in server.metrics.collect()}
        assert {"pushlane_open_shards", "pushlane_store_commits", "pushlane_clock_doubted"} <= names


async def test_metrics_say_what_windows_and_transfers_do_while_a_queue_is_open() -> None:
    async def numbers() -> list[float]:
        """Of what is full, of what a key left to the store, of what another queue refused."""
        status, text = await get(server, "/metrics")
        assert status == 200
        lines = dict(line.rsplit(" ", 1) for line in text.decode().splitlines())
        names = "window_retrying_full", "window_blocked_stored", "transfers_refused"
        return [float(lines[f"pushlane_{name}"]) for name in names]

    async with (
        serving("shard.key_positions=1", "shard.retrying=1") as server,
        client(server) as it,
    ):
        assert await numbers() == [0, 0, 0]
        await server.dispatcher.ensure("default", "small", QueueConfig(max_message_bytes=1))
        await server.dispatcher.ensure("default", "q", QueueConfig(dead_letter="small"))
        await it.say(Hello(), Publish(1, "q", [PublishMessage(data=b"12", key="k")] * 3))
        await it.hear_a(Welcome)
        await it.hear_a(Published)
        assert await numbers() == [0, 1, 0]
        await it.say(Subscribe(2, "q", 1))
        await it.hear_a(Subscribed)
        (found,) = (await it.hear_a(Deliver)).messages
        await it.say(Nack(1, [found.receipt or ""], dead=True))
        with trio.fail_after(30):
            while await numbers() != [1, 1, 1]:  # noqa: ASYNC110
                await trio.sleep(0.05)
