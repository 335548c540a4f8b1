"""`connect` and `Client`: the SDK's surface for asyncio."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import ssl
from collections.abc import Callable, Generator, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Never, get_args

from msgspec import UNSET

from pushlane.core.choice import Wish
from pushlane.core.client import ClientCore
from pushlane.core.effects import State
from pushlane.core.publication import Fields, Item, Published, make_message, refuse_unknown
from pushlane.core.queues import Call
from pushlane.core.settings import DEFAULTS, Settings
from pushlane.core.subscription import AckMode
from pushlane.core.subscription import Subscription as CoreSubscription
from pushlane.core.url import DEFAULT_URL, TOKEN_VARIABLE, VARIABLE, parse_url
from pushlane.wire.codec import JSON, MSGPACK
from pushlane.wire.errors import BadRequest, PushlaneError
from pushlane.wire.frames import PublishMessage

from . import http
from .consumption import Consumption, Handler
from .driver import Driver, Token
from .queues import Queues
from .subscription import Subscription

log = logging.getLogger(__name__)

_CODECS = {"json": JSON, "msgpack": MSGPACK}
_LEAST_CREDIT = 64


class connect:
    """Connect to a server; use it with `async with`, or await it and close the client yourself.

        async with pushlane.connect() as client:
            await client.publish("orders", {"order": 17})

    `url` is ws, wss, http or https; without it PUSHLANE_URL counts, else ws://127.0.0.1:8420.
    `token` is a string, or a function (async or not) that is asked at every connect; without it
    PUSHLANE_TOKEN counts. `name` is for operators to see. `on_state` hears of every change of
    `Client.state`.

    `transport` is "ws", a WebSocket; "poll", HTTP requests that wait for messages; or "auto", a
    WebSocket where one can be had and polling where something in between doesn't let it through.

    Raises Unauthorized or Forbidden at once, and ConnectionLost after `settings.connect_ms`.
    Later the client connects again on its own, for as long as it lives.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: Token = None,
        transport: Wish = "auto",
        encoding: Literal["json", "msgpack"] = "json",
        name: str | None = None,
        on_state: Callable[[str], object] | None = None,
        tls: ssl.SSLContext | None = None,
        settings: Settings = DEFAULTS,
    ) -> None:
        if transport not in get_args(Wish):
            raise BadRequest(f"transport is {transport!r}: {', '.join(get_args(Wish))}")
        if encoding not in _CODECS:
            raise BadRequest(f"encoding is {encoding!r}: {' or '.join(_CODECS)}")
        self._endpoint = parse_url(url or os.environ.get(VARIABLE) or DEFAULT_URL)
        self._token = token if token is not None else os.environ.get(TOKEN_VARIABLE) or None
        if self._token is not None and self._endpoint.is_readable:
            log.warning(
                "the token goes to %s without TLS, and anybody on the way can read it: use wss://",
                self._endpoint.authority,
            )
        self._transport: Wish = transport
        self._codec = _CODECS[encoding]
        self._name = name
        self._on_state = on_state
        self._tls = tls
        self._settings = settings
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._client is not None
        await self._client.__aexit__(exc_type, exc, traceback)

    async def _connect(self) -> Client:
        core = ClientCore(
            producer=f"py-{secrets.token_urlsafe(12)}", random=random.random, codec=self._codec,
            name=self._name, settings=self._settings, transport=self._transport,
        )  # fmt: skip
        tls = self._tls or (ssl.create_default_context() if self._endpoint.is_tls else None)
        driver = Driver(core, self._endpoint, self._codec, self._token, tls, self._on_state)

        async def request(call: Call) -> Any:
            token = await driver.token()
            return await http.request(self._endpoint, call, token, self._settings, tls)

        client = Client(driver, Queues(request))
        started = driver.loop.create_future()
        core.start(driver.now(), started)
        driver.run()
        try:
            await started
        except BaseException:
            await client.close(timeout_ms=0)
            raise
        return client


