"""A client that speaks ASGI: no socket, no server between it and the app."""

from __future__ import annotations

from typing import Any

import msgspec
import trio
from starlette.types import ASGIApp, Message

HOST = "127.0.0.1:8420"
JSON = {"content-type": "application/json"}


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def __repr__(self) -> str:
        return f"{self.status} {self.body!r}"

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """The code of an error."""
        code = self.json["error"]["code"]
        assert isinstance(code, str)
        return code

    @property
    def fault(self) -> tuple[int, str]:
        return self.status, self.code


class Exchange:
    """One request under way."""

    def __init__(
        self, app: ASGIApp, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> None:
        self._app = app
        path, _, query = target.partition("?")
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": None,
            "state": {},
        }
        self._body: bytes | None = body
        self._left = trio.Event()
        self.deaf = False
        """What is sent to it fails."""
        self.writing: trio.Event | None = None
        """The answer is not written before this is set."""
        self.started = False
        self.done = trio.Event()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._answer = bytearray()

    async def run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
        except OSError:
            assert self.deaf
        finally:
            self.done.set()

    async def _receive(self) -> Message:
        await trio.lowlevel.checkpoint()
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await trio.lowlevel.checkpoint()
        if message["type"] == "http.response.start":
            assert not self._status
            self._status = message["status"]
            self._headers = {k.decode(): v.decode() for k, v in message["headers"]}
            return
        self.started = True
        if self.writing is not None:
            await self.writing.wait()
        if self.deaf:
            raise OSError("the client has gone")
        self._answer += message["body"]

    def leave(self) -> None:
        self._left.set()

    @property
    def answered(self) -> bool:
        return bool(self._status)

    @property
    def answer(self) -> Answer:
        assert self._status, "there was no answer"
        return Answer(self._status, self._headers, bytes(self._answer))


class Client:
    def __init__(
        self, app: ASGIApp, nursery: trio.Nursery, headers: dict[str, str] | None = None
    ) -> None:
        self._app = app
        self._nursery = nursery
        self._headers = headers or {}

    def exchange(
        self, method: str, target: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Exchange:
        """Not begun yet."""
        data = body if isinstance(body, bytes) else b""
        sent = {"host": HOST, **self._headers}
        if body is not None:
            sent.update(JSON)
        if body is not None and not isinstance(body, bytes):
            data = msgspec.json.encode(body)
        sent.update(headers or {})
        sent = {name: value for name, value in sent.items() if value != "-"}
        return Exchange(self._app, method, target, sent, data)

    def begin(self, *args: Any, **options: Any) -> Exchange:
        """In a task of its own."""
        exchange = self.exchange(*args, **options)
        self._nursery.start_soon(exchange.run)
        return exchange

    async def ask(self, *args: Any, **options: Any) -> Answer:
        exchange = self.exchange(*args, **options)
        await exchange.run()
        return exchange.answer

    async def get(self, target: str, **headers: str) -> Answer:
        return await self.ask("GET", target, headers=_names(headers))

    async def post(self, target: str, body: Any = None, **headers: str) -> Answer:
        return await self.ask("POST", target, {} if body is None else body, _names(headers))

    async def put(self, target: str, body: Any = None, **headers: str) -> Answer:
        return await self.ask("PUT", target, {} if body is None else body, _names(headers))

    async def patch(self, target: str, body: Any, **headers: str) -> Answer:
        return await self.ask("PATCH", target, body, _names(headers))

    async def delete(self, target: str) -> Answer:
        return await self.ask("DELETE", target)

    # Of a queue

    async def publish(self, queue: str, *bodies: Any, **fields: Any) -> list[str]:
        messages = [{"body": body, **fields} for body in bodies]
        answer = await self.post(f"/v1/queues/{queue}/messages", {"messages": messages})
        assert answer.status == 200, answer
        ids = answer.json["ids"]
        assert isinstance(ids, list)
        return ids

    async def receive(self, queue: str, max: int = 1, wait_ms: int = 0, **fields: Any) -> Any:
        body = {"max": max, "wait_ms": wait_ms, **fields}
        answer = await self.post(f"/v1/queues/{queue}/receive", body)
        assert answer.status == 200, answer
        return answer.json["messages"]

    async def settle(self, op: str, queue: str, *receipts: str, **fields: Any) -> Any:
        body = {"receipts": list(receipts), **fields}
        answer = await self.post(f"/v1/queues/{queue}/{op}", body)
        assert answer.status == 200, answer
        return answer.json

    async def state(self, queue: str, id: str) -> str:
        answer = await self.get(f"/v1/queues/{queue}/messages/{id}/explain")
        assert answer.status == 200, answer
        return str(answer.json["state"])

    async def stats(self, queue: str) -> dict[str, Any]:
        answer = await self.get(f"/v1/queues/{queue}/stats")
        assert answer.status == 200, answer
        found = answer.json
        assert isinstance(found, dict)
        return found


def _names(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}
