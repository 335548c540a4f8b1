"""What the sessions' tests are made of: a dispatcher on the memory store, and clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from msgspec import Raw

from pushlane.wire.codec import JSON, Codec
from pushlane.wire.errors import Unauthorized
from pushlane.wire.frames import (
    Ack,
    ClientFrame,
    Deliver,
    DeliverMessage,
    Done,
    ErrorFrame,
    Hello,
    Publish,
    Published,
    PublishMessage,
    Resume,
    Subscribe,
    Subscribed,
    Welcome,
)
from pushlane.wire.limits import DEFAULTS, Limits
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_dispatcher.settings import Settings
from pushlane_gateway.auth.identity import ANONYMOUS, Identity
from pushlane_gateway.metrics import Metrics
from pushlane_gateway.session.context import SessionContext
from pushlane_gateway.session.sessions import Sessions
from pushlane_gateway.session.settings import SessionSettings
from pushlane_gateway.session.timers import Timers
from pushlane_leases.memory import MemoryLeases
from pushlane_storage.memory import MemoryStore
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.rig import TENANT, blocked, memory_store, mock_clock
from tests.gateway.session.fake_socket import FakeSocket

__all__ = ["TENANT", "Client", "Rig", "blocked", "message", "rig"]


def message(body: bytes = b"1", **fields: Any) -> PublishMessage:
    return PublishMessage(body=Raw(body), **fields)


class Client:
    """A client that speaks frames, and numbers its requests."""

    def __init__(self, sessions: Sessions, socket: FakeSocket) -> None:
        self.sessions = sessions
        self.socket = socket
        self.gone = trio.Event()
        self._id = 0

    async def serve(self) -> None:
        try:
            await self.sessions.handle(self.socket)
        finally:
            self.gone.set()

    def next_id(self) -> int:
        self._id += 1
        return self._id

    def say(self, *frames: ClientFrame | bytes) -> None:
        self.socket.say(*frames)

    async def hello(self, **fields: Any) -> Welcome:
        self.say(Hello(**fields))
        return await self.socket.hear_a(Welcome)

    async def resume(self, session: str, held: dict[str, list[str]] | None = None) -> Welcome:
        return await self.hello(resume=Resume(session, held or {}))

    async def publish(self, to: str, *bodies: bytes, **fields: Any) -> Published:
        messages = [message(body, **fields) for body in bodies]
        self.say(Publish(self.next_id(), to, messages))
        return await self.socket.hear_a(Published)

    async def subscribe(self, queue: str, credit: int = 100, **fields: Any) -> int:
        self.say(Subscribe(self.next_id(), queue, credit, **fields))
        return (await self.socket.hear_a(Subscribed)).sub

    async def deliver(self) -> list[DeliverMessage]:
        return (await self.socket.hear_a(Deliver)).messages

    async def deliveries(self, count: int) -> list[DeliverMessage]:
        """So many messages, in as many frames as it takes."""
        found: list[DeliverMessage] = []
        while len(found) < count:
            found += await self.deliver()
        return found

    async def ack(self, sub: int, *receipts: str) -> Done:
        self.say(Ack(sub, list(receipts), self.next_id()))
        return await self.socket.hear_a(Done)

    async def error(self) -> ErrorFrame:
        return await self.socket.hear_a(ErrorFrame)

    async def silence(self, seconds: float = 0) -> None:
        """Nothing is sent that was not heard."""
        await trio.sleep(seconds)
        await blocked()
        assert self.socket.unread == []

    async def leave(self) -> None:
        self.socket.leave()
        await self.gone.wait()

    async def drop(self) -> None:
        self.socket.drop()
        await self.gone.wait()


class Rig:
    def __init__(self, dispatcher: Dispatcher, sessions: Sessions, nursery: trio.Nursery) -> None:
        self.dispatcher = dispatcher
        self.sessions = sessions
        self.metrics = sessions.context.metrics
        self._nursery = nursery

    def connect(self, codec: Codec = JSON, authorization: str | None = None) -> Client:
        client = Client(self.sessions, FakeSocket(codec, authorization))
        self._nursery.start_soon(client.serve)
        return client

    async def client(self, codec: Codec = JSON, **hello: Any) -> Client:
        """Welcomed."""
        client = self.connect(codec)
        await client.hello(**hello)
        return client

    async def queue(self, name: str = "q", **config: Any) -> None:
        await self.dispatcher.ensure(TENANT, name, QueueConfig(**config))

    def limit(self, name: str) -> int:
        """How often a limit was reached."""
        return self.metrics.limits.counts[name]


def anybody(_: str | None) -> Identity:
    return ANONYMOUS


def known(**identities: Identity) -> Callable[[str | None], Identity]:
    """Authentication by a table of tokens."""

    def authenticate(token: str | None) -> Identity:
        if token not in identities:
            raise Unauthorized("no such token")
        return identities[token]

    return authenticate


@asynccontextmanager
async def rig(
    store: MemoryStore | None = None,
    *,
    leases: MemoryLeases | None = None,
    authenticate: Callable[[str | None], Identity] = anybody,
    limits: Limits = DEFAULTS,
    bounds: Bounds | None = None,
    dispatching: Settings | None = None,
    auto_create: bool = True,
    template: dict[str, Any] | None = None,
    still_valid: Callable[[Identity], bool] = lambda _: True,
    **settings: Any,
) -> AsyncIterator[Rig]:
    async with (
        open_dispatcher(
            memory_store() if store is None else store,
            leases,
            clock=mock_clock(),
            settings=dispatching,
            bounds=bounds,
            limits=limits,
            chance=lambda: 0.5,
        ) as dispatcher,
        trio.open_nursery() as nursery,
    ):
        context = SessionContext(
            dispatcher,
            authenticate,
            nursery,
            limits,
            SessionSettings(**settings),
            auto_create,
            QueueConfig(**(template or {})),
            metrics=Metrics(),
            timers=Timers(),
            chance=lambda: 0.5,
            still_valid=still_valid,
        )
        nursery.start_soon(context.timers.run)
        yield Rig(dispatcher, Sessions(context), nursery)
        nursery.cancel_scope.cancel()
