"""Damaged rows: those that a server lives with go over as they are, and are named."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pushlane_storage.bucket import ShardKey
from pushlane_storage.copy.errors import CopyFailed, SidesDiffer, SourceDamaged
from pushlane_storage.copy.run import copy
from pushlane_storage.copy.verification import Verification, Verified
from pushlane_storage.interface import StoreDamaged
from pushlane_storage.queue import QueueConfig
from pushlane_storage.sqlite.store import SqliteStore
from pushlane_storage.url import open_store
from tests.held import held, let_go
from tests.storage.copy.tools import contents, fill, names_in
from tests.storage.samples import START, claimed, messages, seqs_of


async def make(folder: Path) -> ShardKey:
    store = await SqliteStore.open(folder)
    row = await store.catalog.create("default", "orders", QueueConfig())
    owner = await claimed(store, row.id)
    for number in range(3):
        await owner.append(2 * number, messages(2))
    await owner.settle(0, owner.bucket(), acked=[(owner.seq(0), owner.seq(0))])
    await let_go(store)
    return owner.shard


def change(folder: Path, *statements: str, file: str = "pushlane.db") -> None:
    with closing(sqlite3.connect(folder / file)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


async def test_segments_are_carried_and_named(folder: Path) -> None:
    shard = await make(folder / "a")
    change(
        folder / "a",
        "UPDATE payload SET body = x'90' WHERE id = 2",
        "DELETE FROM payload WHERE id = 3",
    )
    source, target = f"sqlite:{folder / 'a'}", f"sqlite:{folder / 'b'}"
    done = await copy(source, target)
    assert done.verified is not None
    assert (done.verified.counts.messages, done.verified.counts.damaged) == (6, 2)
    second = (1 << 40) + 2
    assert done.verified.damaged == [
        f"segment {first} of bucket 4.1.{START} of shard 0 of queue {shard.queue_id}"
        for first in (second, second + 2)
    ]
    for url in (source, target):
        store = await held(open_store(url))
        [bucket] = (await store.outline(shard)).buckets
        assert len(await store.heads(shard, bucket.key)) == 3  # their places count
        assert seqs_of(await store.segments(shard, bucket.key, 0, 99)) == [1 << 40, (1 << 40) + 1]
        await let_go(store)


async def test_the_settlement_log_is_carried_and_named(folder: Path) -> None:
    shard = await make(folder / "a")
    change(folder / "a", "UPDATE settlement SET body = x'90'")
    done = await copy(f"sqlite:{folder / 'a'}", f"sqlite:{folder / 'b'}")
    assert done.verified is not None
    assert done.verified.damaged == [
        f"settlement 1.0 of bucket 4.1.{START} of shard 0 of queue {shard.queue_id}"
    ]
    store = await held(open_store(f"sqlite:{folder / 'b'}"))
    [bucket] = (await store.outline(shard)).buckets
    with pytest.raises(StoreDamaged):  # as in the source: that shard is not opened
        await store.settlements(shard, bucket.key)
    await let_go(store)


async def test_rows_that_nothing_goes_on_without(folder: Path) -> None:
    shard = await make(folder / "a")
    change(folder / "a", "UPDATE bucket SET first = first + 1")
    text = rf"shard 0 of queue {shard.queue_id} \(orders\): the row of .* is damaged; without it"
    with pytest.raises(SourceDamaged, match=text):
        await copy(f"sqlite:{folder / 'a'}", f"sqlite:{folder / 'b'}")
    change(folder / "a", "UPDATE bucket SET first = first - 1", "UPDATE queue SET config = '{'")
    with pytest.raises(SourceDamaged, match="the configuration of queue orders is damaged"):
        await copy(f"sqlite:{folder / 'a'}", f"sqlite:{folder / 'b'}")
    assert names_in(folder) == {"a"}


async def test_a_column_that_has_no_place_elsewhere(folder: Path) -> None:
    await make(folder / "a")
    change(folder / "a", "UPDATE segment SET size = 'many' WHERE first & 2")
    with pytest.raises(CopyFailed, match=r"is damaged, and its size \('many'\) can't be carried"):
        await copy(f"sqlite:{folder / 'a'}", f"sqlite:{folder / 'b'}")
    assert "pushlane.db" not in names_in(folder / "b")


class Tampering(Verification):
    """Something happens to the target before it is verified."""

    statement = ""
    folder = Path()

    async def run(self) -> Verified:
        rows = self._target
        await rows.run(lambda connection: connection.execute(self.statement))  # type: ignore[attr-defined]
        return await super().run()


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("DELETE FROM segment WHERE first & 3", "bucket 4.2"),
        ("UPDATE payload SET body = x'90'", "bucket 0.1"),
        ("UPDATE segment SET checksum = checksum + 1", "bucket 0.1"),
        ("UPDATE mark SET marks = x'90'", "bucket 0.1"),
        ("DELETE FROM settlement WHERE n = 7", "bucket 4.2"),
        ("DELETE FROM schedule WHERE seq & 2", "shard 0 of queue"),
        ("DELETE FROM seal WHERE owner = 2", "shard 0 of queue"),
        ("UPDATE queue SET version = version + 1", "queue orders of tenant default"),
        ("DELETE FROM queue WHERE name = 'going'", "queue going of tenant"),
        ("DELETE FROM bucket WHERE lane = 9", "bucket 9.1"),
        ("DELETE FROM usage WHERE minute < 1440", "the usage of all days"),
        ("UPDATE usage SET counters = x'920080' WHERE minute = 7", "the usage of default on day 0"),
    ],
)
async def test_a_difference_is_found_and_named(
    statement: str, what: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = f"sqlite:{folder / 'a'}", f"sqlite:{folder / 'b'}"
    await fill(source)
    monkeypatch.setattr(Tampering, "statement", statement)
    monkeypatch.setattr("pushlane_storage.copy.run.Verification", Tampering)
    with pytest.raises(SidesDiffer, match=f"^{what}.* is not the same on both sides: run it again"):
        await copy(source, target)
    assert "pushlane.db" not in names_in(folder / "b")


async def test_what_was_missing_is_copied_when_it_is_run_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = f"sqlite:{folder / 'a'}", f"sqlite:{folder / 'b'}"
    world = await fill(source)
    monkeypatch.setattr(Tampering, "statement", "DELETE FROM segment WHERE first & 3")
    with monkeypatch.context() as patch:
        patch.setattr("pushlane_storage.copy.run.Verification", Tampering)
        with pytest.raises(SidesDiffer):
            await copy(source, target)
    assert (await copy(source, target)).outcome == "finished"
    assert await contents(target, world) == await contents(source, world)
