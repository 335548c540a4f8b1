"""Load on a queue whose messages are archived, written down in a ledger."""

from __future__ import annotations

import asyncio
from typing import Any

import pushlane
from tests.spark.retaining.ledger import Ledger

QUEUE = "orders"
PAUSE_S = 0.2
"""Between two rounds: a bucket is drained every second or so, and the job gets some processor."""


async def make(client: pushlane.Client, **config: Any) -> None:
    await client.queues.create(QUEUE, **{"archive": "parquet", "dedup_window_ms": 0, **config})


async def fill(client: pushlane.Client, ledger: Ledger, count: int) -> None:
    for _ in range(count):
        body = len(ledger.bodies)
        ledger.bodies[await client.publish(QUEUE, body)] = str(body)


async def consume(client: pushlane.Client, ledger: Ledger, count: int) -> None:
    """Ack so many; the answer to each is awaited."""
    subscription = await client.subscribe(QUEUE, credit=10)
    for _ in range(count):
        message = await anext(subscription)
        ledger.doubtful.add(message.id)
        await message.ack()
        ledger.doubtful.discard(message.id)
        ledger.ended.add(message.id)
    await subscription.close()


async def bear_load(url: str, ledger: Ledger, stop: asyncio.Event) -> None:
    """Publish and ack until told to stop: about two thirds are acked."""
    async with pushlane.connect(url) as client:
        while not stop.is_set():
            await fill(client, ledger, 6)
            await consume(client, ledger, 4)
            await asyncio.sleep(PAUSE_S)
