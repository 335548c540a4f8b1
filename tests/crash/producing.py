"""Producers: in bursts, waiting for each answer, saying it twice with a dedup id, impatient."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import count
from random import Random
from typing import Any

import pushlane
from pushlane_history import event as history
from tests.crash.load import IMPATIENT, JOBS, KEYS, POLLED, SETTINGS, WORK
from tests.crash.recorder import Recorder

BURST = 30
PAUSE_S = 0.08
PADDING = "x" * 120

Connect = Callable[[pushlane.Settings], AbstractAsyncContextManager[pushlane.Client]]


class Producer:
    """A client that publishes, and notes what it asked for and what it was told."""

    def __init__(self, client: pushlane.Client, name: str, recorder: Recorder) -> None:
        self._client = client
        self._name = name
        self._recorder = recorder
        self._orders = count(1)
        self._numbers = count(1)
        _watch_refusals(client, lambda: recorder.disclaim_order(name))

    def uid(self) -> str:
        return f"{self._name}.{next(self._numbers)}"

    async def publish(
        self, queue: str, uid: str, key: str | None = None, dedup: str | None = None,
        delay_ms: int | None = None,
    ) -> None:  # fmt: skip
        recorder, op = self._recorder, self._recorder.op()
        order = 0 if key is None or dedup is not None else next(self._orders)
        recorder.add(
            history.Publish(
                recorder.at, op, queue, uid, key, dedup, producer=self._name, order=order
            )
        )
        body = {"uid": uid, "padding": PADDING}
        item = pushlane.Item(body=body, key=key, dedup=dedup, delay_ms=delay_ms)
        (told,) = await self._client.publish_many(queue, [item])
        if told.id is not None:
            recorder.add(history.Published(recorder.at, op, told.id, told.duplicate))
        else:
            assert told.error is not None
            recorder.add(history.PublishFailed(recorder.at, op, told.error.code))


def _watch_refusals(client: pushlane.Client, refused: Callable[[], None]) -> None:
    """Hear of everything that the SDK repeats because the server asked for that."""
    producer = client._core.producer
    real = producer._retry_at

    def retry_at(*args: Any) -> float | None:
        refused()
        return real(*args)

    setattr(producer, "_retry_at", retry_at)  # noqa: B010  (the SDK has no public word for it)


class Production:
    """All producers of a process, until they are told to stop."""

    def __init__(
        self, connect: Connect, recorder: Recorder, rng: Random, pace: float = 1.0
    ) -> None:
        self._connect = connect
        self._recorder = recorder
        self._rng = rng
        self._pace = pace
        """How many times smaller bursts are, and longer all pauses."""
        self._stopping = asyncio.Event()
        self._repeats: set[asyncio.Task[None]] = set()

    def calm(self) -> None:
        self._stopping.set()

    async def run(self, name: str) -> None:
        steady_s = 0.02 * self._pace  # they are the most: with more time, they take it twice
        async with (
            self._connect(SETTINGS) as bursts, self._connect(SETTINGS) as steady,
            self._connect(SETTINGS) as first, self._connect(SETTINGS) as second,
            self._connect(IMPATIENT) as impatient,
        ):  # fmt: skip
            clients = (bursts, steady, first, second, impatient)
            b, s, f, r, i = (
                Producer(client, f"{name}{letter}", self._recorder)
                for client, letter in zip(clients, "bsfri", strict=True)
            )
            await asyncio.gather(
                self._repeat(PAUSE_S, lambda: self._burst(b)),
                *(self._repeat(steady_s, partial(self._one, s, key)) for key in KEYS[:6]),
                self._repeat(0.08, lambda: self._twice(f, r)),
                self._repeat(0.08, lambda: self._hurry(i)),
                *(self._repeat(0.2, partial(self._one, s, key, POLLED)) for key in KEYS[:4]),
            )
            await asyncio.gather(*self._repeats)

    async def _repeat(self, pause_s: float, act: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping.is_set():
            await act()
            await asyncio.sleep(self._rng.uniform(0, 2 * pause_s * self._pace))

    async def _burst(self, producer: Producer) -> None:
        most = max(round(2 * BURST / self._pace), 1)
        keys = [self._rng.choice([*KEYS, None]) for _ in range(self._rng.randint(1, most))]
        await asyncio.gather(*(producer.publish(WORK, producer.uid(), key) for key in keys))

    async def _one(self, producer: Producer, key: str, queue: str = WORK) -> None:
        await producer.publish(queue, producer.uid(), key)

    async def _twice(self, first: Producer, second: Producer) -> None:
        """The same message from two producers, at once or with a crash in between."""
        uid, key = first.uid(), self._rng.choice([None, self._rng.choice(KEYS)])

        async def again() -> None:
            await asyncio.sleep(self._rng.choice([0, 0.05, 1, 2]))
            await second.publish(WORK, uid, key, dedup=uid)

        task = asyncio.create_task(again())
        await first.publish(WORK, uid, key, dedup=uid)
        self._repeats.add(task)
        task.add_done_callback(self._repeats.discard)

    async def _hurry(self, producer: Producer) -> None:
        delay_ms = self._rng.choice([None, self._rng.randint(1, 1_500)])
        await producer.publish(JOBS, producer.uid(), delay_ms=delay_ms)
