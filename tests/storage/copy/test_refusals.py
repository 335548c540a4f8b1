"""What is refused, before anything is touched, and what the refusal says."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import trio

from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.copy.errors import (
    CopyRefused,
    EpochsExhausted,
    NotCopyable,
    SourceChanged,
    SourceMissing,
    SourceServed,
    TargetNotEmpty,
    TargetServed,
    TargetUnusable,
)
from pushlane_storage.copy.record import LAST_EPOCH
from pushlane_storage.copy.run import copy
from pushlane_storage.copy.transfer import Transfer
from pushlane_storage.queue import QueueConfig
from pushlane_storage.sqlite.store import SqliteStore
from pushlane_storage.url import open_store, parse_cassandra
from tests.held import held, let_go
from tests.storage.copy.tools import QUICK, cql, names_in
from tests.storage.samples import claimed, messages

PATIENT = msgspec.structs.replace(QUICK, beat_ms=20_000, judge_ms=60_000)
"""Looks for the heartbeat of a server for half a minute."""
CLOSED = "cassandra://127.0.0.1:1/pushlane"


class Stopped(BaseException):
    """The copy is stopped from within."""


async def make(folder: Path, queue: str = "orders") -> str:
    store = await SqliteStore.open(folder)
    row = await store.catalog.create("default", queue, QueueConfig())
    await (await claimed(store, row.id)).append(0, messages(3))
    await let_go(store)
    return f"sqlite:{folder}"


async def stop_half_way(source: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stop(*_: object) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(Transfer, "move", stop)
        with pytest.raises(BaseExceptionGroup) as caught:
            await copy(source, target, limits=QUICK)
        assert caught.group_contains(Stopped)


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        ("memory:", "sqlite:b", "a store in memory ends with its server, and can't be copied"),
        ("sqlite:a", "memory:", "a store in memory ends with its server"),
        ("sqlite:", "sqlite:b", "names no folder"),
        ("sqlite:a", "mysql://host/x", "mysql://host/x is not a store"),
        ("sqlite:a", "cassandra://host", "a keyspace comes after the hosts"),
        ("cassandra://u:pw@host/Bad", "sqlite:b", r"u:\*\*\*@host"),
        ("sqlite:a", "./a", "source and target are the same"),
        ("cassandra://h/k", "cassandra://h/k", "source and target are the same"),
    ],
)
async def test_urls(
    source: str, target: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    await make(Path("a"))
    with pytest.raises(NotCopyable, match=text):
        await copy(source, target)
    assert names_in(folder) == {"a"}


async def test_no_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceMissing, match=r"is not a store: it has no pushlane\.db"):
        await copy(f"sqlite:{folder / 'none'}", f"sqlite:{folder / 'b'}")
    source = await make(folder / "a")
    await stop_half_way(source, f"sqlite:{folder / 'half'}", monkeypatch)
    with pytest.raises(SourceMissing, match="it holds a copy that is not finished"):
        await copy(f"sqlite:{folder / 'half'}", f"sqlite:{folder / 'b'}")
    (folder / "text").mkdir()
    (folder / "text" / "pushlane.db").write_text("some text, and not a database at all" * 9)
    with pytest.raises(SourceMissing, match="can't be read: file is not a database"):
        await copy(f"sqlite:{folder / 'text'}", f"sqlite:{folder / 'b'}")
    with pytest.raises(SourceMissing, match="can't be read: Cassandra can't be reached"):
        await copy(CLOSED, f"sqlite:{folder / 'b'}")
    assert names_in(folder) == {"a", "half", "text"}


@pytest.mark.parametrize(("version", "text"), [(0, "was not made by"), (99, "a newer version")])
async def test_another_version(version: int, text: str, folder: Path) -> None:
    source = await make(folder / "a")
    with closing(sqlite3.connect(folder / "a" / "pushlane.db")) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(SourceMissing, match=text):
        await copy(source, f"sqlite:{folder / 'b'}")
    assert names_in(folder) == {"a"}


async def test_a_folder_that_is_served(folder: Path) -> None:
    one, other = await make(folder / "a"), f"sqlite:{folder / 'b'}"
    store = await SqliteStore.open(folder / "a")
    for dry_run in (False, True):
        with pytest.raises(SourceServed, match=r"is served \(process \d+\).* stop the servers"):
            await copy(one, other, dry_run=dry_run)
    assert names_in(folder) == {"a"}
    await let_go(store)
    await copy(one, other)


async def test_a_folder_that_is_not_empty(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = await make(folder / "a"), folder / "b"
    target.mkdir()
    (target / "notes.txt").touch()
    with pytest.raises(TargetNotEmpty, match=r"notes\.txt is in it"):
        await copy(source, f"sqlite:{target}")
    other = await make(folder / "c")
    with pytest.raises(TargetNotEmpty, match=r"pushlane\.db is in it"):
        await copy(source, other)
    (folder / "file").touch()
    with pytest.raises(TargetUnusable, match="choose another folder"):
        await copy(source, f"sqlite:{folder / 'file'}")
    with pytest.raises(TargetUnusable, match="Cassandra can't be reached"):
        await copy(source, CLOSED)
    await stop_half_way(other, f"sqlite:{folder / 'd'}", monkeypatch)
    with pytest.raises(TargetNotEmpty, match=rf"it holds a copy of sqlite:{folder}/c"):
        await copy(source, f"sqlite:{folder / 'd'}")
    assert (await copy(other, f"sqlite:{folder / 'd'}")).outcome == "finished"


async def test_two_copies_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two sources into one target."""
    one, other = await make(folder / "a"), await make(folder / "b")
    found: list[CopyRefused] = []
    turn = trio.Lock()

    async def begin_another(*_: object) -> None:
        async with turn:
            with pytest.raises(CopyRefused) as caught:
                await copy(other, f"sqlite:{folder / 'c'}")
            found.append(caught.value)
            raise Stopped

    monkeypatch.setattr(Transfer, "move", begin_another)
    with pytest.raises(BaseExceptionGroup):
        await copy(one, f"sqlite:{folder / 'c'}")
    assert isinstance(found[0], TargetNotEmpty)


