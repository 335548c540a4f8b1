"""What a crowd of consumers costs: each with a connection of its own, idle, and with a message now
and then, so that there is little to gather."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import AsyncExitStack, suppress
from operator import sub
from typing import NamedTuple

import pushlane
from bench.cluster.nodes import Node
from bench.cluster.saying import tell

SHARDS = (1, 12)
"""A queue of twelve has some on every node."""
AT_ONCE = 50
CREDIT = 16
IDLE_S = BUSY_S = 20.0
PATIENT = pushlane.Settings(connect_ms=120_000)
EACH_S = 4
"""A consumer gets a message every so many seconds."""
FRAME = 32


class Used(NamedTuple):
    """By all nodes."""

    cpu_s: float
    requests: float
    """To Cassandra."""


def crowd(nodes: list[Node], consumers: int) -> None:
    """Consumer by consumer to the nodes in turn; each has one subscription."""
    for shards in SHARDS:
        queue = f"crowd-{shards}"
        nodes[0].put(f"/v1/queues/{queue}", b'{"shards": %d}' % shards)
        tell(f"{consumers} consumers of a queue", f"{shards} shards")
        asyncio.run(_measure(nodes, consumers, queue))


async def _measure(nodes: list[Node], consumers: int, queue: str) -> None:
    async with AsyncExitStack() as clients, asyncio.TaskGroup() as group:
        takers = [group.create_task(_take(await _connect(clients, nodes[0]), queue))]
        await asyncio.sleep(2)  # the shards are open
        base, before = await _used(nodes, asyncio.sleep(IDLE_S)), _memory(nodes)
        for turn in range(consumers // AT_ONCE):
            node = nodes[turn % len(nodes)]
            many = await asyncio.gather(*(_connect(clients, node) for _ in range(AT_ONCE)))
            takers += [group.create_task(_take(client, queue)) for client in many]
        await asyncio.sleep(5)
        tell("  memory of all nodes, KiB each", f"{(_memory(nodes) - before) / consumers:.1f}")
        idle = await _used(nodes, asyncio.sleep(IDLE_S))
        cpu = 1e6 * (idle.cpu_s - base.cpu_s) / IDLE_S / consumers
        tell("  idle: CPU of all nodes, µs a second each", f"{cpu:.1f}")
        producer, pace = await _connect(clients, nodes[0]), consumers // EACH_S
        busy = await _used(nodes, _publish(producer, queue, pace))
        count = round(BUSY_S * pace)
        cpu, requests = 1e6 * (busy.cpu_s - idle.cpu_s), busy.requests - idle.requests
        tell(f"  a message every {EACH_S} s each: CPU, µs a message", f"{cpu / count:.0f}")
        tell("  … requests to Cassandra for each", f"{requests / count:.2f}")
        for taker in takers:
            taker.cancel()


async def _connect(clients: AsyncExitStack, node: Node) -> pushlane.Client:
    connecting = pushlane.connect(node.url, settings=PATIENT)
    return await clients.enter_async_context(connecting)


async def _take(client: pushlane.Client, queue: str) -> None:
    async for message in await client.subscribe(queue, credit=CREDIT):
        with suppress(pushlane.LeaseLost):  # it was too slow, and somebody else had nothing to do
            await message.ack()


async def _publish(client: pushlane.Client, queue: str, pace: int) -> None:
    """So many messages a second, in frames of `FRAME`."""
    began = time.monotonic()
    for sent in range(0, round(BUSY_S * pace), FRAME):
        await asyncio.sleep(max(0.0, began + sent / pace - time.monotonic()))
        items = [pushlane.Item(body={"text": "x" * 188}) for _ in range(FRAME)]
        for told in await client.publish_many(queue, items):
            assert told.error is None, told.error


async def _used(nodes: list[Node], meanwhile: Awaitable[None]) -> Used:
    before = _now(nodes)
    await meanwhile
    return Used(*map(sub, _now(nodes), before))


def _now(nodes: list[Node]) -> Used:
    cpu_s, requests = (
        sum(getattr(node, each)() for node in nodes) for each in ("cpu_s", "requests")
    )
    return Used(cpu_s, requests)


def _memory(nodes: list[Node]) -> int:
    return sum(node.memory_kib() for node in nodes)
