"""Everything at once: a store and a cache that fail at random, restarts, and what must hold then.

The simulator (tests/simulation) does this to the core, far more thoroughly; this is for the shell.
"""

from random import Random
from typing import Any

import pytest
import trio

from pushlane.wire.errors import PushlaneError
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.settings import Settings
from pushlane_leases.interface import LeaseCacheError
from pushlane_leases.memory import LeaseTable
from pushlane_storage.interface import Fenced, StoreRefused, StoreUnknown
from pushlane_storage.memory import MemoryStore
from tests.dispatcher.rig import (
    TENANT,
    Call,
    Consumer,
    Rig,
    ScriptedLeases,
    ScriptedStore,
    blocked,
    memory_tables,
    message,
    rig,
)
from tests.running import runners_of

BOUNDS = Bounds(
    window_messages=20,
    page_messages=10,
    segment_messages=7,
    bucket_messages=25,
    pending_messages=60,
)
SETTINGS = Settings(decide_ms=300, repeat_base_ms=5, close_ms=500, room_ms=200, cache_rest_ms=50)
WRITES = ("append", "settle", "mark_bucket", "drop", "write_seal")
READS = ("segments", "messages", "heads", "settlements", "outline")


class Chaos:
    """What producers and consumers know for certain."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.tables = memory_tables()
        self.leases = LeaseTable()
        self.confirmed: set[bytes] = set()
        self.tried: set[bytes] = set()
        """Acked, perhaps without an answer: then it may be gone or not."""
        self.settled: set[bytes] = set()
        self.next = 0

    async def write(self, call: Call) -> object:
        await trio.sleep(self.random.random() / 100)
        draw = self.random.random()
        if draw < 0.05:
            raise StoreRefused("chaos")
        if draw < 0.1:
            raise StoreUnknown("chaos: lost")
        if draw < 0.102:
            raise Fenced("chaos")
        if draw < 0.104:
            await trio.sleep_forever()
        answer = await call()
        if draw < 0.15:
            raise StoreUnknown("chaos: done")
        return answer

    async def read(self, call: Call) -> object:
        await trio.sleep(self.random.random() / 100)
        if self.random.random() < 0.05:
            raise StoreUnknown("chaos")
        return await call()

    async def cache(self, call: Call) -> object:
        if self.random.random() < 0.2:
            raise LeaseCacheError("chaos")
        return await call()

    def store(self) -> ScriptedStore:
        store = ScriptedStore(self.tables)
        store.script.always |= dict.fromkeys(WRITES, self.write) | dict.fromkeys(READS, self.read)
        return store

    def cached(self) -> ScriptedLeases:
        leases = ScriptedLeases(self.leases)
        leases.script.always |= dict.fromkeys(("claim", "grant", "release"), self.cache)
        return leases

    async def life(self, leases: ScriptedLeases | None, **config: Any) -> None:
        """One process's, until it is killed."""
        while True:
            try:
                async with (
                    rig(self.store(), leases, settings=SETTINGS, bounds=BOUNDS, **config) as r,
                    trio.open_nursery() as nursery,
                ):
                    for _ in range(3):
                        nursery.start_soon(self.produce, r)
                    nursery.start_soon(self.consume, r)
                    nursery.start_soon(self.consume, r)
            except PushlaneError:  # the queue could not even be opened
                await trio.sleep(0.05)

    async def produce(self, r: Rig) -> None:
        """Publishes until it is known to be stored, under a dedup id."""
        while True:
            self.next += 1
            body = b"%d" % self.next
            while body not in self.confirmed:
                try:
                    sent = message(body, dedup=body.decode())
                    done = await r.dispatcher.publish(TENANT, "q", [sent])
                except PushlaneError:
                    await trio.sleep(0.05)
                else:
                    if not done.failed:
                        self.confirmed.add(body)

    async def consume(self, r: Rig) -> None:
        """Acks most of what it gets, and comes back when it is thrown out."""
        while True:
            try:
                queue = await r.dispatcher.open(TENANT, "q")
                consumer = Consumer(runners_of(queue)[0], 5, lease_ms=1_000)
                await self.work(consumer)
            except PushlaneError:
                await trio.sleep(0.05)

    async def work(self, consumer: Consumer) -> None:
        while consumer.end is None:
            await consumer.until(lambda: bool(consumer.runs or consumer.end))
            while consumer.runs:
                run = consumer.runs.pop(0)
                bodies = {message.body for message in run.messages}
                again = bodies & self.settled
                assert not again, f"delivered after a confirmed ack: {again}"
                draw = self.random.random()
                if draw < 0.7:
                    self.tried |= bodies
                    if not (await consumer.ack(run)).lost:
                        self.settled |= bodies
                elif draw < 0.9:
                    await consumer.nack(run, delay_ms=int(draw * 100))


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_confirmed_is_lost_and_nothing_settled_comes_back(seed: int) -> None:
    chaos = Chaos(seed)
    config: dict[str, Any] = {"max_attempts": 1_000, "backoff_max_ms": 1_000}
    for _ in range(4):
        leases = chaos.cached() if seed % 2 else None
        with trio.move_on_after(1 + 3 * chaos.random.random()):
            await chaos.life(leases, **config)
    assert len(chaos.settled) > 20
    async with rig(MemoryStore(chaos.tables)) as r:
        consumer = r.consumer(10_000)
        await trio.sleep(10)
        await blocked()
        left = consumer.bodies
        assert len(left) == len(set(left))
        assert not chaos.settled & set(left)
        assert chaos.confirmed <= chaos.tried | set(left)
