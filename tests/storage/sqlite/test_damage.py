"""Damage: what is not what was written is never delivered, and never silently lost."""

import pytest

from pushlane_storage.damage import Damage
from pushlane_storage.interface import StoreDamaged, StoreRefused
from pushlane_storage.queue import QueueConfig
from pushlane_storage.seal import Seal
from pushlane_storage.segment import head_of
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.store import SqliteStore
from pushlane_storage.sqlite.tables import Tables
from tests.storage.samples import Owner, claimed, messages, seqs_of
from tests.storage.sqlite.tools import Opened, until


async def damaged_store(
    opened: Opened, *harms: str, limits: Limits | None = None
) -> tuple[SqliteStore, Owner, list[Damage]]:
    """A bucket of four segments of three messages, harmed while nobody looked."""
    store = await opened()
    owner = await claimed(store)
    for number in range(4):
        await owner.append(3 * number, messages(3, dedup="d"))
    await store.close()
    for harm in harms:
        opened.sql(harm)
    told: list[Damage] = []
    owner.store = await opened(limits, damaged=told.append, wall=lambda: 77)
    return owner.store, owner, told


SECOND = "(SELECT payload FROM segment ORDER BY first LIMIT 1 OFFSET 1)"
FLIP = f"UPDATE payload SET body = replace(body, x'7b', x'7c') WHERE id = {SECOND}"
TEAR = f"UPDATE payload SET body = substr(body, 1, 9) WHERE id = {SECOND}"
LOSE = f"DELETE FROM payload WHERE id = {SECOND}"
FORMAT = f"UPDATE segment SET format = 9 WHERE payload = {SECOND}"
COUNT = f"UPDATE segment SET count = 2 WHERE payload = {SECOND}"
MARKS = f"UPDATE mark SET marks = x'90' WHERE payload = {SECOND}"
NO_MARKS = f"DELETE FROM mark WHERE payload = {SECOND}"
ALL_BUT_FIRST = "UPDATE payload SET body = x'90' WHERE id > 1"
HARMS = [FLIP, TEAR, LOSE, FORMAT, COUNT, MARKS, NO_MARKS]


@pytest.mark.parametrize("harm", HARMS)
async def test_a_damaged_segment_is_left_out_and_set_aside(opened: Opened, harm: str) -> None:
    store, owner, told = await damaged_store(opened, harm)
    shard, key, seq = owner.shard, owner.bucket(), owner.seq
    expected = [seq(number) for number in (0, 1, 2, 6, 7, 8, 9, 10, 11)]
    assert seqs_of(await store.segments(shard, key, 0, 100)) == expected
    assert seqs_of(await store.segments(shard, key, seq(0), 4)) == expected[:6]
    assert seqs_of(await store.segments(shard, key, seq(3), 1)) == expected[3:6]
    assert seqs_of(await store.segments(shard, key, seq(5), 1)) == expected[3:6]
    found = await store.messages(shard, key, [seq(number) for number in range(12)])
    assert sorted(found) == expected
    await until(lambda: bool(told))
    assert [(one.shard, one.bucket, one.first, one.found_at) for one in told] == [
        (shard, key, seq(3), 77)
    ]
    assert told[0].count == (2 if harm == COUNT else 3)
    assert await store.damaged(shard, key) == told
    assert store.stats().damaged == 1


@pytest.mark.parametrize("harm", HARMS)
async def test_its_place_still_counts(opened: Opened, harm: str) -> None:
    """Else recovery would take everything behind it for never stored."""
    store, owner, _ = await damaged_store(opened, harm)
    heads = await store.heads(owner.shard, owner.bucket())
    assert [head.first for head in heads] == [owner.seq(number) for number in (0, 3, 6, 9)]
    whole = [head_of(owner.segment(3 * number, messages(3, dedup="d"))) for number in range(4)]
    assert heads == whole  # its head was not harmed, or is mended from the body


async def test_a_head_beyond_repair_keeps_what_it_says(opened: Opened) -> None:
    store, owner, _ = await damaged_store(opened, MARKS, TEAR)
    heads = await store.heads(owner.shard, owner.bucket())
    assert (heads[1].first, heads[1].count, heads[1].marks) == (owner.seq(3), 3, [])


