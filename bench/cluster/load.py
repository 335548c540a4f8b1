"""Load for a failover: each queue has a producer and a consumer; each message a trace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

import pushlane

PAUSE_S = 0.1
CREDIT = 256
PATIENCE_S = 60.0


class Trace(msgspec.Struct):
    """One message: monotonic seconds, 0 for what has not happened."""

    sent: float
    confirmed: float = 0.0
    delivered: float = 0.0
    error: str = ""

    @property
    def done(self) -> bool:
        return bool(self.confirmed and self.delivered)


class Load:
    """Publishes go out every `PAUSE_S` to each queue, whatever became of those before."""

    def __init__(self, urls: dict[str, tuple[str, str]]) -> None:
        """By queue: where its producer and where its consumer is connected."""
        self._urls = urls
        self.traces: dict[str, list[Trace]] = {queue: [] for queue in urls}
        self.errors: list[str] = []
        """What consumers were told; what producers were told stands in the traces."""
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All producers and consumers, until the block ends and everything was delivered."""
        async with asyncio.TaskGroup() as group:
            consumers = [group.create_task(self._consume(queue)) for queue in self._urls]
            producers = [group.create_task(self._produce(queue)) for queue in self._urls]
            try:
                await self.back_since(time.monotonic())
                yield
            finally:
                self._stopping = True
                await asyncio.gather(*producers, return_exceptions=True)
                await self._drained()
                for consumer in consumers:
                    consumer.cancel()

    async def _produce(self, queue: str) -> None:
        traces = self.traces[queue]
        async with pushlane.connect(self._urls[queue][0]) as client:
            while not self._stopping:
                trace = Trace(time.monotonic())
                traces.append(trace)
                task = asyncio.create_task(self._publish(client, queue, len(traces) - 1, trace))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                await asyncio.sleep(PAUSE_S)
            await asyncio.gather(*self._tasks)

    async def _publish(
        self, client: pushlane.Client, queue: str, number: int, trace: Trace
    ) -> None:
        try:
            await client.publish(queue, {"n": number})
            trace.confirmed = time.monotonic()
        except pushlane.PushlaneError as error:
            trace.error = f"{error.code}: {error}"

    async def _consume(self, queue: str) -> None:
        async with pushlane.connect(self._urls[queue][1]) as client:
            subscription = await client.subscribe(queue, credit=CREDIT)
            async for message in subscription:
                trace = self.traces[queue][message.body["n"]]
                trace.delivered = trace.delivered or time.monotonic()
                try:
                    await message.ack()
                except pushlane.PushlaneError as error:
                    self.errors.append(f"{error.code}: {error}")

    async def _drained(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while any(t.confirmed and not t.delivered for ts in self.traces.values() for t in ts):
            assert time.monotonic() < deadline, "not everything was delivered"
            await asyncio.sleep(0.05)

    async def back_since(self, since: float) -> float:
        """When every queue has confirmed and delivered a message that was sent since then."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = [self._first(traces, since) for traces in self.traces.values()]
            if all(found):
                return max(found)
            assert time.monotonic() < deadline, "not every queue came back"
            await asyncio.sleep(0.02)

    @staticmethod
    def _first(traces: list[Trace], since: float) -> float:
        for trace in traces:
            if trace.sent >= since and trace.done:
                return max(trace.confirmed, trace.delivered)
        return 0.0
