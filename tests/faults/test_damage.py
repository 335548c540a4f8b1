"""Rows that are harmed on a real disk, under a real dispatcher: what it still does."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio

from pushlane.wire.errors import Unavailable
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_storage.damage import Damage
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.rig import Consumer
from tests.running import runners_of, stats_now
from tests.storage.backends import fast_folder
from tests.storage.sqlite.tools import Opened, until

TENANT = "t"
BOUNDS = Bounds(window_messages=6, page_messages=3, segment_messages=3, bucket_messages=6)
SECOND = "(SELECT payload FROM segment ORDER BY first LIMIT 1 OFFSET 1)"
BODY = f"UPDATE payload SET body = x'90' WHERE id = {SECOND}"
BUCKETS = "UPDATE bucket SET size = size + 1 WHERE first IS NOT NULL"


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(dir=fast_folder()) as name:
        yield Path(name) / "data"


@pytest.fixture
async def opened(folder: Path) -> AsyncIterator[Opened]:
    opened = Opened(folder)
    yield opened
    await opened.close()


@asynccontextmanager
async def serving(
    opened: Opened, told: Callable[[Damage], None] = lambda _: None
) -> AsyncIterator[Dispatcher]:
    store = await opened(damaged=told)
    async with open_dispatcher(store, bounds=BOUNDS) as dispatcher:
        yield dispatcher
    await store.close()


def messages(count: int, first: int = 0) -> list[Message]:
    """Published just now: retention must not end them."""
    now = int(time.time() * 1000)
    return [Message(b"%d" % number, now) for number in range(first, first + count)]


CONFIG = QueueConfig(dead_letter="", dedup_window_ms=0)


async def fill(opened: Opened, count: int) -> None:
    async with serving(opened) as dispatcher:
        await dispatcher.create(TENANT, "q", CONFIG)
        queue = await dispatcher.open(TENANT, "q")
        for first in range(0, count, 3):
            assert not (await queue.publish(messages(3, first))).failed


async def test_a_damaged_segment_is_set_aside_dies_and_the_shard_goes_on(opened: Opened) -> None:
    await fill(opened, 12)
    opened.sql(BODY)
    told: list[Damage] = []
    async with serving(opened, told.append) as dispatcher:
        queue = await dispatcher.open(TENANT, "q")
        consumer = Consumer(runners_of(queue)[0], acking=True)
        await until(lambda: stats_now(queue).stored == 0)
        assert consumer.bodies == [b"%d" % n for n in (0, 1, 2, 6, 7, 8, 9, 10, 11)]
        assert (stats_now(queue).acked, stats_now(queue).dead) == (9, 3)
        assert [damage.count for damage in told] == [3]
        assert not (await queue.publish(messages(3, 12))).failed
        await consumer.got(12)
    assert not opened.faults


async def test_a_bucket_whose_row_is_harmed_is_served_to_its_end(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(opened) as dispatcher:
        await dispatcher.create(TENANT, "q", CONFIG)
        queue = await dispatcher.open(TENANT, "q")
        for first in range(0, 12, 3):
            await queue.publish(messages(3, first))
        opened.sql(BUCKETS)
        consumer = Consumer(runners_of(queue)[0], acking=True)
        await consumer.got(12)
        assert not (await queue.publish(messages(9, 12))).failed
        await consumer.got(21)
        await until(lambda: stats_now(queue).stored == 0)
        assert queue.running
    assert "a bucket stays as it is" in caplog.text
    assert not opened.faults


async def test_a_shard_whose_log_is_harmed_stays_shut_and_others_open(opened: Opened) -> None:
    await fill(opened, 6)
    opened.sql(BUCKETS)
    async with serving(opened) as dispatcher:
        with pytest.raises(Unavailable):
            await dispatcher.open(TENANT, "q")
        other = await dispatcher.open(TENANT, "other", create=True)
        assert not (await other.publish(messages(1))).failed
        with pytest.raises(Unavailable):
            await dispatcher.publish(TENANT, "q", messages(1))
        await trio.lowlevel.checkpoint()
    assert not opened.faults