class Client:
    """A connection to a server that outlives its sockets; made by `connect`.

    All its methods may be called from any task of its event loop.
    """

    def __init__(self, driver: Driver, queues: Queues) -> None:
        self._driver = driver
        self._core = driver.core
        self.queues = queues

    @property
    def state(self) -> State:
        """`connecting`, `open`, `polling` (open without a WebSocket) or `closed`."""
        return self._core.state

    # Publishing

    async def publish(
        self,
        queue: str,
        body: Any = UNSET,
        *,
        data: bytes | None = None,
        key: str | None = None,
        dedup: str | None = None,
        priority: int | None = None,
        delay_ms: int | None = None,
        ttl_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
        event_at: int | None = None,
        **unknown: Never,
    ) -> str:
        """Store a message; returns its id once it is durable.

            await client.publish("orders", {"order": 17}, key="customer-5")
            await client.publish("images", data=png, headers={"type": "image/png"})

        Give `body`, any JSON value, or `data`, bytes. Calls made at the same time share a frame.
        When the connection breaks before the answer, it is sent again and stored once. The id is
        empty when an earlier try had stored it, so long ago that the server forgot which id it got.

        A call that is cancelled or timed out (`asyncio.timeout`) withdraws its message if it was
        not sent yet; else it may be stored. To try again without storing it twice, give `dedup`.
        """
        refuse_unknown(unknown)
        fields = Fields(
            body=body, data=data, key=key, dedup=dedup, priority=priority, delay_ms=delay_ms,
            ttl_ms=ttl_ms, headers=headers, event_at=event_at,
        )  # fmt: skip
        message = make_message(fields)
        if not self._core.producer.has_room():
            await self._enter()
        future: asyncio.Future[Published] = self._driver.loop.create_future()
        self._core.publish(queue, message, future, self._driver.now())
        self._driver.soon()
        try:
            published = await future
        except asyncio.CancelledError:
            self._core.producer.withdraw(queue, future)
            raise
        return published.id or ""

    async def publish_many(self, queue: str, items: Iterable[Any]) -> list[Published]:
        """Store many messages; what became of each, in their order. Raises only for bad items.

            results = await client.publish_many("orders", [{"order": n} for n in range(1000)])
            failed = [result.error for result in results if result.error]

        An item is a body, or an `Item` with options. Items are drawn as they can be sent, so an
        iterator may be longer than memory has room for its messages.

        When it raises or is cancelled, what was not sent yet is withdrawn; what was sent may be
        stored.
        """
        futures: list[asyncio.Future[Published]] = []
        try:
            for item in items:
                fields = item if isinstance(item, Item) else Fields(body=item)
                futures.append(await self._bring(queue, make_message(fields)))
            results = await asyncio.gather(*futures, return_exceptions=True)
        except BaseException:
            self._core.producer.withdraw_all(queue, set(futures))
            for future in futures:
                future.cancel()  # nobody will ask what became of them
            raise
        return [_outcome(result) for result in results]

    async def _bring(self, queue: str, message: PublishMessage) -> asyncio.Future[Published]:
        """Take one of many in, as soon as there is room; what will become of it."""
        if not self._core.producer.has_room():
            await self._enter()
        future: asyncio.Future[Published] = self._driver.loop.create_future()
        try:
            self._core.publish(queue, message, future, self._driver.now())
        except PushlaneError as error:
            future.set_exception(error)
        self._driver.soon()
        return future

    async def _enter(self) -> None:
        """Wait for room among the messages that wait to be sent."""
        self._core.check_open()
        producer = self._core.producer
        turn = self._driver.loop.create_future()
        producer.enter(turn)
        self._driver.soon()
        try:
            await turn
        except asyncio.CancelledError:
            producer.leave(turn)
            raise
        producer.entered(turn)

    # Consuming

    async def subscribe(
        self,
        queue: str,
        *,
        credit: int = 64,
        lease_ms: int | None = None,
        ack: AckMode = "explicit",
    ) -> Subscription:
        """Receive a queue's messages; see `Subscription`.

        `credit` is how many unsettled messages may be here at once, `lease_ms` how long one may be
        worked on before it goes to somebody else (else the queue's own). With `ack="none"` messages
        are settled before they are sent: at most once.
        """
        core, started = self._subscribe(queue, credit, ack, lease_ms)
        subscription = core.owner = Subscription(self._driver, core)
        try:
            await started
        except asyncio.CancelledError:
            self._core.unsubscribe(core)
            self._driver.soon()
            raise
        return subscription

    async def consume(
        self,
        queue: str,
        handler: Handler,
        *,
        concurrency: int = 10,
        credit: int | None = None,
        lease_ms: int | None = None,
    ) -> None:
        """Call `handler` with each message, `concurrency` of them at a time, until cancelled.

            async def handle(message):
                await charge(message.body, fence=message.fence)

            await client.consume("orders", handle)

        A message is acked when its handler returns, nacked when it raises; its lease is extended
        meanwhile, for at most an hour. When the lease is lost the handler is cancelled. Returns
        when the client is closed; raises when the subscription ends otherwise.
        """
        if concurrency < 1:
            raise BadRequest(f"concurrency is {concurrency}: at least 1")
        if credit is None:
            credit = min(max(_LEAST_CREDIT, 4 * concurrency), self._core.limits.credit)
        core, started = self._subscribe(queue, credit, "explicit", lease_ms)
        consumption = core.owner = Consumption(self._driver, core, handler, concurrency)
        await consumption.run(started)

    def _subscribe(
        self, queue: str, credit: int, ack: AckMode, lease_ms: int | None
    ) -> tuple[CoreSubscription, asyncio.Future[None]]:
        started: asyncio.Future[None] = self._driver.loop.create_future()
        core = self._core.subscribe(queue, credit, ack, lease_ms, started)
        self._driver.soon()
        return core, started

    # The end

    async def close(self, *, timeout_ms: int | None = None) -> None:
        """End gracefully: nothing new begins, handlers and unanswered requests get `timeout_ms`
        (30000), then handlers are cancelled and the session ends. What is left goes back.

        A server that is away is waited for 5 s at most (`settings.away_ms`), and only for answers
        to publishes and acks."""
        settings = self._core.settings
        closed = self._driver.loop.create_future()
        timeout_ms = settings.close_ms if timeout_ms is None else timeout_ms
        self._core.close(self._driver.now(), timeout_ms, closed)
        self._driver.run()
        try:
            await closed
        except asyncio.CancelledError:
            self._core.close(self._driver.now(), 0)
            self._core.tick(self._driver.now())
            self._driver.run()
            raise
        finally:
            await self._driver.stop()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A block that failed should not hang on what it left behind.
        hurry = self._core.settings.hangup_ms
        await self.close(timeout_ms=None if exc is None else hurry)


def _outcome(result: Published | BaseException) -> Published:
    if isinstance(result, PushlaneError):
        return Published(None, error=result)
    if isinstance(result, BaseException):
        raise result
    return result
