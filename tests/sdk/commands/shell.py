"""Commands as users run them, with a client that only takes notes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pushlane import cli
from pushlane.asyncio.client import connect
from pushlane.commands.server import Server
from pushlane.core.publication import Item, Published, make_message
from pushlane.wire.errors import PushlaneError


class FakeMessage:
    """A delivered message that notes how it was settled."""

    def __init__(self, id: str, raw: bytes | None = None, **fields: Any) -> None:
        self.id = id
        self.raw = raw
        self.data: bytes | None = None
        self.key: str | None = None
        self.headers: dict[str, str] = {}
        self.attempt = 1
        self.fence = 7
        self.published_at = 1_763_251_200_000
        self.dead: Any = None
        self.settled: str | None = None
        for name, value in fields.items():
            setattr(self, name, value)

    @property
    def body(self) -> Any:
        return None if self.raw is None else json.loads(self.raw)

    async def __aenter__(self) -> FakeMessage:
        return self

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if self.settled is None:
            self.settled = "ack" if error is None else f"nack: {error}"


class FakeSubscription:
    """Gives what it was given, then waits for ever."""

    def __init__(self, messages: list[FakeMessage]) -> None:
        self._messages = iter(messages)
        self.closed = False

    async def __anext__(self) -> FakeMessage:
        import asyncio

        for message in self._messages:
            return message
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None:
        self.closed = True


class FakeQueues:
    """Answers with what was prepared, by the call's name; notes every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:
            self.calls.append((name, *args, options) if options else (name, *args))
            answer = self.answers.get(name, {})
            answer = answer.pop(0) if isinstance(answer, list) else answer
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


class FakeClient:
    def __init__(self) -> None:
        self.queues = FakeQueues()
        self.published: list[tuple[str, Item]] = []
        self.batches: list[int] = []
        self.outcomes: dict[int, Published] = {}
        self.messages: list[FakeMessage] = []
        self.subscribed: list[tuple[str, int, int | None]] = []
        self.subscription = FakeSubscription([])
        self.refuses: PushlaneError | None = None
        self.servers: list[Server] = []

    async def __aenter__(self) -> FakeClient:
        if self.refuses is not None:
            raise self.refuses
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    @property
    def bodies(self) -> list[bytes]:
        """What was published, as it goes over the wire."""
        return [bytes(make_message(item).body) for _, item in self.published]  # type: ignore[arg-type]

    async def publish_many(self, queue: str, items: list[Item]) -> list[Published]:
        self.batches.append(len(items))
        first = len(self.published)
        self.published += [(queue, item) for item in items]
        numbers = range(first, len(self.published))
        return [self.outcomes.get(number, Published(f"id-{number}")) for number in numbers]

    async def subscribe(self, queue: str, *, credit: int, lease_ms: int | None) -> FakeSubscription:
        self.subscribed.append((queue, credit, lease_ms))
        self.subscription = FakeSubscription(self.messages)
        return self.subscription


class Shell:
    """Runs `pushlane …` against a fake client."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        self.client = FakeClient()
        self.err = ""
        self._capture = capfdbinary

        def open_fake(server: Server) -> Any:
            server.token()
            self.client.servers.append(server)
            return self.client

        assert isinstance(connect, type)
        monkeypatch.setattr(Server, "connect", open_fake)
        monkeypatch.delenv("PUSHLANE_URL", raising=False)
        monkeypatch.delenv("PUSHLANE_TOKEN", raising=False)

    def __call__(self, *args: str, status: int = 0) -> str:
        """What it printed to stdout; stderr is in `err`."""
        self._capture.readouterr()
        code: object = 0
        try:
            cli.build_app()(list(args), result_action="return_value")
        except SystemExit as end:
            code = end.code or 0
        out, err = self._capture.readouterr()
        self.err = err.decode()
        assert code == status, out.decode() + self.err
        return out.decode()

    def json(self, *args: str, status: int = 0) -> Any:
        return json.loads(self(*args, "--json", status=status))

    def lines(self, *args: str, status: int = 0) -> list[Any]:
        """Of a command that prints an object a line."""
        return [json.loads(line) for line in self(*args, "--json", status=status).splitlines()]
