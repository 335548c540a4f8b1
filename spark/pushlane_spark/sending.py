"""Messages on their way from a job to a server: in batches, at a rate, and what became of each.

A batch is one frame, and the next goes when it is answered: so messages of one key are stored in
their order, also when the server asks for some of them again. Rows may come slowly; they are drawn
in a thread, so that the connection stays alive meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import msgspec

from pushlane import Client, Item, Published, PushlaneError, Settings, connect
from pushlane.asyncio import Token
from pushlane.core.url import DEFAULT_URL, VARIABLE
from pushlane_spark.errors import PublishFailed, WindowTooShort

BATCH = 500
MOST_BATCH = 1_000
"""A frame has no more messages, unless a server is set to take them."""
BATCH_BYTES = 2 << 20
"""Half of what a frame may have: names and escapes come on top."""
PATIENCE_MS = 600_000
"""How long a server may be away, or throttle, before a job gives up: a person is not waiting."""
LOOK_MS = 10_000
"""How long a server may be away before anything has begun."""
LEAST_WINDOW_MS = 60_000
"""A shorter dedup window is refused: it may take so long until something is sent again."""
BEATS = 10
"""Batches in a second, where there is a rate."""
EXAMPLES = 10
"""Refused messages that a report names; the others are counted."""
REFUSED = frozenset({"bad_request", "too_large"})
"""What is wrong with a message, however often it is sent. Anything else ends the job."""

T = TypeVar("T")
Tell = Callable[[int], object]
"""Hears of so many more messages that are done."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where messages go, and how fast."""

    queue: str
    url: str
    token: Token = None
    batch: int = BATCH
    rate: float | None = None


class Outgoing(NamedTuple):
    """A message, or why it is none; `name` is for reports."""

    name: str
    item: Item | PushlaneError


class Refusal(msgspec.Struct, frozen=True):
    name: str
    code: str
    message: str


class Tally(msgspec.Struct):
    """What became of messages."""

    stored: int = 0
    duplicates: int = 0
    refused: dict[str, int] = {}
    examples: list[Refusal] = []

    def add(self, other: Tally) -> None:
        self.stored += other.stored
        self.duplicates += other.duplicates
        for code, count in other.refused.items():
            self.refused[code] = self.refused.get(code, 0) + count
        self.examples = [*self.examples, *other.examples][:EXAMPLES]

    def refuse(self, name: str, error: PushlaneError) -> None:
        self.add(Tally(refused={error.code: 1}, examples=[Refusal(name, error.code, str(error))]))


def target(
    queue: str, url: str | None, token: Token, batch: int = BATCH, rate: float | None = None
) -> Target:
    """The server that is named here or in the driver's environment: executors have another one."""
    if not 1 <= batch <= MOST_BATCH:
        raise ValueError(f"batch is {batch}: 1 to {MOST_BATCH}")
    if rate is not None and not rate > 0:
        raise ValueError(f"rate is {rate}: more than 0 messages a second")
    url = url or os.environ.get(VARIABLE) or DEFAULT_URL
    token = token if token is not None else os.environ.get("PUSHLANE_TOKEN") or None
    return Target(queue=queue, url=url, token=token, batch=batch, rate=rate)


def send(target: Target, messages: Iterator[Outgoing], tell: Tell | None = None) -> Tally:
    """Store messages in their order; `PublishFailed` at the first that can't be stored now."""
    return run(_send(target, messages, tell))


def check_window(target: Target, least_ms: int) -> int | None:
    """`dedup_window_ms`; `WindowTooShort` unless ids are remembered for so long."""
    found = dedup_window_ms(target)
    if found is not None and found < least_ms:
        raise WindowTooShort(
            f"queue {target.queue} remembers dedup ids for {found} ms, and at least {least_ms} are"
            " needed: raise its dedup_window_ms"
        )
    return found


def dedup_window_ms(target: Target) -> int | None:
    """How long the queue remembers dedup ids, or None: it is not there yet, or not for us to see.
    `PublishFailed` where no server lets us in."""

    async def look() -> int | None:
        async with _connect(target, Settings(connect_ms=LOOK_MS)) as client:
            try:
                return int((await client.queues.get(target.queue))["dedup_window_ms"])
            except PushlaneError as error:
                if error.code not in ("not_found", "forbidden"):
                    raise
                return None

    return run(look())


def run(work: Coroutine[Any, Any, T]) -> T:
    """In a loop of its own, also where one runs already: notebooks have one."""
    try:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work)
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, work).result()
    except PushlaneError as error:
        raise PublishFailed(error.code, str(error)) from error


def _connect(target: Target, settings: Settings) -> connect:
    return connect(target.url, token=target.token, name="pushlane spark", settings=settings)


async def _send(target: Target, messages: Iterator[Outgoing], tell: Tell | None) -> Tally:
    batches = _batches(messages, _at_once(target))
    batch = await asyncio.to_thread(next, batches, None)
    tally = Tally()
    if batch is None:
        return tally
    settings = Settings(connect_ms=LOOK_MS, publish_ms=PATIENCE_MS, retry_ms=PATIENCE_MS)
    async with _connect(target, settings) as client:
        pace = _Pace(target.rate)
        while batch is not None:
            await pace.wait(len(batch))
            tally.add(await _publish(client, target.queue, batch))
            if tell is not None:
                tell(len(batch))
            batch = await asyncio.to_thread(next, batches, None)
    return tally


def _at_once(target: Target) -> int:
    if target.rate is None:
        return target.batch
    return max(1, min(target.batch, int(target.rate / BEATS)))


def _batches(messages: Iterator[Outgoing], most: int) -> Iterator[list[Outgoing]]:
    batch: list[Outgoing] = []
    size = 0
    for message in messages:
        cost = _size(message)
        if batch and size + cost > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += cost
        if len(batch) >= most:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _size(message: Outgoing) -> int:
    item = message.item
    if isinstance(item, PushlaneError):
        return 0
    content = item.data if item.data is not None else bytes(item.body)
    headers = sum(len(name) + len(value) for name, value in (item.headers or {}).items())
    return len(content) * 4 // 3 + headers


async def _publish(client: Client, queue: str, batch: list[Outgoing]) -> Tally:
    tally = Tally()
    good: list[tuple[str, Item]] = []
    for name, item in batch:
        if isinstance(item, PushlaneError):
            tally.refuse(name, item)
        else:
            good.append((name, item))
    results = await client.publish_many(queue, [item for _, item in good])
    for (name, _), result in zip(good, results, strict=True):
        _note(tally, name, result)
    return tally


def _note(tally: Tally, name: str, result: Published) -> None:
    if result.error is None:
        tally.stored += not result.duplicate
        tally.duplicates += result.duplicate
    elif result.error.code in REFUSED:
        tally.refuse(name, result.error)
    else:
        raise result.error


class _Pace:
    """So many a second at most; time that was lost is not made up for."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._at = 0.0

    async def wait(self, count: int) -> None:
        if self._rate is None:
            return
        clock = asyncio.get_running_loop().time
        if (left := self._at - clock()) > 0:
            await asyncio.sleep(left)
        self._at = max(self._at, clock()) + count / self._rate
