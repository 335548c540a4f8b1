"""The JavaScript SDK as a shell: each client is one in a Node process that is driven from here.

`sdk_js/test/driver.mjs` is the other end and says what goes over the pipe. What is cancelled here
is aborted there; what handlers are there are functions here.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from types import SimpleNamespace, TracebackType
from typing import Any

from msgspec import UNSET
from msgspec.structs import asdict

import pushlane
from pushlane.wire.errors import error_for
from tests.behaviour.shells import AsyncioShell
from tests.repo import ROOT

DRIVER = ROOT / "sdk_js" / "test" / "driver.mjs"
_MOST_BYTES = 64 * 2**20


class JavaScriptShell(AsyncioShell):
    """`sdk_js`, in Node."""

    encodings: tuple[str, ...] = ("json",)

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        async def with_processes() -> None:
            self._drivers: list[Driver] = []
            try:
                await main()
            finally:
                for driver in self._drivers:
                    await driver.stop()

        super().run(with_processes)

    @asynccontextmanager
    async def connect(self, url: str, **options: Any) -> AsyncIterator[Client]:
        on_state = options.pop("on_state", None)
        settings = options.pop("settings", None)
        if settings is not None:
            options["settings"] = _changes(settings)
        driver = Driver(on_state)
        self._drivers.append(driver)
        await driver.start()
        driver.changed(await driver.call("connect", url, _camel(options)))
        client = Client(driver)
        try:
            yield client
        except BaseException:
            await client.close(timeout_ms=2000)
            raise
        await client.close()


class Driver:
    """A Node process with one client, and the calls that wait for it."""

    def __init__(self, on_state: Callable[[str], object] | None) -> None:
        self.state = "connecting"
        self._on_state = on_state
        self._numbers = count(1)
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._handlers: dict[int, Callable[[Message], Awaitable[object]]] = {}
        self._handling: dict[int, asyncio.Task[None]] = {}
        self.lost: set[int] = set()

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            "node", DRIVER, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            limit=_MOST_BYTES,
        )  # fmt: skip
        self._reader = asyncio.create_task(self._read())

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._reader

    async def call(self, verb: str, *args: Any, late: Callable[[Any], None] | None = None) -> Any:
        """Have something done there; cancelled here, it is aborted there and still waited for.

        `late` gets the result of what was done nevertheless.
        """
        number, future = self._ask(verb, *args)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._say({"cancel": number})
            await asyncio.wait([future])
            if late is not None and not future.exception():
                late(future.result())
            raise

    async def consume(
        self, queue: str, options: Mapping[str, Any], handler: Callable[[Message], Any]
    ) -> None:
        number, future = self._ask("consume", queue, options)
        self._handlers[number] = handler
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            self._say({"cancel": number})
            await asyncio.wait([future])
            raise

    def _ask(self, verb: str, *args: Any) -> tuple[int, asyncio.Future[Any]]:
        number = next(self._numbers)
        line = {"id": number, "do": verb, "args": args}
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        self._say(line)
        return number, future

    def _say(self, said: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(said).encode() + b"\n")

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self._take(json.loads(line))
        for future in self._calls.values():
            if not future.done():
                future.set_exception(RuntimeError("Node is gone"))

    def _take(self, said: dict[str, Any]) -> None:
        if "id" in said:
            future = self._calls.pop(said["id"])
            if "error" in said:
                future.set_exception(_error(said["error"]))
                future.exception()  # whoever was cancelled doesn't look
            else:
                future.set_result(said["value"])
        elif "state" in said:
            self.changed(said["state"])
        elif "lost" in said:
            self.lost.add(said["lost"])
        elif "abort" in said:
            if said["abort"] in self._handling:
                self._handling[said["abort"]].cancel()
        else:
            self._handling[said["handle"]] = asyncio.create_task(self._handle(said))

    async def _handle(self, said: dict[str, Any]) -> None:
        error = None
        try:
            await self._handlers[said["of"]](Message(self, said["message"]))
        except (Exception, asyncio.CancelledError) as fault:
            error = _exception(fault)
        del self._handling[said["handle"]]
        self._say({"handled": said["handle"], "error": error})

    def changed(self, state: str) -> None:
        self.state = state
        if self._on_state is not None:
            self._on_state(state)


class Client:
    """A client there, with the surface of one here."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.queues = Queues(driver)

    @property
    def state(self) -> str:
        return self._driver.state

    async def publish(self, queue: str, body: Any = UNSET, **options: Any) -> str:
        given = None if body is UNSET else {"value": body}
        id: str = await self._driver.call("publish", queue, given, _options(options))
        return id

    async def publish_many(self, queue: str, items: Iterable[Any]) -> list[pushlane.Published]:
        sent = [_item(item) for item in items]
        return [
            pushlane.Published(result["id"], result["duplicate"], _failure(result["error"]))
            for result in await self._driver.call("publishMany", queue, sent)
        ]

    async def subscribe(self, queue: str, **options: Any) -> Subscription:
        return Subscription(
            self._driver, await self._driver.call("subscribe", queue, _camel(options))
        )

    async def consume(self, queue: str, handler: Any, **options: Any) -> None:
        await self._driver.consume(queue, _camel(options), handler)

    async def close(self, *, timeout_ms: int = 30_000) -> None:
        await self._driver.call("close", timeout_ms)


