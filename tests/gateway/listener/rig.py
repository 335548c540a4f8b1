"""A listener on loopback with an echo session and a small app, and a client that speaks raw bytes.

Whatever a test does to it, at the end the listener must stop in good order, with no connection and
no task left.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pushlane.wire.limits import DEFAULTS, Limits
from pushlane_gateway.listener.certificates import Certificates
from pushlane_gateway.listener.connection import Service
from pushlane_gateway.listener.listener import Listener, open_listener
from pushlane_gateway.listener.socket import Socket, SocketClosed
from pushlane_gateway.settings import GatewaySettings

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10

UPGRADE_LINES = [
    "GET /v1/ws HTTP/1.1",
    "Host: localhost",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
]


def head(*lines: str) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode()


def upgrade(*more: str, first: str = UPGRADE_LINES[0]) -> bytes:
    return head(first, *UPGRADE_LINES[1:], *more)


def get(path: str, *more: str) -> bytes:
    return head(f"GET {path} HTTP/1.1", "Host: localhost", *more)


def frame(
    opcode: int, payload: bytes, *, fin: bool = True, rsv: int = 0, mask: bool = True
) -> bytes:
    first = (0x80 if fin else 0) | rsv | opcode
    flag = 0x80 if mask else 0
    if len(payload) < 126:
        header = bytes((first, flag | len(payload)))
    elif len(payload) < 65536:
        header = struct.pack("!BBH", first, flag | 126, len(payload))
    else:
        header = struct.pack("!BBQ", first, flag | 127, len(payload))
    if not mask:
        return header + payload
    key = b"\x11\x22\x33\x44"
    spread = (key * (len(payload) // 4 + 1))[: len(payload)]
    turned = int.from_bytes(payload, "big") ^ int.from_bytes(spread, "big")
    return header + key + turned.to_bytes(len(payload), "big")


def close(code: int, reason: str = "") -> bytes:
    return frame(CLOSE, struct.pack("!H", code) + reason.encode())


class Answer(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        decoded: dict[str, dict[str, Any]] = msgspec.json.decode(self.body)
        return decoded["error"]


class Client:
    """One connection of a client."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.buffer = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            await self._more()
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    async def until(self, end: bytes) -> bytes:
        while end not in self.buffer:
            await self._more()
        return await self.exactly(self.buffer.index(end) + len(end))

    async def answer(self, *, head_only: bool = False) -> Answer:
        lines = (await self.until(b"\r\n\r\n")).decode().split("\r\n")
        headers = {}
        for line in lines[1:-2]:
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        status = int(lines[0].split(" ")[1])
        if head_only or status < 200:
            return Answer(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, await self._chunks())
        return Answer(status, headers, await self.exactly(int(headers.get("content-length", "0"))))

    async def frame(self) -> tuple[int, bytes]:
        first, size = await self.exactly(2)
        assert first & 0xF0 == 0x80, "whole, and without reserved bits"
        if size == 126:
            (size,) = struct.unpack("!H", await self.exactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self.exactly(8))
        return first & 0x0F, await self.exactly(size)

    async def closed_with(self) -> tuple[int, str]:
        """The close that comes next, then the end of the connection."""
        opcode, payload = await self.frame()
        assert opcode == CLOSE, payload
        await self.eof()
        return struct.unpack("!H", payload[:2])[0], payload[2:].decode()

    async def eof(self) -> None:
        try:
            data = await self.stream.receive_some(1 << 20)
        except trio.BrokenResourceError:
            data = b""
        assert self.buffer + data == b""

    async def aclose(self) -> None:
        self.cut()
        await trio.lowlevel.checkpoint()

    def cut(self) -> None:
        stream = self.stream
        if isinstance(stream, trio.SSLStream):
            stream = stream.transport_stream
        assert isinstance(stream, trio.SocketStream)
        stream.socket.close()

    async def _more(self) -> None:
        data = await self.stream.receive_some()
        assert data, f"the connection ended after {self.buffer!r}"
        self.buffer += data

    async def _chunks(self) -> bytes:
        body = b""
        while size := int((await self.until(b"\r\n")).strip(), 16):
            body += await self.exactly(size)
            assert await self.exactly(2) == b"\r\n"
        assert await self.exactly(2) == b"\r\n"
        return body


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that tells nobody when it happens."""
    while not condition():  # noqa: ASYNC110
        await trio.sleep(0.005)


class Rig:
    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.counters = listener.counters
        self.clients: list[Client] = []

    @property
    def port(self) -> int:
        return self.listener.addresses[0].port

    async def connect(self) -> Client:
        address = self.listener.addresses[0]
        if address.path:
            return self.adopt(await trio.open_unix_socket(address.path))
        stream = await trio.open_tcp_stream(address.host, address.port)
        # Else the kernel may take some ten megabytes for a client that reads nothing.
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        return self.adopt(stream)

    async def connect_tls(self, context: ssl.SSLContext) -> Client:
        plain = await trio.open_tcp_stream("127.0.0.1", self.port)
        stream = trio.SSLStream(plain, context, server_hostname="localhost", https_compatible=True)
        return self.adopt(stream)

    def adopt(self, stream: trio.abc.Stream) -> Client:
        self.clients.append(Client(stream))
        return self.clients[-1]

    async def websocket(self, *more: str) -> Client:
        client = await self.connect()
        await client.send(upgrade(*more))
        assert (await client.answer()).status == 101
        return client

    async def settle(self, connections: int = 0) -> None:
        """Wait until only so many connections are left."""
        await until(lambda: self.listener.connections <= connections)


class Ends:
    """Echoes, and keeps how each session ended."""

    def __init__(self) -> None:
        self.ends: list[SocketClosed] = []
        self.sockets: list[Socket] = []

    async def handle(self, socket: Socket) -> None:
        self.sockets.append(socket)
        socket.admit(())
        try:
            while True:
                for message in await socket.receive():
                    socket.send(message)
        except SocketClosed as end:
            self.ends.append(end)
            raise


async def hello(request: Request) -> Response:
    return PlainTextResponse(f"hello {request.query_params.get('name', 'you')}")


async def upload(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def ignore(request: Request) -> Response:
    return PlainTextResponse("not read", status_code=401)


async def fail(request: Request) -> Response:
    raise ValueError("boom")


APP = Starlette(
    routes=[
        Route("/hello", hello),
        Route("/upload", upload, methods=["POST"]),
        Route("/ignore", ignore, methods=["POST"]),
        Route("/fail", fail),
    ]
)

App = Callable[[Any, Any, Any], Awaitable[None]]


@asynccontextmanager
async def listening(
    *addresses: str,
    app: App = APP,
    handle: Callable[[Socket], Awaitable[None]] | None = None,
    allow: Callable[[str | None, str | None], bool] = lambda origin, host: True,
    certificates: Certificates | None = None,
    limits: Limits = DEFAULTS,
    **settings: int,
) -> AsyncIterator[Rig]:
    service = Service(app, handle or Ends().handle, allow)
    async with open_listener(
        addresses or ("127.0.0.1:0",),
        service,
        certificates=certificates,
        settings=GatewaySettings(**settings),
        limits=limits,
    ) as listener:
        rig = Rig(listener)
        with trio.fail_after(20):
            try:
                yield rig
            finally:
                for client in rig.clients:
                    client.cut()
            listener.stop()
            await listener.drained()
        await trio.testing.wait_all_tasks_blocked()
        assert listener.connections == len(listener._hub.sockets) == 0
        left = sorted(task.name for task in listener.nursery.child_tasks)
        assert [name.rpartition(".")[2] for name in left] == ["run", "watch"]
