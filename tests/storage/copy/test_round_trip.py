"""There and back: what readers of the target see is what readers of the source see."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pushlane_storage.copy.record import Counts
from pushlane_storage.copy.run import Copied, copy
from pushlane_storage.slot import SLOTS, slot_of
from pushlane_storage.sqlite.backup import backup, verify
from pushlane_storage.url import open_store
from tests.held import held, let_go
from tests.storage.copy.tools import QUICK, World, contents, fill, rows_in

EVERYTHING = Counts(
    queues=4,
    shards=3,
    buckets=12,
    segments=3 * (6 + 31),
    messages=3 * (3 * 43 + 31),
    settlements=3 * (2 + 1 + 1 + 1 + 1 + 8),
    seals=3,
    scheduled=3 * (3 + 30),
    usage=4,
)


def check_counts(done: Copied, damaged: int = 0) -> None:
    assert done.outcome == "finished"
    assert done.record is not None
    assert done.verified is not None
    assert done.verified.counts == done.record.copied == EVERYTHING + Counts(damaged=damaged)
    assert len(done.verified.damaged) == damaged
    assert [line.messages for line in done.verified.shards] == [160, 160, 160]
    assert len({line.checksum for line in done.verified.shards}) == 3
    known = Counts(queues=4, shards=3, buckets=12, messages=EVERYTHING.messages)
    assert done.plan == known


def damage(folder: Path) -> None:
    """Segments with a wrong body, no body, and a wrong head. Their places count nevertheless."""
    with closing(sqlite3.connect(folder / "pushlane.db")) as connection:
        connection.execute("UPDATE payload SET body = x'90' WHERE id = 1")
        connection.execute("DELETE FROM payload WHERE id = 2")
        connection.execute("UPDATE segment SET head = head + 1 WHERE payload = 3")
        connection.commit()


async def check_epochs(url: str, world: World, done: Copied) -> None:
    """Whoever claims there gives out nothing that was given out before."""
    assert done.record is not None
    assert done.record.epoch >= world.last + 1_000
    store = await held(open_store(url))
    slots = {slot_of(shard) for shard in world.shards}
    for slot in (*slots, min(set(range(SLOTS)) - slots)):
        assert await store.ownership.claim(slot, "node-1") > done.record.epoch
    await let_go(store)


async def test_from_sqlite_and_back(
    folder: Path, keyspace: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for side in ("sqlite_source", "keyspace"):  # several pages of everything
        monkeypatch.setattr(f"pushlane_storage.copy.{side}.PAGE_ROWS", 7)
        monkeypatch.setattr(f"pushlane_storage.copy.{side}.PAGE_BYTES", 2_000)
    start, middle, end = f"sqlite:{folder / 'a'}", keyspace(), f"sqlite:{folder / 'b'}"
    world = await fill(start)
    damage(folder / "a")
    there = await copy(start, middle, limits=QUICK)
    expected = await contents(start, world)
    assert rows_in(expected) > 20_000
    assert await contents(middle, world) == expected
    back = await copy(middle, end, limits=QUICK)
    assert await contents(end, world) == expected
    check_counts(there, damaged=3)
    check_counts(back, damaged=3)
    assert there.record is not None
    assert back.record is not None
    assert there.verified == back.verified
    assert back.record.epoch > there.record.epoch + 1_000
    await check_epochs(middle, world, there)
    await check_epochs(end, world, back)


async def test_a_copied_folder_can_be_backed_up(folder: Path) -> None:
    await fill(f"sqlite:{folder / 'a'}")
    check_counts(await copy(f"sqlite:{folder / 'a'}", f"sqlite:{folder / 'b'}"))
    made = backup(folder / "b", folder / "c")
    assert verify(folder / "c") == made
    assert made.contents.messages == EVERYTHING.messages


async def test_an_empty_store(folder: Path) -> None:
    source, target = f"sqlite:{folder / 'a'}", f"sqlite:{folder / 'b'}"
    await let_go(await held(open_store(source)))
    done = await copy(source, target)
    assert done.record is not None
    assert done.record.copied == done.plan == Counts()
    store = await held(open_store(target))
    assert await store.catalog.list("default", "", 9) == []
    await let_go(store)
