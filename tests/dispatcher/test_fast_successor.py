"""A new owner whose clock is wrong destroys nothing that its predecessor stored."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from pushlane_dispatcher.browsing.dropping import BucketName
from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_dispatcher.settings import Settings
from pushlane_storage.interface import StoreUnknown
from pushlane_storage.memory import MemoryStore, MemoryTables
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.rig import START, TENANT, Consumer, memory_tables, message
from tests.running import runners_of, stats_now

MINUTE, HOUR = 60_000, 3_600_000


class TimedStore(MemoryStore):
    """One with a clock of its own, which is right."""

    def __init__(self, tables: MemoryTables) -> None:
        super().__init__(tables)
        self.asked = 0
        self.away = False

    async def time(self) -> int:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        if self.away:
            raise StoreUnknown("planted")
        return START + int(trio.current_time() * 1000)


@asynccontextmanager
async def serve(store: MemoryStore, skew: int = 0) -> AsyncIterator[Dispatcher]:
    clock = Clock(lambda: (START + skew) / 1000 + trio.current_time())
    settings = Settings(idle_ms=10 * HOUR)
    async with open_dispatcher(store, clock=clock, settings=settings) as dispatcher:
        yield dispatcher


async def leave_a_backlog(
    tables: MemoryTables, skew: int = 0, store: MemoryStore | None = None
) -> None:
    """A message with an id, one that lives for half an hour, and a drained bucket."""
    async with serve(store or TimedStore(tables), skew) as dispatcher:
        await dispatcher.create(TENANT, "q", QueueConfig(dedup_window_ms=5 * MINUTE))
        queue = await dispatcher.open(TENANT, "q")
        wall = dispatcher.clock.wall()
        await queue.publish([message(b"old", dedup="done", published_at=wall)])
        consumer = Consumer(runners_of(queue)[0], credit=1)
        await consumer.got(1)
        await consumer.ack()
        consumer.unsubscribe()
        await queue.publish([message(b"id", dedup="d", published_at=wall)])
        ttl = message(b"ttl", published_at=wall, expires_at=wall + HOUR // 2)
        await queue.publish([ttl])


@pytest.mark.parametrize("skew", [10 * MINUTE, HOUR, 40 * 24 * HOUR, -HOUR])
async def test_a_clock_that_the_store_contradicts_ends_nothing(
    skew: int, caplog: pytest.LogCaptureFixture
) -> None:
    tables = memory_tables()
    await leave_a_backlog(tables)
    async with serve(TimedStore(tables), skew) as dispatcher:
        queue = await dispatcher.open(TENANT, "q")
        again = await queue.publish([message(dedup="d"), message(dedup="done")])
        assert again.duplicates == [0, 1]
        await trio.sleep(30)
        assert stats_now(queue).ready == 2
        numbers = dispatcher.clock_numbers()
        assert (numbers["doubted"], numbers["suspect_shards"]) == (1, 1)
        assert (numbers["store_ahead_ms"], numbers["system_ahead_ms"]) == (0, skew)
    assert "the clocks disagree" in caplog.text


async def test_one_that_agrees_ends_what_is_over() -> None:
    tables = memory_tables()
    await leave_a_backlog(tables)
    await trio.sleep(HOUR / 1000)
    async with serve(TimedStore(tables), 30_000) as dispatcher:
        queue = await dispatcher.open(TENANT, "q")
        again = await queue.publish([message(dedup="d")])
        assert again.duplicates == []
        await trio.sleep(1)
        assert stats_now(queue).ready == 2
        assert not dispatcher.clock_numbers()["doubted"]


async def test_without_a_clock_in_the_store_its_newest_message_is_the_witness(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tables = memory_tables()
    await leave_a_backlog(tables, HOUR, MemoryStore(tables))
    async with serve(MemoryStore(tables)) as dispatcher:
        queue = await dispatcher.open(TENANT, "q")
        assert dispatcher.clock_numbers()["suspect_shards"] == 1
        assert "stored 3600 s in the future" in caplog.text
        await trio.sleep(HOUR / 1000)
        assert dispatcher.clock_numbers()["suspect_shards"] == 0
        assert "trusted again" in caplog.text
        await trio.sleep(HOUR / 1000)
        assert stats_now(queue).ready == 1


async def test_archived_buckets_are_not_dropped_by_a_clock_in_doubt() -> None:
    tables = memory_tables()
    await leave_a_backlog(tables)
    async with serve(TimedStore(tables), 40 * 24 * HOUR) as dispatcher:
        row = await dispatcher.get(TENANT, "q")
        await dispatcher.open(TENANT, "q")
        shard = next(iter(tables._shards))
        names = [BucketName(0, *bucket.key) for bucket in tables.outline(shard).buckets]
        found = await dispatcher.drop_buckets(TENANT, "q", row.id, names)
        assert found.dropped == []
        assert {kept.reason for kept in found.kept} == {"the server's clock is in doubt"}


async def test_a_store_that_does_not_say_the_time_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    store = TimedStore(memory_tables())
    store.away = True
    async with serve(store, HOUR) as dispatcher:
        assert "does not say what time it is" in caplog.text
        await trio.sleep(25)
        assert (store.asked, dispatcher.clock.doubted) == (3, False)
        assert "the store's clock was not compared" in caplog.text
        store.away = False
        await trio.sleep(10)
        assert dispatcher.clock.doubted
        assert dispatcher.clock_numbers()["store_ahead_ms"] == -HOUR


@pytest.mark.parametrize("skew", [-HOUR, HOUR])
async def test_what_a_wrong_clock_stamped_is_not_judged_by_that(skew: int) -> None:
    """Its owner went by the store's time."""
    tables = memory_tables()
    await leave_a_backlog(tables, skew)
    async with serve(TimedStore(tables)) as dispatcher:
        queue = await dispatcher.open(TENANT, "q")
        again = await queue.publish([message(dedup="d"), message(dedup="done")])
        assert again.duplicates == [0, 1]
        await trio.sleep(30)
        assert stats_now(queue).ready == 2
        assert dispatcher.clock_numbers()["suspect_shards"] == 0