async def test_a_source_that_was_served_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, half, whole = await make(folder / "a"), f"sqlite:{folder / 'b'}", folder / "c"
    await stop_half_way(source, half, monkeypatch)
    await copy(source, f"sqlite:{whole}")
    await (await SqliteStore.open(folder / "a")).close()
    for target in (half, f"sqlite:{whole}"):
        for dry_run in (True, False):
            with pytest.raises(SourceChanged, match="before it was served again: choose an empty"):
                await copy(source, target, dry_run=dry_run)


async def test_no_epoch_is_left(folder: Path) -> None:
    source = await make(folder / "a")
    with closing(sqlite3.connect(folder / "a" / "pushlane.db")) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE name = 'epoch'", (LAST_EPOCH,))
        connection.commit()
    with pytest.raises(EpochsExhausted, match=f"begin with epoch {LAST_EPOCH + 1_000}"):
        await copy(source, f"sqlite:{folder / 'b'}")
    assert names_in(folder) == {"a"}


async def test_a_dry_run_touches_nothing(folder: Path, keyspace: Callable[[], str]) -> None:
    source, target = await make(folder / "a"), keyspace()
    before = (folder / "a" / "pushlane.db").read_bytes()
    for url in (f"sqlite:{folder / 'b'}", target):
        done = await copy(source, url, dry_run=True)
        assert (done.outcome, done.plan.messages, done.record) == ("planned", 3, None)
    assert names_in(folder) == {"a"}
    assert (folder / "a" / "pushlane.db").read_bytes() == before
    name = parse_cassandra(target).keyspace
    query = f"SELECT * FROM system_schema.keyspaces WHERE keyspace_name = '{name}'"
    assert cql(query) == []


async def test_keyspaces(
    folder: Path, keyspace: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, local = keyspace(), await make(folder / "a")
    with pytest.raises(SourceMissing, match="is not there, this version needs schema"):
        await copy(url, f"sqlite:{folder / 'b'}", limits=QUICK)
    idle = await held(CassandraStore.open(parse_cassandra(url), QUICK))
    with pytest.raises(TargetServed, match=r"is in use \(process \w+ on "):
        await copy(local, url, limits=PATIENT)
    with pytest.raises(SourceServed, match=r"is served \(process \w+ on .*: stop the servers"):
        await copy(url, f"sqlite:{folder / 'b'}", limits=PATIENT)
    await let_go(idle)

    await stop_half_way(local, url, monkeypatch)
    with pytest.raises(SourceMissing, match="holds a copy that is not finished"):
        await copy(url, f"sqlite:{folder / 'b'}", limits=QUICK)
    with pytest.raises(TargetNotEmpty, match=rf"it holds a copy of sqlite:{folder}/a"):
        await copy(await make(folder / "c"), url, limits=QUICK)
    assert (await copy(local, url, limits=QUICK)).outcome == "finished"
    with pytest.raises(TargetNotEmpty, match="it holds a copy of"):
        await copy(await make(folder / "d"), url, limits=QUICK)
    assert names_in(folder) == {"a", "c", "d"}

    back = f"sqlite:{folder / 'b'}"
    await stop_half_way(url, back, monkeypatch)
    store = await held(open_store(url))
    await claimed(store)
    await let_go(store)
    with pytest.raises(SourceChanged):
        await copy(url, back, limits=QUICK)
