"""The HTTP API on asyncio, just enough of it to poll: what the shell's tests of polling talk to.

`tokens` are those that it takes, `cuts` counts requests to cut before their answer, `drop_idle`
closes connections between requests as a server does after a while.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import h11
import msgspec


class FakeApi:
    """One queue for all names."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.open: set[asyncio.StreamWriter] = set()
        self.asked: list[tuple[str, Any]] = []
        self.tokens: set[str] | None = None
        self.cuts = 0
        self.refuse: deque[tuple[int, Any]] = deque()
        """Answers for the next publishes."""
        self.stored: dict[str, Any] = {}
        """Bodies by dedup id."""
        self.ready: deque[int] = deque()
        self.waiting = 0
        self.settled: list[tuple[str, list[str]]] = []
        self.news = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def paths(self, ending: str) -> list[Any]:
        """The bodies of requests to such a path."""
        return [body for path, body in self.asked if path.endswith(ending)]

    def put(self, *numbers: int) -> None:
        """Messages to receive."""
        self.ready.extend(numbers)
        self.news.set()

    def drop_idle(self) -> None:
        for writer in self.open:
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(writer)
        connection = h11.Connection(h11.SERVER)
        try:
            while connection.states[h11.CLIENT] is not h11.MUST_CLOSE:
                if not await self._one(connection, reader, writer):
                    break
                connection.start_next_cycle()
        except (OSError, h11.ProtocolError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()

    async def _one(
        self, connection: h11.Connection, reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:  # fmt: skip
        request, body = None, b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return False
        assert request is not None
        path = request.target.decode().partition("?")[0]
        self.asked.append((path, msgspec.json.decode(body) if body else None))
        status, value = await self._answer(path, dict(request.headers), reader)
        if self.cuts and path.endswith("messages"):
            self.cuts -= 1
            return False
        data = msgspec.json.encode(value)
        head = h11.Response(status_code=status, headers=[("Content-Length", str(len(data)))])
        for event in (head, h11.Data(data=data), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        return True

    async def _answer(
        self, path: str, headers: dict[bytes, bytes], reader: asyncio.StreamReader
    ) -> tuple[int, Any]:
        body = self.asked[-1][1]
        token = headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
        if self.tokens is not None and token not in self.tokens:
            return 401, {"error": {"code": "unauthorized", "message": "no such token"}}
        if path.endswith("/limits"):
            return 200, {"limits": {}}
        if path.endswith("/messages"):
            return self._publish(body)
        if path.endswith("/receive"):
            return 200, {"messages": await self._receive(body, reader)}
        self.settled.append((path.rpartition("/")[2], body["receipts"]))
        return 200, {}

    def _publish(self, body: Any) -> tuple[int, Any]:
        if self.refuse:
            return self.refuse.popleft()
        found = [i for i, m in enumerate(body["messages"]) if m["dedup"] in self.stored]
        for message in body["messages"]:
            self.stored.setdefault(message["dedup"], message["body"])
        return 200, {"ids": [m["dedup"] for m in body["messages"]], "duplicates": found}

    async def _receive(self, body: Any, reader: asyncio.StreamReader) -> list[Any]:
        self.waiting += 1
        try:
            await self._wait(body["wait_ms"] / 1000, reader)
        finally:
            self.waiting -= 1
        most = min(body["max"], len(self.ready))
        return [
            {"id": f"m-{n}", "attempt": 1, "published_at": 0, "body": n, "receipt": f"P.{n}",
             "fence": 1, "lease_ms": body.get("lease_ms", 30000)}
            for n in (self.ready.popleft() for _ in range(most))
        ]  # fmt: skip

    async def _wait(self, seconds: float, reader: asyncio.StreamReader) -> None:
        """For news, the client's end, or the end of time."""
        self.news.clear()
        if self.ready or not seconds:
            return
        gone = asyncio.create_task(reader.read(1))
        news = asyncio.create_task(self.news.wait())
        await asyncio.wait({gone, news}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            news.cancel()
            raise ConnectionResetError("the client has gone")
        for task in (gone, news):
            task.cancel()
        await asyncio.wait({gone, news})


@asynccontextmanager
async def fake_api() -> AsyncIterator[FakeApi]:
    """Run one."""
    fake = FakeApi()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        fake.drop_idle()
        server.close()
        await server.wait_closed()
