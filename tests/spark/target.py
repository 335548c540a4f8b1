"""A server that jobs publish to, and what it has then."""

from __future__ import annotations

import asyncio
from typing import Any

import pushlane


def messages_in(url: str, queue: str) -> list[dict[str, Any]]:
    """All that wait in a queue, in their order."""

    async def look() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async with pushlane.connect(url) as client:
            after = None
            while True:
                page = await client.queues.peek(queue, limit=100, after=after)
                found += page["messages"]
                after = page.get("next")
                if after is None:
                    return found

    return asyncio.run(look())


def create(url: str, queue: str, **config: Any) -> None:
    async def make() -> None:
        async with pushlane.connect(url) as client:
            await client.queues.create(queue, **config)

    asyncio.run(make())


def update(url: str, queue: str, **config: Any) -> None:
    async def change() -> None:
        async with pushlane.connect(url) as client:
            await client.queues.update(queue, **config)

    asyncio.run(change())
