"""Space: what is dropped is deleted bit by bit, reused, and given back."""

import pytest
import trio

from pushlane_storage.bucket import ShardKey
from pushlane_storage.queue import QueueConfig
from pushlane_storage.sqlite.limits import KIB, Limits
from tests.storage.samples import claimed, message, messages
from tests.storage.sqlite.tools import Opened, drop_all, fill, until

LIMITS = Limits(
    checkpoint_bytes=200 * KIB,
    finish_bytes=50 * KIB,
    sweep_bytes=20 * KIB,
    sweep_rows=7,
    vacuum_bytes=64 * KIB,
    spare_bytes=128 * KIB,
    tidy_ms=20,
)
TABLES = ("segment", "payload", "mark", "settlement", "schedule", "garbage")


def left(opened: Opened) -> int:
    return sum(opened.sql(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES)


async def test_dropping_gives_space_back(opened: Opened) -> None:
    store = await opened(LIMITS)
    owner = await claimed(store)
    await fill(owner, 20, 20)
    full = store.stats().database_bytes + store.stats().log_bytes
    assert full > 4_000 * KIB
    await drop_all(owner)
    await until(lambda: left(opened) == 0)
    await until(lambda: store.stats().database_bytes < 500 * KIB)
    stats = store.stats()
    assert stats.sweeps > 0
    assert 0 < stats.vacuums <= full // LIMITS.vacuum_bytes
    assert opened.sql("PRAGMA integrity_check") == [("ok",)]


async def test_it_is_given_back_under_load_too(opened: Opened) -> None:
    """With writes all the time there is never an idle moment."""
    store = await opened(LIMITS)
    owner = await claimed(store)
    await fill(owner, 10, 20)
    await drop_all(owner)
    with trio.fail_after(20):
        while store.stats().database_bytes > 500 * KIB:
            await store.ownership.claim(0, "node")
    assert store.stats().vacuums > 0


async def test_space_is_reused(opened: Opened) -> None:
    store = await opened(LIMITS)
    owner = await claimed(store)
    sizes = []
    for _ in range(5):
        await fill(owner, 5, 20)
        sizes.append(store.stats().database_bytes)
        await drop_all(owner)
    assert max(sizes) < 2 * sizes[0] + 500 * KIB


async def test_a_removed_queue_gives_its_space_back(opened: Opened) -> None:
    store = await opened(LIMITS)
    row = await store.catalog.create("t", "q", QueueConfig())
    owner = await claimed(store, row.id)
    await fill(owner, 5, 20)
    await owner.append(0, [message(not_before=5, dedup="d")] * 30, start=1)
    for n in range(30):
        await owner.settle(n, owner.bucket())
    await store.catalog.remove(await store.catalog.mark_deleting(row))
    assert (await store.outline(ShardKey(row.id, 0))).buckets == []
    assert await store.due(owner.shard, 0, 10, 10) == []
    await until(lambda: left(opened) == 0)
    assert opened.sql("SELECT count(*) FROM shard") == [(0,)]


async def test_garbage_is_swept_after_opening_again(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("pushlane_storage.sqlite.space.Garbage.sweep", lambda self, size: False)
        store = await opened(LIMITS)
        owner = await claimed(store)
        await fill(owner, 2, 10)
        await drop_all(owner)
        await store.close()
        assert left(opened) == 42
    await opened(LIMITS)
    await until(lambda: left(opened) == 0)


async def test_a_bucket_that_comes_back_is_not_swept(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused predecessor may write to a bucket that was dropped: that is a new one."""
    with monkeypatch.context() as patch:
        patch.setattr("pushlane_storage.sqlite.space.Garbage.sweep", lambda self, size: False)
        store = await opened(LIMITS)
        owner = await claimed(store)
        first = await owner.append(0, messages(2, not_before=5))
        await drop_all(owner)
        again = await owner.append(0, messages(2, not_before=5))
        assert again == first
        assert len(await store.due(owner.shard, 0, 10, 10)) == 2
        await store.close()
    store = await opened(LIMITS)
    await until(lambda: opened.sql("SELECT count(*) FROM garbage") == [(0,)])
    assert await store.segments(owner.shard, first.bucket, 0, 10) == [first]
    assert len(await store.due(owner.shard, 0, 10, 10)) == 2