class Subscription:
    def __init__(self, driver: Driver, number: int) -> None:
        self._driver = driver
        self._number = number
        self._late: list[Any] = []

    async def __anext__(self) -> Message:
        if self._late:
            return Message(self._driver, self._late.pop(0))
        # What came just when nobody waited any more is the next one's.
        said = await self._driver.call("next", self._number, late=self._late.append)
        if said is None:
            raise StopAsyncIteration
        return Message(self._driver, said)

    async def close(self) -> None:
        await self._driver.call("closeSubscription", self._number)


class Message:
    """A message there."""

    def __init__(self, driver: Driver, said: dict[str, Any]) -> None:
        self._driver = driver
        self._ref = said["ref"]
        self.id: str = said["id"]
        self.body: Any = said["body"]
        self.data = None if said["data"] is None else base64.b64decode(said["data"])
        self.key: str | None = said["key"]
        self.headers: dict[str, str] = said["headers"]
        self.attempt: int = said["attempt"]
        self.fence: int | None = said["fence"]
        self.published_at: int = said["published_at"]
        self.dead = said["dead"] and SimpleNamespace(**said["dead"])

    @property
    def lost(self) -> bool:
        return self._ref in self._driver.lost

    async def ack(self) -> None:
        await self._driver.call("ack", self._ref)

    async def nack(self, error: object = None, delay_ms: int | None = None) -> None:
        await self._driver.call("nack", self._ref, _exception(error), delay_ms)

    async def reject(self, error: object = None) -> None:
        await self._driver.call("reject", self._ref, _exception(error))

    async def extend(self, lease_ms: int) -> None:
        await self._driver.call("extend", self._ref, lease_ms)

    async def __aenter__(self) -> Message:
        await self._driver.call("begin", self._ref)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._driver.call("end", self._ref, _exception(exc))


class Queues:
    """`client.queues`, with the names of the HTTP API."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        async def call(*names: str, **options: Any) -> Any:
            given = [_camel(options)] if options else []
            return _snake(await self._driver.call("queues", verb, *names, *given))

        return call


def _camel(names: Mapping[str, Any]) -> dict[str, Any]:
    return {
        re.sub(r"_([a-z])", lambda found: found[1].upper(), name): value
        for name, value in names.items()
    }


def _snake(value: Any) -> Any:
    if isinstance(value, list):
        return [_snake(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), name): inner
        if name in ("body", "headers")
        else _snake(inner)
        for name, inner in value.items()
    }


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in options.items() if value is not None}
    if "data" in given:
        given["data"] = base64.b64encode(given["data"]).decode()
    return _camel(given)


def _item(item: Any) -> dict[str, Any]:
    if not isinstance(item, pushlane.Item):
        return {"body": item}
    options = asdict(item)
    body = {"body": options.pop("body")} if item.body is not UNSET else {}
    options.pop("body", None)
    return {"item": {**body, **_options(options)}}


def _changes(settings: pushlane.Settings) -> dict[str, Any]:
    standard = asdict(pushlane.Settings())
    given = asdict(settings)
    return _camel({name: given[name] for name in given if given[name] != standard[name]})


def _exception(error: object) -> object:
    if isinstance(error, BaseException):
        return {"name": type(error).__name__, "message": str(error)}
    return error


def _failure(said: Mapping[str, Any] | None) -> pushlane.PushlaneError | None:
    if said is None:
        return None
    if said["code"] == "connection_lost":
        return pushlane.ConnectionLost(said["message"])
    return error_for(said["code"], said["message"], said["retry_ms"])


def _error(said: Mapping[str, Any]) -> Exception:
    if "code" not in said:
        return RuntimeError(f"{said['name']}: {said['message']}")
    error = _failure(said)
    assert error is not None
    return error
