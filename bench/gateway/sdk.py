"""The asyncio SDK's own speed: a producer and a consumer in one process, through the public API.

    python -m bench.gateway.sdk URL QUEUE WARM_S RUN_S

Many tasks publish one message at a time, as a busy web service does, and handlers ack what they
get. Prints its result as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import pushlane

IN_FLIGHT = 256
DRAIN_S = 30
BODY = "x" * 198
"""200 bytes as JSON."""


class Counter:
    """How many went the whole way."""

    def __init__(self) -> None:
        self.published = 0
        self.handled = 0
        self.going = True
        self.total: int | None = None
        """How many there are in all, once nobody publishes any more."""
        self.all_handled = asyncio.Event()

    async def handle(self, message: pushlane.Message) -> None:
        assert message.body == BODY
        self.handled += 1
        if self.handled == self.total:
            self.all_handled.set()

    async def publish(self, client: pushlane.Client, queue: str) -> None:
        while self.going:
            await client.publish(queue, BODY)
            self.published += 1

    async def finish(self, consuming: asyncio.Task[None]) -> None:
        """Wait for the last message; raise when it doesn't come, or the consumer failed."""
        self.total = self.published
        if self.handled < self.total:
            last = asyncio.create_task(self.all_handled.wait())
            ends: list[asyncio.Task[Any]] = [last, consuming]
            await asyncio.wait(ends, timeout=DRAIN_S, return_when=asyncio.FIRST_COMPLETED)
            last.cancel()
        if consuming.done():
            consuming.result()
        assert self.handled == self.total, f"{self.handled} of {self.total} were handled"


async def measure(url: str, queue: str, warm_s: float, run_s: float) -> dict[str, float]:
    counter = Counter()
    async with pushlane.connect(url) as producer, pushlane.connect(url) as consumer:
        consuming = asyncio.create_task(
            consumer.consume(queue, counter.handle, concurrency=IN_FLIGHT, credit=IN_FLIGHT)
        )
        publishing = [
            asyncio.create_task(counter.publish(producer, queue)) for _ in range(IN_FLIGHT)
        ]
        await asyncio.sleep(warm_s)
        began, cpu, before = time.perf_counter(), time.process_time(), counter.handled
        await asyncio.sleep(run_s)
        counter.going = False
        await asyncio.gather(*publishing)
        await counter.finish(consuming)
        took, messages = time.perf_counter() - began, counter.handled - before
        cpu = time.process_time() - cpu
        consuming.cancel()
        await asyncio.wait([consuming])
    return {"rate": messages / took, "messages": messages, "client_cpu_s": cpu}


if __name__ == "__main__":
    url, queue, *seconds = sys.argv[1:]
    warm_s, run_s = map(float, seconds)
    print(json.dumps(asyncio.run(measure(url, queue, warm_s, run_s))))
