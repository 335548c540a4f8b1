"""The asyncio SDK, producing and consuming in one process, through its public API.

    python -m bench.sdk [--messages N] [--store memory|sqlite]

256 publishers that each await their publish, one consumer with a handler and explicit acks, bodies
of about 200 bytes. The server runs on one core and this process on another, where there are two.
The bar is 15,000 messages a second; CPU µs a message say what the SDK itself costs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time

import pushlane
from pushlane import testing

PUBLISHERS = 256
CREDIT = 256
CONCURRENCY = 64
BODY = {"text": "x" * 185}


async def measure(url: str, messages: int) -> tuple[float, float]:
    """Messages a second, and CPU seconds of this process."""
    left = messages
    handled = 0
    done = asyncio.Event()

    async def handle(message: pushlane.Message) -> None:
        nonlocal handled
        assert message.body == BODY
        handled += 1
        if handled == messages:
            done.set()

    async def produce(client: pushlane.Client) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await client.publish("bench", BODY)

    async with pushlane.connect(url) as client:
        consumer = asyncio.create_task(
            client.consume("bench", handle, concurrency=CONCURRENCY, credit=CREDIT)
        )
        await client.publish("warm-up", BODY)
        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*[produce(client) for _ in range(PUBLISHERS)])
        await done.wait()
        taken = time.perf_counter() - wall, time.process_time() - cpu
        await client.close()
        await consumer
    return messages / taken[0], taken[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--store", default="sqlite")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    with testing.server(store=options.store) as url:
        os.sched_setaffinity(0, cores[-1:])
        for _ in range(3):
            rate, cpu = asyncio.run(measure(url, options.messages))
            each = cpu / options.messages * 1e6
            print(f"{options.store}: {rate:,.0f} messages/s, {each:.1f} µs CPU each in the SDK")


if __name__ == "__main__":
    main()
