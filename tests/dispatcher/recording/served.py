"""A real server that records its queues, under a load with something of everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pushlane
from pushlane_history.event import AnyEvent, read
from tests.crash.node import Node

QUEUE = "orders"
OPTIONS = {"max_attempts": 2, "backoff_base_ms": 1, "backoff_max_ms": 20, "lease_ms": 2_000}
MESSAGES = 200


def make_node(folder: Path, plant: str = "", **settings: int) -> Node:
    configuration = folder / "pushlane.toml"
    lines = [f"{name} = {value}" for name, value in settings.items()]
    lines += ['queues = ["orders", "other*"]', f'folder = "{folder / "history"}"']
    configuration.write_text("\n".join(["[history]", *lines, ""]))
    backing = ["--data", str(folder / "data"), "--config", str(configuration)]
    planted = "tests.dispatcher.recording.planted"
    return Node(folder, plant, backing=backing, planted=planted)


def run_load(url: str, *, until: Callable[[int], bool] = lambda _: False) -> None:
    """All messages handled, or `until` says so when it is told how many were acked."""
    asyncio.run(_load(url, until))


async def _load(url: str, until: Callable[[int], bool]) -> None:
    async with pushlane.connect(url) as client:
        with suppress(pushlane.PushlaneError):  # it is there since the first load
            await client.queues.create(QUEUE, **OPTIONS)
        done = asyncio.Event()
        tasks = [
            asyncio.create_task(_consume(client, QUEUE, until, done)),
            asyncio.create_task(_consume(client, f"{QUEUE}.dead", until, done)),
        ]
        await _publish(client)
        await asyncio.wait_for(done.wait(), 60)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _publish(client: pushlane.Client) -> None:
    for n in range(MESSAGES // 10):
        items = [_item(10 * n + k) for k in range(10)]
        await client.publish_many(QUEUE, items)
    for _ in range(2):  # the second is a repeat
        await client.publish(QUEUE, "once", dedup="once")


def _item(n: int) -> pushlane.Item:
    body = {"n": n}
    match n % 5:
        case 0:
            return pushlane.Item(body=body, key=f"k{n % 3}")
        case 1:  # it has expired when its time comes
            return pushlane.Item(body=body, ttl_ms=20, delay_ms=40)
        case 2:
            return pushlane.Item(body=body, priority=n % 10)
    return pushlane.Item(body=body)


def _fails(body: object) -> bool:
    """Whatever is tried."""
    return isinstance(body, dict) and body["n"] % 50 == 3


async def _consume(
    client: pushlane.Client, queue: str, until: Callable[[int], bool], done: asyncio.Event
) -> None:
    subscription = await client.subscribe(queue, credit=16)
    count = 0
    while not done.is_set():
        try:
            message = await asyncio.wait_for(anext(subscription), 1.0)
        except TimeoutError:
            if queue == QUEUE and not (await client.queues.stats(QUEUE))["stored"]:
                done.set()
            continue
        count += 1
        if queue == QUEUE and (count % 7 == 0 or _fails(message.body)):
            await message.nack("not now")
        elif queue == QUEUE and count % 11 == 0:
            await message.reject("never")
        else:
            await message.ack()
        if until(count):
            done.set()


def recorded(folder: Path) -> list[AnyEvent]:
    found: list[AnyEvent] = []
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as file:
            found += read(file)
    return found
