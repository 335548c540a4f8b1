"""From a server on SQLite to one on Cassandra and back: clients notice nothing but the pause."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pushlane
from pushlane import testing
from tests.gateway.process import environment

COMMAND = [sys.executable, "-c", "from pushlane.cli import main; main()", "store", "copy"]
HOUR = 3_600_000
COUNT = 40
NAMES = [f"n{number}" for number in range(COUNT)]
KEYED = ["key 0", "key 1", "key 2"]


def run_copy(source: str, target: str) -> str:
    done = subprocess.run(
        [*COMMAND, source, target],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Run:
    """What clients did and saw, over all servers."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self.fences: dict[str, int] = {}
        self.left = set(NAMES) | {"high", *KEYED}
        """What must still come."""

    async def receive(self, subscription: pushlane.Subscription, count: int) -> list[Any]:
        """This many messages: each was left, has the id that it always had, and a new fence."""
        found: list[Any] = []
        async with asyncio.timeout(60):
            while len(found) < count:
                message = await anext(subscription)
                assert message.body in self.left
                assert message.id == self.ids[message.body]
                assert message.fence is not None
                assert message.fence > self.fences.get(message.body, 0)
                self.fences[message.body] = message.fence
                found.append(message)
        return found

    async def ack(self, message: Any) -> None:
        await message.ack()
        self.left.remove(message.body)

    async def publish(self, client: pushlane.Client) -> list[bool]:
        """Everything, with its dedup id: what was stored before is known."""
        items = [pushlane.Item(body=name, dedup=f"id of {name}") for name in NAMES]
        results = await client.publish_many("jobs", items)
        for name, result in zip(NAMES, results, strict=True):
            assert self.ids.setdefault(name, result.id or "") == result.id
        return [result.duplicate for result in results]

    # One server after the other

    async def first(self, url: str) -> None:
        async with pushlane.connect(url) as client:
            await client.queues.create("jobs", max_attempts=7)
            assert not any(await self.publish(client))
            self.ids["later"] = await client.publish("jobs", "later", delay_ms=HOUR)
            self.ids["high"] = await client.publish("jobs", "high", priority=9)
            for name in KEYED:
                self.ids[name] = await client.publish("jobs", name, key="k")
            subscription = await client.subscribe("jobs")
            by_name = {one.body: one for one in await self.receive(subscription, COUNT + 2)}
            for name in [*NAMES[::2], "key 0"]:
                await self.ack(by_name[name])
            await by_name["n1"].nack("not yet", delay_ms=0)
            await by_name["n3"].reject("never")
            self.left.remove("n3")
            [one, other] = await self.receive(subscription, 2)
            assert {one.body, other.body} == {"n1", "key 1"}

    async def second(self, url: str) -> None:
        async with pushlane.connect(url) as client:
            assert all(await self.publish(client))
            subscription = await client.subscribe("jobs")
            found = await self.receive(subscription, len(self.left) - 1)
            by_name = {one.body: one for one in found}
            assert by_name.keys() == self.left - {"key 2"}
            assert by_name["n1"].attempt >= 2
            await self.ack(by_name["key 1"])
            await self.receive(subscription, 1)  # and only now the next one of this key
            for name in sorted(self.left - {"key 2"})[::2]:
                await self.ack(by_name[name])
            await self.check_rest(client, len(self.left))

    async def third(self, url: str) -> None:
        async with pushlane.connect(url) as client:
            assert all(await self.publish(client))
            subscription = await client.subscribe("jobs")
            for message in await self.receive(subscription, len(self.left)):
                await self.ack(message)
            await self.check_rest(client, 0)

    async def check_rest(self, client: pushlane.Client, leased: int) -> None:
        stats = await client.queues.stats("jobs")
        assert (stats["ready"], stats["leased"], stats["delayed"]) == (0, leased, 1)
        state = (await client.queues.explain("jobs", self.ids["later"]))["state"]
        assert state == "delayed"
        for _ in range(600):  # it may still be on its way
            if (await client.queues.stats("jobs.dead"))["ready"]:
                break
            await asyncio.sleep(0.05)
        [letter] = (await client.queues.peek("jobs.dead"))["messages"]
        assert letter["body"] == "n3"
        assert letter["dead"]["cause"] == "rejected"


def test_there_and_back(folder: Path, keyspace: Callable[[], str]) -> None:
    first, second, third = f"sqlite:{folder / 'a'}", keyspace(), f"sqlite:{folder / 'b'}"
    run = Run()
    with testing.server(store=first) as url:
        asyncio.run(run.first(url))
    assert run_copy(first, second).startswith("copied sqlite:")
    with testing.server(store=second) as url:
        asyncio.run(run.second(url))
    assert run.left
    assert run_copy(second, third).startswith("copied cassandra:")
    with testing.server(store=third) as url:
        asyncio.run(run.third(url))
    assert not run.left
