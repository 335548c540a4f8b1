"""`Client.queues` against a small HTTP server: what is asked, and what becomes of answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import h11
import msgspec
import pytest

from pushlane.asyncio import http
from pushlane.asyncio.queues import Queues
from pushlane.core.queues import Call
from pushlane.core.settings import Settings
from pushlane.core.url import Endpoint
from pushlane.wire.errors import BadRequest, ConnectionLost, Internal, NotFound, PushlaneError
from tests.sdk.asyncio.loop import on_asyncio

Answer = tuple[int, bytes]


class FakeHttp:
    """Answers every request with the next of `answers`, and writes down what was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, str, Any]] = []
        self.headers: dict[bytes, bytes] = {}
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        body = b""
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
        value = msgspec.json.decode(body) if body else None
        self.asked.append((request.method.decode(), request.target.decode(), value))
        self.headers = dict(request.headers)
        status, answer = self.answers.pop(0)
        if status:
            headers = [("Content-Length", str(len(answer)))]
            writer.write(connection.send(h11.Response(status_code=status, headers=headers)) or b"")
            writer.write(connection.send(h11.Data(data=answer)) or b"")
        writer.close()

    def queues(self, token: str | None = None, settings: Settings | None = None) -> Queues:
        endpoint = Endpoint("127.0.0.1", self.port, False, "/base")

        async def request(call: Call) -> Any:
            return await http.request(endpoint, call, token, settings or Settings(), None)

        return Queues(request)


@asynccontextmanager
async def fake_http(*answers: Answer) -> AsyncIterator[FakeHttp]:
    fake = FakeHttp()
    fake.answers = list(answers)
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()
        await server.wait_closed()


@on_asyncio
async def test_every_call() -> None:
    async with fake_http(*[(200, b'{"a": 1}')] * 15) as fake:
        queues = fake.queues()
        assert await queues.create("q", max_attempts=3) == {"a": 1}
        await queues.ensure("q", max_attempts=3)
        await queues.replace("q", max_attempts=3)
        await queues.get("q")
        await queues.update("q", paused=True)
        await queues.delete("q")
        await queues.list(limit=10, after="a")
        await queues.stats("q")
        await queues.peek("q", limit=5)
        await queues.peek("q", after="xyz")
        await queues.purge("q")
        await queues.pause("q")
        await queues.resume("q")
        await queues.redrive("q.dead", rate=10)
        await queues.explain("q", "m/1")
        base = "/base/v1/queues"
        assert fake.asked == [
            ("POST", base, {"max_attempts": 3, "name": "q"}),
            ("POST", f"{base}?ensure=true", {"max_attempts": 3, "name": "q"}),
            ("PUT", f"{base}/q", {"max_attempts": 3}),
            ("GET", f"{base}/q", None),
            ("PATCH", f"{base}/q", {"paused": True}),
            ("DELETE", f"{base}/q?confirm=q", None),
            ("GET", f"{base}?limit=10&after=a", None),
            ("GET", f"{base}/q/stats", None),
            ("GET", f"{base}/q/peek?limit=5", None),
            ("GET", f"{base}/q/peek?after=xyz", None),
            ("POST", f"{base}/q/purge", {}),
            ("POST", f"{base}/q/pause", {}),
            ("POST", f"{base}/q/resume", {}),
            ("POST", f"{base}/q.dead/redrive", {"rate": 10, "max": 10_000}),
            ("GET", f"{base}/q/messages/m%2F1/explain", None),
        ]


@on_asyncio
async def test_a_redrive_goes_on_until_it_is_through() -> None:
    answers = [
        (200, b'{"redriven": 10000, "next": "a"}'),
        (200, b'{"redriven": 0, "next": "b"}'),
        (200, b'{"redriven": 5}'),
    ]
    async with fake_http(*answers) as fake:
        assert await fake.queues().redrive("q.dead", cause="expired") == {"redriven": 10_005}
        bodies = [body for _, _, body in fake.asked]
        assert bodies == [
            {"cause": "expired", "max": 10_000},
            {"cause": "expired", "max": 10_000, "after": "a"},
            {"cause": "expired", "max": 10_000, "after": "b"},
        ]


@on_asyncio
async def test_or_until_it_has_enough() -> None:
    answers = [(200, b'{"redriven": 10000, "next": "a"}'), (200, b'{"redriven": 2, "next": "b"}')]
    async with fake_http(*answers) as fake:
        assert await fake.queues().redrive("q.dead", max=10_002) == {"redriven": 10_002}
        assert [body["max"] for _, _, body in fake.asked] == [10_000, 2]


@on_asyncio
async def test_the_token_goes_into_a_header() -> None:
    async with fake_http((200, b"{}")) as fake:
        await fake.queues(token="secret").get("q")
        assert fake.headers[b"authorization"] == b"Bearer secret"


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (404, b'{"error": {"code": "not_found", "message": "no q"}}', NotFound),
        (400, b"<html>", BadRequest),
        (502, b"", Internal),
        (409, b'{"error": {"code": "brand_new", "message": "x", "retry_ms": 5}}', PushlaneError),
    ],
)
@on_asyncio
async def test_errors_are_typed(status: int, body: bytes, error: type[PushlaneError]) -> None:
    async with fake_http((status, body)) as fake:
        with pytest.raises(error) as caught:
            await fake.queues().get("q")
        assert type(caught.value) is error


@on_asyncio
async def test_names_are_checked_before_they_are_a_path() -> None:
    async with fake_http() as fake:
        for name in ("../secret", "a/b", "", "a?b"):
            with pytest.raises(BadRequest):
                await fake.queues().delete(name)
        assert fake.asked == []


@on_asyncio
async def test_what_has_no_json_form_is_not_asked() -> None:
    async with fake_http() as fake:
        with pytest.raises(BadRequest, match="no JSON for it"):
            await fake.queues().update("q", max_attempts=object())
        assert fake.asked == []


@on_asyncio
async def test_an_answer_that_is_cut_off() -> None:
    async with fake_http((0, b"")) as fake:
        with pytest.raises(ConnectionLost):
            await fake.queues().get("q")


@on_asyncio
async def test_an_answer_that_is_too_large() -> None:
    async with fake_http((200, b"1" * 1000)) as fake:
        with pytest.raises(Internal, match="more than 100"):
            await fake.queues(settings=Settings(http_bytes=100)).get("q")


@on_asyncio
async def test_an_answer_that_takes_too_long() -> None:
    never = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await never.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    fake = FakeHttp()
    fake.port = server.sockets[0].getsockname()[1]
    with pytest.raises(ConnectionLost, match="within 50 ms"):
        await fake.queues(settings=Settings(http_ms=50)).get("q")
    never.set()
    server.close()
    await server.wait_closed()


@on_asyncio
async def test_nobody_there() -> None:
    fake = FakeHttp()
    fake.port = 9
    with pytest.raises(ConnectionLost, match="no connection"):
        await fake.queues().get("q")
