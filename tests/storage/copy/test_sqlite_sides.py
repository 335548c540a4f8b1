"""Folders as sides of a copy: locks, versions, disks that fail."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pushlane_storage.copy import verification
from pushlane_storage.copy.errors import (
    CopyFailed,
    CopyTaken,
    SourceMissing,
    TargetNotEmpty,
    TargetServed,
    TargetUnusable,
)
from pushlane_storage.copy.record import Record, encode
from pushlane_storage.copy.run import copy
from pushlane_storage.copy.sqlite_source import SqliteRows
from pushlane_storage.copy.sqlite_target import RECORD, SqliteTarget, open_target
from pushlane_storage.interface import QueueExists, StoreUnknown
from pushlane_storage.sqlite.folder import open_folder
from tests.storage.copy.tools import contents, fill
from tests.storage.sqlite.tools import modes

NOTE = Record(copy="c", source="s", fingerprint="f", begun_at=0)


@pytest.fixture
async def source(folder: Path) -> str:
    await fill(f"sqlite:{folder / 'a'}")
    return f"sqlite:{folder / 'a'}"


async def test_an_older_version(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pushlane_storage.copy.sqlite_source.STEPS", (None,) * 9)
    with pytest.raises(SourceMissing, match="an older version of Pushlane: start and stop"):
        await copy(source, f"sqlite:{folder / 'b'}")


async def test_a_source_that_can_not_be_locked(source: str, folder: Path) -> None:
    (folder / "a" / "lock").unlink()
    (folder / "a" / "lock").mkdir()
    with pytest.raises(SourceMissing, match="it must be locked while it is copied"):
        await copy(source, f"sqlite:{folder / 'b'}")


async def test_a_target_that_another_process_has_locked(folder: Path) -> None:
    locked = open_folder(folder / "b")
    async with open_target("t", folder / "b") as target:
        with pytest.raises(TargetServed, match=rf"in use \(process {os.getpid()}\)"):
            await target.begin(NOTE)
    locked.close()
    (folder / "b" / "lock").unlink()
    (folder / "b" / "lock").mkdir()
    async with open_target("t", folder / "b") as target:
        with pytest.raises(TargetUnusable, match="choose another folder"):
            await target.begin(NOTE)


async def test_a_target_that_can_not_be_written(folder: Path) -> None:
    (folder / "b").mkdir()
    (folder / "b" / "copying.db").mkdir()
    async with open_target("t", folder / "b") as target:
        with pytest.raises(TargetUnusable, match="t can't be written: unable to open"):
            await target.begin(NOTE)


async def test_a_copy_that_another_version_began(source: str, folder: Path) -> None:
    (folder / "b").mkdir()
    with closing(sqlite3.connect(folder / "b" / "copying.db")) as connection:
        connection.execute(f"CREATE TABLE {RECORD} (record TEXT)")
        newer = encode(NOTE).replace('"format":1', '"format":2')
        connection.execute(f"INSERT INTO {RECORD} VALUES (?)", (newer,))
        connection.commit()
    with pytest.raises(TargetNotEmpty, match=r"a copy of another version: format 2"):
        await copy(source, f"sqlite:{folder / 'b'}")


async def test_a_disk_that_fails(
    source: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("pushlane_storage.work.PAUSES_S", ())
    with monkeypatch.context() as patch:
        patch.setattr("pushlane_storage.sqlite.reads.seals", fail)
        with pytest.raises(CopyFailed, match=r"reading failed: disk I/O error; run it again"):
            await copy(source, f"sqlite:{folder / 'b'}")
    assert (await copy(source, f"sqlite:{folder / 'b'}")).outcome == "finished"


async def test_what_is_copied_is_its_owners_alone(
    source: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: dict[str, int] = {}
    plain = SqliteTarget.put_queue

    async def put(self: SqliteTarget, *args: object) -> None:
        begun.update(modes(folder / "b"))
        await plain(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(SqliteTarget, "put_queue", put)
    before = os.umask(0)
    try:
        await copy(source, f"sqlite:{folder / 'b'}")
    finally:
        os.umask(before)
    assert modes(folder / "b") == {"b": 0o700, "lock": 0o600, "pushlane.db": 0o600}
    assert begun.pop("b") == 0o700
    assert begun.keys() >= {"lock", "copying.db", "copying.db-wal"}
    assert set(begun.values()) == {0o600}


async def test_somebody_makes_a_queue_in_the_target(
    source: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def exists(*_: object) -> None:
        raise QueueExists("orders")

    monkeypatch.setattr(SqliteTarget, "put_queue", exists)
    with pytest.raises(CopyTaken, match="somebody made queue orders in the target"):
        await copy(source, f"sqlite:{folder / 'b'}")


async def test_what_is_unknown_is_written_again(
    source: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every first write of segments goes wrong after it was done."""
    plain, failed = SqliteTarget.put_segments, set()

    async def put(self: SqliteTarget, *args: object) -> None:
        await plain(self, *args)  # type: ignore[arg-type]
        if args[1:3] not in failed:
            failed.add(args[1:3])
            raise StoreUnknown("perhaps")

    monkeypatch.setattr("pushlane_storage.work.PAUSES_S", (0, 0))
    monkeypatch.setattr(SqliteTarget, "put_segments", put)
    done = await copy(source, f"sqlite:{folder / 'b'}")
    assert done.record is not None
    assert done.record.copied.segments == 111
    with closing(sqlite3.connect(folder / "b" / "pushlane.db")) as connection:
        assert connection.execute("SELECT count(*) FROM payload").fetchone() == (111,)


async def test_only_so_many_are_listed_and_named(
    source: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(folder / "a" / "pushlane.db")) as connection:
        connection.execute("UPDATE seal SET checksum = checksum + 1")
        connection.commit()
    monkeypatch.setattr(verification, "LISTED", 2)
    monkeypatch.setattr(verification, "NAMED", 2)
    done = await copy(source, f"sqlite:{folder / 'b'}")
    assert done.verified is not None
    assert [line.messages for line in done.verified.shards] == [160, 160]
    assert (len(done.verified.damaged), done.verified.counts.damaged) == (2, 3)
    assert done.verified.damaged[0].startswith("seal ")


async def test_rows_are_read_page_by_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = await fill(f"sqlite:{folder / 'a'}")
    pages = 0
    plain = SqliteRows._read

    async def read(self: SqliteRows, work: object) -> object:
        nonlocal pages
        pages += 1
        return await plain(self, work)  # type: ignore[arg-type]

    monkeypatch.setattr(SqliteRows, "_read", read)
    await copy(f"sqlite:{folder / 'a'}", f"sqlite:{folder / 'b'}")
    few, pages = pages, 0
    monkeypatch.setattr("pushlane_storage.copy.sqlite_source.PAGE_ROWS", 3)
    monkeypatch.setattr("pushlane_storage.copy.sqlite_source.PAGE_BYTES", 300)
    await copy(f"sqlite:{folder / 'a'}", f"sqlite:{folder / 'c'}")
    assert pages > 2 * few
    expected = await contents(f"sqlite:{folder / 'b'}", world)
    assert await contents(f"sqlite:{folder / 'c'}", world) == expected
