"""The walk: everything once, in one order, and from any place on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pushlane_storage import work
from pushlane_storage.copy import walk
from pushlane_storage.copy.record import Place
from pushlane_storage.copy.rows import Rows
from pushlane_storage.copy.sqlite_source import open_source
from pushlane_storage.copy.walk import Unit, Walk
from pushlane_storage.interface import StoreUnknown
from pushlane_storage.queue import QueueConfig
from pushlane_storage.sqlite.store import SqliteStore
from tests.held import let_go
from tests.storage.copy.tools import fill
from tests.storage.samples import claimed, messages


async def all_units(walk: Walk) -> list[Unit]:
    found: list[Unit] = []
    while group := await walk.group():
        found += group
    assert await walk.group() == []
    return found


async def test_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(f"sqlite:{folder}")
    async with open_source("a", folder) as source:
        units = await all_units(Walk(source.rows))
        places = [unit.place for unit in units]
        assert places == sorted(set(places))
        assert len(places) == 4 + 3 + 12
        assert places[:3] == [
            Place("default", "orders"),
            Place("default", "orders", 0),
            Place("default", "orders", 0, 0, 1, 1_700_000_000_000),
        ]
        assert {place.tenant for place in places[-2:]} == {"düsseldorf"}
        monkeypatch.setattr(walk, "QUEUES", 1)
        monkeypatch.setattr(walk, "GROUP_UNITS", 2)
        for number, place in enumerate(places):
            rest = await all_units(Walk(source.rows, place))
            assert [unit.place for unit in rest] == places[number + 1 :]


async def test_a_place_in_a_queue_that_is_gone(folder: Path) -> None:
    """It goes on with the next one."""
    await fill(f"sqlite:{folder}")
    async with open_source("a", folder) as source:
        rest = await all_units(Walk(source.rows, Place("default", "orders.a", 7)))
        assert rest[0].place == Place("default", "orders.dead")


class Flaky:
    """Rows of which each read fails the first time."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._failed: set[Any] = set()

    def __getattr__(self, name: str) -> Any:
        read = getattr(self._rows, name)

        async def flaky(*args: Any) -> Any:
            if (name, args) not in self._failed:
                self._failed.add((name, args))
                raise StoreUnknown(name)
            return await read(*args)

        return flaky


async def test_nothing_is_left_out_after_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(f"sqlite:{folder}")
    monkeypatch.setattr(work, "PAUSES_S", (0,) * 99)
    async with open_source("a", folder) as source:
        expected = await all_units(Walk(source.rows))
        flaky, found = Walk(Flaky(source.rows)), []
        while group := await work.patiently(flaky.group):
            found += group
        assert found == expected


async def test_groups_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await SqliteStore.open(folder)
    for name in range(5):
        row = await store.catalog.create("default", f"q{name}", QueueConfig())
        owner = await claimed(store, row.id)
        for start in range(10):
            await owner.append(start, messages(1), 4, start)
    await let_go(store)
    async with open_source("a", folder) as source:
        open_buckets = await Walk(source.rows).group()
        assert sum(unit.bucket is not None for unit in open_buckets) == 8
        monkeypatch.setattr(walk, "GROUP_BYTES", 1 << 60)
        assert len(await Walk(source.rows).group()) == 5 * (1 + 1 + 10)
        monkeypatch.setattr(walk, "GROUP_UNITS", 7)
        assert len(await Walk(source.rows).group()) == 7


async def test_what_the_last_server_left_in_the_log_is_read(folder: Path) -> None:
    """A server that was killed leaves a write-ahead log: it is a part of the store."""
    store = await SqliteStore.open(folder / "a")
    row = await store.catalog.create("default", "orders", QueueConfig())
    await (await claimed(store, row.id)).append(0, messages(9))
    (folder / "b").mkdir()
    for path in (folder / "a").iterdir():
        (folder / "b" / path.name).write_bytes(path.read_bytes())
    await let_go(store)
    assert (folder / "b" / "pushlane.db-wal").stat().st_size > 0
    async with open_source("b", folder / "b") as source:
        *_, last = await all_units(Walk(source.rows))
        assert last.shard is not None
        assert last.bucket is not None
        assert await source.rows.count(last.shard, last.bucket.key) == 9
