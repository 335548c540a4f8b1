"""Keyspaces as sides of a copy: fences, counters, data centres, sizes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.copy.cassandra_target import (
    BATCH_BYTES,
    CassandraTarget,
    _chunks,
    open_target,
)
from pushlane_storage.copy.errors import (
    CopyFailed,
    CopyTaken,
    SourceMissing,
    SourceServed,
    TargetNotEmpty,
    TargetServed,
    TargetUnusable,
)
from pushlane_storage.copy.keyspace import Keyspace
from pushlane_storage.copy.record import Counts, Record
from pushlane_storage.copy.rows import Day
from pushlane_storage.copy.run import copy
from pushlane_storage.copy.transfer import Transfer
from pushlane_storage.copy.walk import Unit
from pushlane_storage.interface import StoreRefused
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.segment import StoredSegment
from pushlane_storage.sqlite.store import SqliteStore
from pushlane_storage.url import parse_cassandra
from pushlane_storage.usage import Usage, UsageKey
from tests.held import held, let_go
from tests.storage.copy.test_round_trip import check_counts, check_epochs
from tests.storage.copy.tools import QUICK, contents, cql, fill

PATIENT = msgspec.structs.replace(QUICK, judge_ms=60_000)
QUEUE = QueueRow("default", "q", "id", QueueConfig(), 1)
RECORD = Record(copy="c", source="s", fingerprint="f", begun_at=0)


async def test_the_source(
    folder: Path, keyspace: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What servers left in a keyspace; they are gone when the copy begins."""
    url, target = keyspace(), f"sqlite:{folder / 'a'}"
    world = await fill(url)
    with pytest.raises(TargetNotEmpty, match="there are rows in queues"):
        await copy(f"sqlite:{await make_store(folder / 'b')}", url, limits=QUICK)
    with monkeypatch.context() as patch:
        patch.setattr(Keyspace, "beating", seen_by_nobody)
        store = await held(CassandraStore.open(parse_cassandra(url), QUICK))
        await store.ownership.claim(3, "node-1")
        with pytest.raises(SourceServed, match=r"slot 3 is owned by node-1 .* which is alive"):
            await copy(url, target, limits=PATIENT)
        await let_go(store)
    with monkeypatch.context() as patch:
        patch.setattr(Transfer, "move", fencing(parse_cassandra(url).keyspace))
        with pytest.raises(CopyTaken, match="a server took over"):
            await copy(url, target, limits=QUICK)
    done = await copy(url, target, limits=QUICK)
    check_counts(done)
    assert await contents(target, world) == await contents(url, world)
    await check_epochs(target, world, done)
    cql(f"UPDATE {parse_cassandra(url).keyspace}.slots SET dc = 'east' WHERE slot = 7 IF EXISTS")
    with pytest.raises(SourceMissing, match="slot 7 belongs to data centre east: say dc=east in"):
        await copy(url, f"sqlite:{folder / 'c'}", limits=QUICK)


async def make_store(folder: Path) -> Path:
    await (await SqliteStore.open(folder)).close()
    return folder


def fencing(keyspace: str) -> Callable[[Transfer, Unit], Awaitable[Counts]]:
    """Moves, after somebody has taken the copy for dead and fenced it."""
    move = Transfer.move

    async def fence_and_move(self: Transfer, unit: Unit) -> Counts:
        for row in cql(f"SELECT process FROM {keyspace}.nodes"):
            where = f"process = '{row['process']}'"
            cql(f"UPDATE {keyspace}.nodes SET fenced = true WHERE {where} IF EXISTS")
        return await move(self, unit)

    return fence_and_move


async def test_the_target(keyspace: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    url = keyspace()
    address = parse_cassandra(url)
    off = msgspec.structs.replace(address, migrate=False)
    async with open_target("t", off, QUICK) as target:
        with pytest.raises(TargetUnusable, match="run `pushlane store migrate`"):
            await target.begin(RECORD)
    store = await held(CassandraStore.open(address, QUICK))
    monkeypatch.setattr(Keyspace, "beating", seen_by_nobody)
    async with open_target("t", off, QUICK) as target:
        assert await target.read_record() is None
        await target.check_empty()
        await target.begin(RECORD)
        with pytest.raises(StoreRefused, match="a copy into this keyspace is not finished"):
            await store.ownership.claim(3, "node-1")
        await counters_become_what_they_should_be(target)
        await a_segment_that_is_too_large(target)
        async with open_target("t", off, QUICK) as second:
            assert await second.read_record() == RECORD
            await second.begin(RECORD)
        with pytest.raises(CopyTaken, match="another copy into t has begun: run only one"):
            await target.note(RECORD)
        cql(f"UPDATE {address.keyspace}.slots SET owner = 'node-1' WHERE slot = 9 IF EXISTS")
        async with open_target("t", off, QUICK) as third:
            await third.read_record()
            with pytest.raises(TargetServed, match="slot 9 was claimed"):
                await third.begin(RECORD)
    await let_go(store)


async def seen_by_nobody(*_: object) -> None:
    """A server that was paused for a moment."""


async def counters_become_what_they_should_be(target: CassandraTarget) -> None:
    """Whatever an earlier run has put; a shard's tally (minute 0) as well."""
    day = Day("default", 0)
    for version, minute in ((1, 5), (2, 5), (2, 5), (7, 0)):
        row = Usage(UsageKey("default", "q", minute, "n"), {"a": version}, version)
        await target.put_usage(day, [row])
        assert await target._usage.read("default", minute, minute) == [row]


async def a_segment_that_is_too_large(target: CassandraTarget) -> None:
    body = bytes(QUICK.row_bytes + 1)
    stored = StoredSegment(0, 1, 1, 1, 1, 1, b"", 1, body)
    shard, key = ShardKey("id", 0), BucketKey(4, 1, 2)
    with pytest.raises(CopyFailed, match=f"has {len(body)} bytes, and Cassandra takes"):
        await target.put_segments(QUEUE, shard, key, [stored])


@pytest.mark.parametrize("size", [1, 100, 1_000, BATCH_BYTES, 3 * BATCH_BYTES])
def test_small_rows_go_together(size: int) -> None:
    rows = [{"body": bytes(size), "n": number} for number in range(100)]
    chunks = list(_chunks(rows))
    assert [row for chunk in chunks for row in chunk] == rows
    assert all(len(chunk) == 1 or len(chunk) * size <= BATCH_BYTES for chunk in chunks)
    assert (len(chunks) < 100) == (size < BATCH_BYTES // 2)
