"""Many clients that do as they like: nothing is lost, nothing settled twice, nothing left over."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import trio

from pushlane_leases.memory import MemoryLeases
from tests.gateway.http.client import Exchange
from tests.gateway.http.rig import TENANT, Rig, blocked, rig
from tests.running import runners_of

MESSAGES = 120
CLIENTS = 8


class Storm:
    def __init__(self, r: Rig, seed: int) -> None:
        self.r = r
        self.random = random.Random(seed)
        self.acked: Counter[str] = Counter()
        """Confirmed acks by message id."""
        self.unknown: set[str] = set()
        """Messages with an ack whose outcome nobody knows."""
        self.published: list[str] = []

    async def ask(self, path: str, **body: Any) -> Any:
        """The answer; None when a shard was just closing."""
        answer = await self.r.post(f"/v1/queues/q/{path}", body)
        if answer.status == 503:
            return None
        assert answer.status == 200, answer
        return answer.json

    async def produce(self) -> None:
        while len(self.published) < MESSAGES:
            keys = {"key": f"k{self.random.randrange(20)}"} if self.random.random() < 0.5 else {}
            bodies = range(self.random.randint(1, 4))
            found = await self.ask("messages", messages=[{"body": n, **keys} for n in bodies])
            self.published += [] if found is None else filter(None, found["ids"])
            await trio.sleep(self.random.random())

    async def consume(self) -> None:
        for _ in range(40):
            exchange = self.r.exchange(
                "POST",
                "/v1/queues/q/receive",
                {
                    "max": self.random.randint(1, 5),
                    "wait_ms": self.random.choice([0, 500, 5_000]),
                    "lease_ms": self.random.choice([1_000, 5_000]),
                },
            )
            await self.disturbed(exchange)
            if exchange.answered and not exchange.deaf and exchange.answer.status == 200:
                await self.settle(exchange)

    async def disturbed(self, exchange: Exchange) -> None:
        what = self.random.choice(["calm", "calm", "calm", "leave", "deaf", "cut"])
        exchange.deaf = what == "deaf"
        with trio.move_on_after(1 if what == "cut" else 100) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(exchange.run)
                if what == "leave":
                    await trio.sleep(self.random.random())
                    exchange.leave()
        exchange.deaf = exchange.deaf or scope.cancelled_caught

    async def settle(self, exchange: Exchange) -> None:
        for message in exchange.answer.json["messages"]:
            receipt = message["receipt"]
            match self.random.choice(["ack", "ack", "ack", "twice", "nack", "extend", "forget"]):
                case "ack":
                    await self.ack(message["id"], receipt)
                case "twice":
                    await self.ack(message["id"], receipt)
                    assert await self.ask("ack", receipts=[receipt]) != {}
                case "nack":
                    await self.ask("nack", receipts=[receipt], delay_ms=0)
                case "extend":
                    await self.ask("extend", receipts=[receipt], lease_ms=2_000)

    async def ack(self, id: str, receipt: str) -> None:
        if self.random.random() < 0.3:
            await trio.sleep(self.random.random() * 2)
        answer = await self.ask("ack", receipts=[receipt])
        if answer is None:
            self.unknown.add(id)
        elif answer == {}:
            self.acked[id] += 1

    async def mischief(self) -> None:
        """Shards that close in between."""
        for _ in range(3):
            await trio.sleep(5 + 10 * self.random.random())
            queue = await self.r.dispatcher.open(TENANT, "q")
            await self.random.choice(runners_of(queue)).close()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.produce)
            nursery.start_soon(self.mischief)
            for _ in range(CLIENTS):
                nursery.start_soon(self.consume)
        await trio.sleep(60)
        while (await self.r.stats("q"))["stored"]:
            for message in await self.r.receive("q", 100, 10_000):
                await self.ack(message["id"], message["receipt"])


@pytest.mark.parametrize("seed", range(6))
async def test_a_storm(seed: int) -> None:
    async with rig(leases=MemoryLeases() if seed % 2 else None) as r:
        await r.queue(shards=1 + seed % 3, max_attempts=1_000, max_deliveries=10_000)
        storm = Storm(r, seed)
        await storm.run()
        assert set(storm.acked) <= set(storm.published)
        assert set(storm.published) <= set(storm.acked) | storm.unknown
        assert max(storm.acked.values()) == 1
        await trio.sleep(60)
        await blocked()
        assert await r.subscriptions() == 0
        assert len(r.dispatcher._context.settled) <= MESSAGES * 2
