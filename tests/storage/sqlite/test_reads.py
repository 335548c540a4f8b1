"""Reads: on connections of their own, by index only, and never in the writer's way."""

import sqlite3
import threading
from functools import partial

import pytest
import trio
import trio.testing

from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.interface import StoreRefused
from pushlane_storage.sqlite import reads
from pushlane_storage.sqlite.connection import connect
from pushlane_storage.sqlite.limits import KIB, Limits
from pushlane_storage.sqlite.reader import Reading
from tests.storage.samples import claimed, messages, seqs_of
from tests.storage.sqlite.tools import Opened, fill, together


class Slow:
    """A read that holds its place inside SQLite until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(self, reading: Reading) -> int:
        return reading.fetch(self._read)

    def _read(self, connection: sqlite3.Connection) -> int:
        cursor = connection.execute("SELECT count(*) FROM bucket UNION ALL SELECT 7")
        count: int = cursor.fetchone()[0]
        self.begun.release()
        assert self.go.wait(10)
        cursor.fetchall()
        return count


async def test_reads_do_not_block_the_writer(opened: Opened) -> None:
    limits = Limits(checkpoint_bytes=100 * KIB, finish_bytes=10 * KIB, gate_ms=5)
    store = await opened(limits)
    owner = await claimed(store)
    slow = Slow()
    async with trio.open_nursery() as nursery:
        for _ in range(limits.readers):
            nursery.start_soon(store._calls.read, slow)
        for _ in range(limits.readers):
            await trio.to_thread.run_sync(slow.begun.acquire)
        with trio.fail_after(10):
            await fill(owner, 2, 20)
        assert store.stats().commits >= 40
        slow.go.set()
    found = await store.segments(owner.shard, owner.bucket(), 0, 10_000)
    assert len(seqs_of(found)) == 1_000


async def test_a_read_sees_what_was_written_before_it(opened: Opened) -> None:
    store = await opened()
    owner = await claimed(store)

    async def write_and_read(number: int) -> None:
        segment = await owner.append(number, messages(1))
        found = await store.messages(owner.shard, owner.bucket(), [segment.first])
        assert list(found) == [segment.first]

    results = await together([partial(write_and_read, number) for number in range(200)])
    assert results == [None] * 200


async def test_a_cancelled_read_is_not_waited_for(opened: Opened) -> None:
    store = await opened(Limits(readers=1))
    slow = Slow()
    with trio.move_on_after(10) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store._calls.read, slow)
            nursery.start_soon(store.catalog.read, "t", "q")
            await trio.to_thread.run_sync(slow.begun.acquire)
            nursery.cancel_scope.cancel()
    assert not scope.cancelled_caught
    slow.go.set()
    assert await store.catalog.read("t", "q") is None


async def test_reads_that_wait_are_bounded(opened: Opened) -> None:
    store = await opened(Limits(readers=1, waiting_reads=2))
    slow = Slow()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store._calls.read, slow)
        await trio.to_thread.run_sync(slow.begun.acquire)
        for _ in range(2):
            nursery.start_soon(store.catalog.read, "t", "q")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(StoreRefused, match="2 calls wait"):
            await store.catalog.read("t", "q")
        slow.go.set()


def plan(opened: Opened, statement: str, count: int) -> list[str]:
    rows = opened.sql(f"EXPLAIN QUERY PLAN {statement}", *[1] * count)
    return [row[3] for row in rows]


async def test_every_read_is_by_index(opened: Opened) -> None:
    await opened()
    shard, key = ShardKey("q", 0), BucketKey(4, 1, 1)
    statements: list[tuple[str, int]] = []

    class Spy:
        def __init__(self, connection: sqlite3.Connection) -> None:
            self._connection = connection

        def execute(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
            statements.append((statement, len(values)))
            return self._connection.execute(statement, values)

    connection = connect(opened.database, 1 << 20, Limits())
    spy: sqlite3.Connection = Spy(connection)  # type: ignore[assignment]
    reads.outline(spy, shard)
    reads.settlements(spy, shard, key)
    reads.heads(spy, shard, key)
    reads.segments(spy, shard, key, 0, 10)
    reads.segments_of(spy, shard, key, [1, 2])
    reads.due(spy, shard, 0, 10, 10)
    connection.close()
    assert len(statements) > 8
    for statement, count in statements:
        for step in plan(opened, statement, count):
            assert "SCAN" not in step.replace("SCAN CONSTANT ROW", ""), (step, statement)
            assert "TEMP B-TREE" not in step, (step, statement)
