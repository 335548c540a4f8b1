"""The model server behind real WebSockets, on asyncio: what the shell's tests talk to.

`cut` breaks connections as a network does, `is_mute` keeps answers back, `reject` answers upgrades
with an HTTP status.
"""

from __future__ import annotations

import asyncio
import http
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from pushlane.wire import JSON, frames
from tests.sdk.model_server import Connection, ModelServer


class FakeServer:
    """A model server on a port of this machine."""

    def __init__(self, model: ModelServer) -> None:
        self.model = model
        self.port = 0
        self.sockets: dict[ServerConnection, Connection] = {}
        self.closes: list[int | None] = []
        self.is_mute = False
        self.reject: int | None = None
        self.paths: list[str] = []

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def _upgrade(self, socket: ServerConnection, request: Request) -> Response | None:
        self.paths.append(request.path)
        if self.reject is None:
            return None
        return socket.respond(http.HTTPStatus(self.reject), "no\n")

    async def _serve(self, socket: ServerConnection) -> None:
        connection = self.sockets[socket] = Connection()
        try:
            async for data in socket:
                raw = data.encode() if isinstance(data, str) else data
                self.model.receive(connection, raw)
                await self.flush()
                if connection.hello is not None and connection.session is None:
                    await socket.close(1008, "unauthorized")
        except ConnectionClosed:
            pass
        finally:
            del self.sockets[socket]
            self.closes.append(socket.close_code)
            session = connection.session
            if session is not None and session.connection is connection:
                session.connection = None
                if socket.close_code == 1000:
                    self.model.forget(session.name)

    async def flush(self) -> None:
        """Send all answers that there are."""
        if self.is_mute:
            return
        for socket, connection in list(self.sockets.items()):
            for data in connection.data():
                await socket.send(data.decode())

    async def send(self, frame: frames.ServerFrame) -> None:
        """Send a frame to everybody."""
        for socket in list(self.sockets):
            await socket.send(JSON.encode(frame).decode())

    async def cut(self) -> None:
        """Break all connections without a word."""
        sockets = list(self.sockets)
        for socket in sockets:
            socket.transport.abort()
        await asyncio.gather(*[socket.wait_closed() for socket in sockets])
        await asyncio.sleep(0)

    async def close(self, code: int, reason: str = "") -> None:
        """Close all connections with a code."""
        for socket in list(self.sockets):
            await socket.close(code, reason)


@asynccontextmanager
async def fake_server(model: ModelServer | None = None) -> AsyncIterator[FakeServer]:
    """Run one."""
    fake = FakeServer(model or ModelServer())
    async with serve(
        fake._serve,
        "127.0.0.1",
        0,
        subprotocols=["pushlane.v1.json"],  # type: ignore[list-item]
        process_request=fake._upgrade,
        compression=None,
        max_size=2**26,
    ) as server:
        fake.port = next(iter(server.sockets)).getsockname()[1]
        yield fake
