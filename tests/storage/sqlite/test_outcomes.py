"""What callers are told when the disk is short of room, or fails."""

import os
import sqlite3
from collections.abc import Callable
from functools import partial

import pytest
import trio

from pushlane_storage.bucket import Bucket
from pushlane_storage.interface import StoreDamaged, StoreRefused, StoreUnknown
from pushlane_storage.queue import QueueConfig
from pushlane_storage.sqlite import writer as fuse
from pushlane_storage.sqlite.errors import StoreBroken
from pushlane_storage.sqlite.limits import KIB, Limits
from pushlane_storage.sqlite.space import Garbage
from pushlane_storage.sqlite.tables import Tables
from pushlane_storage.usage import Usage, UsageKey
from tests.storage.samples import claimed, messages, seqs_of
from tests.storage.sqlite.tools import Opened, drop_all, fill, together, until


def fault(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("planted")
    error.sqlite_errorcode = code
    return error


def failing(code: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise fault(code)

    return fail


def failing_from_second_call(code: int) -> Callable[..., bool]:
    """What drops the bucket sweeps, too: let that be, and fail when it is idle."""
    calls = 0

    def fail(*_: object) -> bool:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise fault(code)
        return True

    return fail


class TestBroken:
    @pytest.mark.parametrize(
        "code", [sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_CORRUPT]
    )
    @pytest.mark.parametrize("step", ["begin", "commit"])
    async def test_a_fault_stops_the_store(
        self, opened: Opened, monkeypatch: pytest.MonkeyPatch, code: int, step: str
    ) -> None:
        store = await opened()
        with monkeypatch.context() as patch:
            patch.setattr(Tables, step, failing(code))
            with pytest.raises(StoreUnknown, match="planted"):
                await store.ownership.claim(0, "node")
        with pytest.raises(StoreBroken, match="planted"):
            await store.ownership.claim(0, "node")
        assert [error.sqlite_errorcode for error in opened.faults] == [code]  # type: ignore[attr-defined]

    async def test_everybody_is_told_and_the_hook_comes_first(
        self, opened: Opened, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers: list[object] = []
        answered_before: list[int] = []
        store = await opened(fail_stop=lambda error: answered_before.append(len(answers)))
        monkeypatch.setattr(Tables, "commit", failing(sqlite3.SQLITE_IOERR_FSYNC))

        async def create(name: str) -> None:
            with pytest.raises(StoreBroken) as broken:
                await store.catalog.create("t", name, QueueConfig())
            answers.append(broken.value)

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(create, f"q{number}")
        assert answered_before == [0]
        assert len(answers) == 5
        with pytest.raises(StoreBroken):
            await store.usage.put([])
        assert await store.catalog.list("t", "", 10) == []  # reads harm nobody
        await store.close()
        monkeypatch.undo()
        store = await opened()
        assert await store.catalog.list("t", "", 10) == []

    async def test_a_failed_checkpoint_stops_the_store(
        self, opened: Opened, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = await opened(Limits(checkpoint_bytes=1))
        monkeypatch.setattr(
            "pushlane_storage.sqlite.checkpointer.PASS", "SELECT 1, 2, 3 FROM nothing"
        )
        await store.ownership.claim(0, "node")
        await until(lambda: bool(opened.faults))
        with pytest.raises(StoreBroken):
            await store.ownership.claim(1, "node")

    async def test_a_fault_while_tidying_up_stops_the_store(
        self, opened: Opened, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = await opened()
        owner = await claimed(store)
        await owner.append(0, messages(1))
        monkeypatch.setattr(Garbage, "sweep", failing_from_second_call(sqlite3.SQLITE_IOERR))
        await drop_all(owner)
        await until(lambda: bool(opened.faults))
        with pytest.raises(StoreBroken):
            await store.ownership.claim(1, "node")

    async def test_a_fault_while_a_group_is_run_call_by_call(
        self, opened: Opened, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = await opened()
        owner = await claimed(store)
        monkeypatch.setattr(Tables, "release", failing(sqlite3.SQLITE_IOERR_WRITE))
        with pytest.raises(StoreBroken):
            await owner.append(0, messages(1, not_before=1 << 63))
        assert len(opened.faults) == 1

    def test_the_default_ends_the_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        codes: list[int] = []
        monkeypatch.setattr(os, "_exit", codes.append)
        default: fuse.FailStop = fuse.exit_process
        default(fault(sqlite3.SQLITE_IOERR_FSYNC))
        assert codes == [os.EX_IOERR]

    def test_only_the_first_fault_counts(self) -> None:
        told: list[BaseException] = []
        one = fuse.Fuse(told.append)
        for _ in range(2):
            one.blow(ValueError(len(told)))
        assert len(told) == 1


class TestNoRoom:
    async def test_below_the_reserve_appends_are_refused_and_the_rest_goes_on(
        self, opened: Opened
    ) -> None:
        store = await opened()
        owner = await claimed(store)
        segment = await owner.append(0, messages(2))
        store = await opened.again(store, limits=Limits(reserve_bytes=1 << 60))
        owner = await claimed(store, owner.shard.queue_id)
        with pytest.raises(StoreRefused, match="nearly full"):
            await owner.append(0, messages(2))
        await owner.settle(0, segment.bucket, acked=[(segment.first, segment.last)])
        assert store.stats().refused_full == 1
        assert len(await store.settlements(owner.shard, segment.bucket)) == 1
        row = ((await store.outline(owner.shard)).buckets)[0]
        await store.mark_bucket(owner.shard, Bucket(row.key, row.first, True, True, 2, 3, 4))
        await store.drop(owner.shard, row.key)
        assert (await store.outline(owner.shard)).buckets == []

    async def test_a_full_database_refuses_appends_only(
        self, opened: Opened, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """SQLite's own limit on pages gives the same error as a full disk, before the commit."""
        store = await opened()
        owner = await claimed(store)
        await owner.append(0, messages(2))
        begin = Tables.begin

        def limited(tables: Tables) -> None:
            tables._connection.execute("PRAGMA max_page_count = 1")  # it is what it has now
            begin(tables)

        monkeypatch.setattr(Tables, "begin", limited)
        results = await together(
            [
                partial(owner.append, 2, messages(2_000)),
                partial(owner.settle, 0, owner.bucket(), acked=[(1, 2)]),
                partial(owner.append, 2_002, messages(2_000)),
            ]
        )
        assert [type(result) for result in results] == [StoreRefused, list, StoreRefused]
        assert store.stats().refused_full == 2
        assert not opened.faults
        found = await store.segments(owner.shard, owner.bucket(), 0, 10_000)
        assert seqs_of(found) == [owner.seq(0), owner.seq(1)]
        assert len(await store.settlements(owner.shard, owner.bucket())) == 1

    async def test_a_group_run_call_by_call_has_its_limits_too(self, opened: Opened) -> None:
        store = await opened(Limits(reserve_bytes=1 << 60, group_bytes=1))
        owner = await claimed(store)
        wrong = UsageKey("t", "q", 1 << 70, "n")
        results = await together(
            [
                partial(store.usage.put, [Usage(wrong, {"acked": 1})]),
                partial(owner.append, 0, messages(2)),
                *[partial(owner.settle, number, owner.bucket()) for number in range(5)],
            ]
        )
        kinds = [type(result) for result in results]
        assert kinds == [OverflowError, StoreRefused, *[list] * 5]
        assert len(await store.settlements(owner.shard, owner.bucket())) == 5

    async def test_a_full_disk_puts_off_tidying_up(
        self, opened: Opened, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = await opened(Limits(idle_ms=0))
        owner = await claimed(store)
        await owner.append(0, messages(1))
        with monkeypatch.context() as patch:
            patch.setattr(Garbage, "sweep", failing_from_second_call(sqlite3.SQLITE_FULL))
            await drop_all(owner)
            await trio.sleep(0.05)
            assert opened.sql("SELECT count(*) FROM garbage") == [(1,)]
        await store.usage.put([])
        await until(lambda: opened.sql("SELECT count(*) FROM garbage") == [(0,)])
        assert not opened.faults

    async def test_when_nothing_goes_in_all_is_refused(
        self, opened: Opened, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = await opened()
        owner = await claimed(store)
        for code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
            with monkeypatch.context() as patch:
                patch.setattr(Tables, "commit", failing(code))
                with pytest.raises(StoreRefused, match="took nothing"):
                    await owner.append(0, messages(2))
                with pytest.raises(StoreRefused, match="took nothing"):
                    await owner.settle(0, owner.bucket())
        assert not opened.faults
        await owner.append(0, messages(2))
        await owner.settle(0, owner.bucket())

    async def test_a_log_that_a_reader_holds_open_pushes_back(self, opened: Opened) -> None:
        limits = Limits(
            wal_bytes=500 * KIB,
            checkpoint_bytes=100 * KIB,
            finish_bytes=0,
            gate_ms=1,
            push_back_ms=0,
        )
        store = await opened(limits)
        owner = await claimed(store)
        await owner.append(0, messages(1), start=1)
        reader = sqlite3.connect(opened.database, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM bucket").fetchall()
        with pytest.raises(StoreRefused, match="write-ahead log is full"):
            await fill(owner, 50, 10)
        stats = store.stats()
        assert stats.refused_log == 1
        assert stats.checkpoints_hindered > 0
        assert limits.wal_bytes < stats.log_bytes < 2 * limits.wal_bytes
        await owner.settle(0, owner.bucket())
        reader.close()
        await fill(owner, 20, 10)
        await until(lambda: store.stats().log_bytes <= 2 * limits.checkpoint_bytes + 200 * KIB)


class TestReading:
    async def test_an_io_error_is_told_to_its_reader_only(
        self, opened: Opened, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = await opened()
        owner = await claimed(store)
        await owner.append(0, messages(2))
        for code, kind in [
            (sqlite3.SQLITE_IOERR_READ, StoreUnknown),
            (sqlite3.SQLITE_CORRUPT, StoreDamaged),
        ]:
            with monkeypatch.context() as patch:
                patch.setattr("pushlane_storage.sqlite.reads.buckets", failing(code))
                with pytest.raises(kind, match="reading failed: planted"):
                    await store.outline(owner.shard)
        assert len((await store.outline(owner.shard)).buckets) == 1
        assert not opened.faults
