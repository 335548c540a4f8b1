"""The model server behind pipes, on asyncio: what the shell's tests of polling talk to.

It can lose answers with their connections (`lose_sends`, `lose_receives`), refuse requests, close
connections that are idle as a server does after a while, forget its pipes, and close them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import h11
import msgspec
from msgspec import Raw

from tests.sdk.model_server import Connection, ModelServer


class _Asked(msgspec.Struct):
    pipe: str | None = None
    n: int | None = None
    after: int | None = None
    wait_ms: int = 20_000
    frames: list[Raw] = []
    close: int | None = None


@dataclass
class _Pipe:
    connection: Connection = field(default_factory=Connection)
    sends: int = 0
    answers: int = 0
    last: list[Raw] = field(default_factory=list)
    close: dict[str, Any] | None = None


class FakePipes:
    """A model server on a port of this machine."""

    def __init__(self, model: ModelServer) -> None:
        self.model = model
        self.port = 0
        self.connections = 0
        self.open: set[asyncio.StreamWriter] = set()
        self.pipes: dict[str, _Pipe] = {}
        self.asked: list[_Asked] = []
        self.closes: list[int] = []
        self.lose_sends = 0
        self.lose_receives = 0
        self.refuse: deque[tuple[int, Any]] = deque()
        """Answers for the next sends and opens."""
        self.waiting = 0
        self.news = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def sends(self) -> list[_Asked]:
        return [asked for asked in self.asked if asked.n is not None]

    def drop_idle(self) -> None:
        """Close all connections, those of waiting receives too."""
        for writer in self.open:
            writer.close()

    async def close(self, code: int, reason: str) -> None:
        """Close all pipes."""
        for pipe in self.pipes.values():
            pipe.close = {"code": code, "reason": reason}
        await self._tell()

    async def _tell(self) -> None:
        async with self.news:
            self.news.notify_all()

    # HTTP

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(writer)
        connection = h11.Connection(h11.SERVER)
        with suppress(OSError, h11.ProtocolError):
            while await self._one(connection, reader, writer):
                connection.start_next_cycle()
        self.open.discard(writer)
        writer.close()

    async def _one(
        self, connection: h11.Connection, reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:  # fmt: skip
        body = b""
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Request):
                assert event.target == b"/v1/pipe"
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                return False
        answer = await self._answer(msgspec.json.decode(body, type=_Asked), reader)
        if answer is None:
            return False
        status, value = answer
        data = msgspec.json.encode(value)
        head = h11.Response(status_code=status, headers=[("Content-Length", str(len(data)))])
        for sent in (head, h11.Data(data=data), h11.EndOfMessage()):
            writer.write(connection.send(sent) or b"")
        return True

    # Pipes

    async def _answer(self, asked: _Asked, reader: asyncio.StreamReader) -> Any:
        """Status and object; None: the answer is lost, with its connection."""
        self.asked.append(asked)
        if self.refuse and asked.after is None:
            return self.refuse.popleft()
        if asked.pipe is None:
            name = f"pipe-{len(self.asked)}"
            self._take(self.pipes.setdefault(name, _Pipe()), asked)
            return 200, {"pipe": name}
        pipe = self.pipes.get(asked.pipe)
        if pipe is None:
            return 404, {"error": {"code": "not_found", "message": "no such pipe"}}
        if asked.after is not None:
            return await self._receive(pipe, asked, reader)
        if asked.n is not None and asked.n == pipe.sends + 1:
            pipe.sends += 1
            self._take(pipe, asked)
        else:
            assert asked.n in (None, pipe.sends)
        if asked.close is not None:
            self._leave(asked.pipe, asked.close)
        await self._tell()
        if self.lose_sends:
            self.lose_sends -= 1
            return None
        return 200, {}

    def _take(self, pipe: _Pipe, asked: _Asked) -> None:
        for frame in asked.frames:
            self.model.receive(pipe.connection, bytes(frame))
        if pipe.connection.hello is not None and pipe.connection.session is None:
            pipe.close = {"code": 1008, "reason": "unauthorized"}

    def _leave(self, name: str, code: int) -> None:
        self.closes.append(code)
        connection = self.pipes.pop(name).connection
        session = connection.session
        if session is not None and session.connection is connection:
            session.connection = None
            if code == 1000:
                self.model.forget(session.name)

    async def _receive(self, pipe: _Pipe, asked: _Asked, reader: asyncio.StreamReader) -> Any:
        if asked.after == pipe.answers:
            await self._wait(pipe, asked.wait_ms / 1000, reader)
            pipe.last = [Raw(data) for data in pipe.connection.data()]
            pipe.answers += bool(pipe.last)
        else:
            assert asked.after == pipe.answers - 1
        if self.lose_receives:
            self.lose_receives -= 1
            return None
        answer: dict[str, Any] = {"n": pipe.answers, "frames": pipe.last}
        return 200, answer if pipe.close is None else answer | {"close": pipe.close}

    async def _wait(self, pipe: _Pipe, seconds: float, reader: asyncio.StreamReader) -> None:
        """For frames, the client's end, or the end of time."""

        def has_news() -> bool:
            return bool(pipe.connection.outbox or pipe.close)

        async def news() -> None:
            async with self.news:
                await self.news.wait_for(has_news)

        tasks = {asyncio.create_task(news()), asyncio.create_task(reader.read(1))}
        self.waiting += 1
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.waiting -= 1
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if reader.at_eof():
            raise ConnectionResetError("the client has gone")


@asynccontextmanager
async def fake_pipes(model: ModelServer | None = None) -> AsyncIterator[FakePipes]:
    """Run one."""
    fake = FakePipes(model or ModelServer())
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        fake.drop_idle()
        server.close()
        await server.wait_closed()