async def test_when_the_rest_of_a_bucket_is_damaged_it_ends_there(opened: Opened) -> None:
    store, owner, told = await damaged_store(opened, ALL_BUT_FIRST)
    shard, key = owner.shard, owner.bucket()
    assert seqs_of(await store.segments(shard, key, 0, 100)) == [owner.seq(n) for n in range(3)]
    assert await store.segments(shard, key, owner.seq(3), 100) == []
    await until(lambda: len(told) == 3)
    assert [one.first for one in await store.damaged(shard, key)] == [
        owner.seq(number) for number in (3, 6, 9)
    ]


async def test_the_copy_outlives_its_bucket(opened: Opened) -> None:
    store, owner, told = await damaged_store(opened, FLIP)
    shard, key = owner.shard, owner.bucket()
    await store.segments(shard, key, 0, 100)
    await until(lambda: bool(told))
    await owner.drain(key)
    await store.drop(shard, key)
    store = await opened.again(store)
    assert await store.damaged(shard, key) == told
    [(body,)] = opened.sql("SELECT body FROM quarantine")
    assert b'|"n":0}' in body


async def test_a_damaged_segment_that_can_not_be_kept_is_left_out_all_the_same(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, owner, told = await damaged_store(opened, FLIP)

    def refuse(*_: object) -> None:
        raise StoreRefused("no room")

    monkeypatch.setattr(Tables, "note_damage", refuse)
    assert len(await store.segments(owner.shard, owner.bucket(), 0, 100)) == 3
    assert len(told) == 1
    assert await store.damaged(owner.shard, owner.bucket()) == []


async def test_the_quarantine_is_bounded(opened: Opened) -> None:
    limits = Limits(quarantine_rows=2)
    store, owner, told = await damaged_store(opened, ALL_BUT_FIRST, limits=limits)
    shard, key = owner.shard, owner.bucket()
    await store.segments(shard, key, 0, 100)
    await until(lambda: len(told) == 2)
    assert len(await store.damaged(shard, key)) == 2
    store = await opened.again(store, limits=limits)
    await store.messages(shard, key, [owner.seq(10)])
    assert store.stats().damaged == 1
    await store.usage.put([])
    assert len(await store.damaged(shard, key)) == 2


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE settlement SET body = replace(body, x'05', x'06')",
        "UPDATE settlement SET body = substr(body, 1, 5)",
        "UPDATE settlement SET n = 1",
    ],
)
async def test_a_damaged_settlement_is_an_error(opened: Opened, harm: str) -> None:
    store = await opened()
    owner = await claimed(store)
    await owner.settle(0, owner.bucket(), acked=[(5, 9)])
    await store.close()
    opened.sql(harm)
    store = await opened()
    with pytest.raises(StoreDamaged, match="settlement"):
        await store.settlements(owner.shard, owner.bucket())


async def test_a_damaged_bucket_row_is_an_error(opened: Opened) -> None:
    store = await opened()
    owner = await claimed(store)
    await owner.append(0, messages(1))
    await store.close()
    opened.sql("UPDATE bucket SET drained = 1")
    store = await opened()
    with pytest.raises(StoreDamaged, match="row of"):
        await store.outline(owner.shard)


async def test_damaged_rows_of_other_tables_are_errors(opened: Opened) -> None:
    store = await opened()
    owner = await claimed(store)
    await owner.append(0, messages(1))
    await store.write_seal(owner.shard, Seal(owner.epoch, [(4, 1, 7)], []))
    await store.catalog.create("t", "q", QueueConfig())
    await store.close()
    opened.sql("UPDATE seal SET body = replace(body, x'07', x'08')")
    opened.sql("UPDATE queue SET config = '{'")
    store = await opened()
    with pytest.raises(StoreDamaged, match="seal"):
        await store.outline(owner.shard)
    with pytest.raises(StoreDamaged, match="queue q"):
        await store.catalog.read("t", "q")
