"""Two ways for the frames of a session: a WebSocket, and a pipe over HTTP requests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import trio
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.trio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.stress.http_client import Gone, Http

JSON = Subprotocol("pushlane.v1.json")
Frame = dict[str, Any]


class Lost(Exception):
    """The connection is over: requests without an answer have an unknown outcome."""


class Link(Protocol):
    async def send(self, frame: Frame) -> None: ...
    async def receive(self) -> list[Frame]: ...
    async def end(self) -> None:
        """Close with 1000: the session ends."""
        ...


class WebSocketLink:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, frame: Frame) -> None:
        try:
            await self._socket.send(json.dumps(frame))
        except (ConnectionClosed, trio.ClosedResourceError):
            raise Lost from None

    async def receive(self) -> list[Frame]:
        try:
            return [json.loads(await self._socket.recv())]
        except (ConnectionClosed, trio.ClosedResourceError):
            raise Lost from None

    async def end(self) -> None:
        await self._socket.aclose(1000)


class PipeLink:
    """Sends are numbered and go one at a time; a receive waits beside them."""

    def __init__(self, port: int) -> None:
        self._send, self._receive = Http(port), Http(port)
        self._turn = trio.Lock()
        self._pipe: str | None = None
        self._opened = trio.Event()
        self._n = 0
        self._after = 0
        self._dropped = False

    async def send(self, frame: Frame) -> None:
        async with self._turn:
            if self._pipe is None:
                answer = await self._ask(self._send, {"frames": [frame]})
                self._pipe = answer["pipe"]
                self._opened.set()
                return
            self._n += 1
            await self._ask(self._send, {"pipe": self._pipe, "n": self._n, "frames": [frame]})

    async def receive(self) -> list[Frame]:
        await self._opened.wait()
        request = {"pipe": self._pipe, "after": self._after, "wait_ms": 5_000}
        answer = await self._ask(self._receive, request)
        if "close" in answer and not answer.get("frames"):
            raise Lost
        self._after = answer.get("n", self._after)
        frames: list[Frame] = answer.get("frames") or []
        return frames

    async def end(self) -> None:
        async with self._turn:
            await self._ask(self._send, {"pipe": self._pipe, "close": 1000})

    async def drop(self) -> None:
        self._dropped = True
        await self._send.drop()
        await self._receive.drop()

    async def _ask(self, http: Http, body: Frame) -> Frame:
        try:
            if self._dropped:
                raise Lost
            status, answer = await http.ask("POST", "/v1/pipe", body)
        except Gone:
            raise Lost from None
        finally:
            if self._dropped:  # perhaps just when it connected
                await http.drop()
        if status != 200:
            raise Lost
        found: Frame = answer
        return found


@asynccontextmanager
async def open_link(kind: str, port: int) -> AsyncIterator[Link]:
    """A link that is broken, not closed, when the block is left."""
    if kind == "pipe":
        pipe = PipeLink(port)
        try:
            yield pipe
        finally:
            await pipe.drop()
        return
    try:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        try:
            async with connect(
                f"ws://127.0.0.1:{port}/v1/ws", stream=stream, subprotocols=[JSON],
                compression=None, max_size=None, ping_interval=None, close_timeout=1,
                open_timeout=20, proxy=None,
            ) as socket:  # fmt: skip
                try:
                    yield WebSocketLink(socket)
                finally:
                    await trio.aclose_forcefully(stream)
        finally:
            await trio.aclose_forcefully(stream)
    except (OSError, WebSocketException, EOFError, TimeoutError):
        raise Lost from None
