"""A store with something of everything in it, written by real servers and what they serve."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pushlane
from pushlane.testing import server

QUEUE = "orders"
START_SECONDS = 120.0
"""Cassandra makes its tables first."""
PATIENCE = 1_000


class Sent(NamedTuple):
    """What a client knows of a message."""

    id: str
    state: str
    cause: str | None = None
    attempts: int = 0
    error: str | None = None
    body: str | None = None
    data: bytes | None = None
    key: str | None = None
    lane: int = 4
    delayed: bool = False


async def write_traffic(url: str) -> dict[str, Sent]:
    """Two servers, one after the other: so there are two epochs, and a seal between them."""
    sent: dict[str, Sent] = {}
    async with server(store=url, start_s=START_SECONDS) as at, pushlane.connect(at) as client:
        await client.queues.create(QUEUE, max_attempts=2)
        await client.queues.create("other")
        await client.publish("other", "not ours")
        for n in range(10):
            key = f"k{n % 3}" if n % 2 else None
            id = await client.publish(QUEUE, {"n": n}, key=key, headers={"n": str(n)})
            sent[id] = Sent(id, "open", body=f'{{"n":{n}}}', key=key)
        await _consume(client, sent, 5)
    async with server(store=url, start_s=START_SECONDS) as at, pushlane.connect(at) as client:
        id = await client.publish(QUEUE, data=b"\x00\xff")
        sent[id] = Sent(id, "open", data=b"\x00\xff")
        id = await client.publish(QUEUE, 7, priority=7)
        sent[id] = Sent(id, "open", body="7", lane=7)
        id = await client.publish(QUEUE, 8, delay_ms=3_600_000)
        sent[id] = Sent(id, "open", body="8", delayed=True)
        await _consume(client, sent, 1)
    return sent


async def _consume(client: pushlane.Client, sent: dict[str, Sent], count: int) -> None:
    """Ack all but the fourth and the fifth."""
    subscription = await client.subscribe(QUEUE, credit=1)
    for n in range(count):
        message = await anext(subscription)
        known = sent[message.id]
        if n == 3:
            await message.reject("bad")
            await until_dead(client, message.id)
            sent[message.id] = known._replace(state="dead", cause="rejected")
        elif n == 4:
            await message.nack("later", delay_ms=3_600_000)
            sent[message.id] = known._replace(attempts=1, error="later", delayed=True)
        else:
            await message.ack()
            sent[message.id] = known._replace(state="acked")
    await subscription.close()


async def until_dead(client: pushlane.Client, id: str) -> None:
    """A rejected message is on its way for a moment."""
    for _ in range(PATIENCE):
        if (await client.queues.explain(QUEUE, id))["state"] == "dead":
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it never arrived among the dead letters")
