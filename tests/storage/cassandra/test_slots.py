"""Comparing the slots' rows with what a process claimed."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import trio
import trio.testing

from pushlane_storage.bucket import Bucket, ShardKey
from pushlane_storage.cassandra.ring import Change, Level, read_row
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.cassandra.tables import SLOTS
from pushlane_storage.interface import Fenced, StoreRefused, StoreUnknown
from pushlane_storage.slot import slot_of
from tests.held import let_go
from tests.storage.cassandra.conftest import Join
from tests.storage.cassandra.model_ring import FaultyRing, ModelRing, Tables
from tests.storage.cassandra.tools import open_store, quick
from tests.storage.samples import Owner, messages, unique

Clock = trio.testing.MockClock


async def owner_of(store: CassandraStore) -> Owner:
    """Of a slot of its own: a second claim would end the first."""
    shard = ShardKey(unique("queue"), 0)
    while slot_of(shard) in store.ownership.slots.held():
        shard = ShardKey(unique("queue"), 0)
    return Owner(store, shard, await store.ownership.claim(slot_of(shard), "node"))


async def take(tables: Tables, slot: int) -> None:
    """What an operator might do who edits the rows by hand."""
    assert await ModelRing(tables).change(
        Change(SLOTS, (slot,), {"epoch": 1}, {"epoch": 2, "nonce": "another"})
    )


async def test_what_is_ours_stays_ours(join: Join) -> None:
    store = await join()
    assert store.ownership.shared
    assert await store.ownership.lost() == []
    owners = [await owner_of(store) for _ in range(20)]
    assert await store.ownership.lost() == []
    for owner in owners:
        await owner.append(0, messages(1))
    assert (store.stats().slots, store.stats().slots_lost) == (
        len(store.ownership.slots.held()),
        0,
    )


async def test_a_process_that_was_fenced_learns_it_without_writing(
    join: Join, autojump_clock: Clock
) -> None:
    first, second = await join(), await join()
    old = await owner_of(first)
    kept = await owner_of(first)
    first.ownership.node.beating = False
    await second.ownership.claim(slot_of(old.shard), "other")
    assert first.stats().fenced == 0
    lost = await first.ownership.lost()
    assert sorted(lost) == sorted([(slot_of(old.shard), 1), (slot_of(kept.shard), 1)])
    stats = first.stats()
    assert (stats.slots, stats.slots_lost, stats.fenced) == (0, 2, 1), "it is a new process by now"
    with pytest.raises(Fenced, match="was fenced by another one"):
        await old.append(0, messages(1))
    assert await first.ownership.lost() == lost, "until the slots are claimed anew"
    assert first.stats().slots_lost == 2
    assert await first.ownership.claim(slot_of(kept.shard), "node") == 2
    assert await first.ownership.lost() == [(slot_of(old.shard), 1)]
    with pytest.raises(StoreRefused, match="which is alive"):
        await first.ownership.claim(slot_of(old.shard), "node")


async def test_a_row_that_somebody_changed_ends_the_claim(join: Join, tables: Tables) -> None:
    store = await join()
    owner, other = await owner_of(store), await owner_of(store)
    slot = slot_of(owner.shard)
    await take(tables, slot)
    await owner.append(0, messages(1))  # not fenced: nobody could have read before this
    assert await store.ownership.lost() == [(slot, 1)]
    with pytest.raises(Fenced, match=f"slot {slot} was taken by another process"):
        await owner.append(1, messages(1))
    with pytest.raises(Fenced, match=f"slot {slot} was taken by another process"):
        await store.ownership.confirm(owner.shard)
    await store.ownership.release(slot)
    row = await read_row(ModelRing(tables), SLOTS, (slot,))
    assert row is not None
    assert row["nonce"] == "another", "what is another's is not given back"
    await other.append(0, messages(1))


async def test_a_plain_read_that_is_behind_is_not_believed(join: Join, tables: Tables) -> None:
    ring = StaleSlots(ModelRing(tables))
    store = await join(ring)
    owner = await owner_of(store)
    ring.is_stale = True
    assert await store.ownership.lost() == []
    assert ring.stale_reads == 1
    await owner.append(0, messages(1))


async def test_a_store_that_does_not_answer_takes_nothing_away(join: Join, tables: Tables) -> None:
    fates = {"nodes": "fine", "slots": "fine"}
    ring = FaultyRing(ModelRing(tables), lambda kind, what: _fate(fates, kind, what))
    store = await join(ring)
    owner = await owner_of(store)
    for table in fates:
        fates[table] = "lost"
        with pytest.raises((StoreUnknown, StoreRefused)):
            await store.ownership.lost()
        fates[table] = "fine"
    assert await store.ownership.lost() == []
    await owner.append(0, messages(1))


# One more epoch


async def reopened(owner: Owner) -> Owner:
    return Owner(owner.store, owner.shard, await owner.store.ownership.next_epoch(owner.shard))


@pytest.mark.parametrize("fate", ["done", "lost"])
async def test_an_epoch_that_was_taken_without_an_answer_is_used_by_nobody_twice(
    join: Join, tables: Tables, fate: str
) -> None:
    fates: list[str] = []

    def play(kind: str, what: Any) -> str:
        return fates.pop(0) if fates and kind == "change" and what.table is SLOTS else "fine"

    store = await join(FaultyRing(ModelRing(tables), play), decisions=2)
    owner = await owner_of(store)
    fates += [fate]
    again = await reopened(owner)
    assert again.epoch == 2
    fates += [fate, "refused"]
    with pytest.raises(StoreUnknown) if fate == "lost" else nullcontext():
        again = await reopened(owner)
    fates.clear()
    last = await reopened(owner)
    row = await read_row(ModelRing(tables), SLOTS, (slot_of(owner.shard),))
    assert row is not None
    assert row["epoch"] == last.epoch > again.epoch
    await last.append(0, messages(1))
    assert await store.ownership.lost() == []


async def test_who_outlived_an_owner_takes_no_epoch_that_it_took_meanwhile(
    join: Join, tables: Tables
) -> None:
    """The owner is fenced, doesn't know it, and takes one more between the claimant's steps."""
    first = await join()
    owner = await owner_of(first)

    class Slow(FaultyRing):
        async def change(self, change: Any) -> bool:
            if change.table is SLOTS and not first.ownership.node.fence.is_down:
                assert (await reopened(owner)).epoch == 2
                first.ownership.node.fence.is_down = True
            return await super().change(change)

    second = await join(Slow(ModelRing(tables), lambda *_: "fine"))
    await second.ownership.watches._fence(first.ownership.node.process)
    assert await second.ownership.claim(slot_of(owner.shard), "other") == 3


async def test_an_epoch_of_a_slot_that_is_another_s_is_refused(join: Join, tables: Tables) -> None:
    store = await join()
    owner = await owner_of(store)
    await take(tables, slot_of(owner.shard))
    with pytest.raises(Fenced, match="was taken by another process"):
        await reopened(owner)
    await store.ownership.release(slot_of(owner.shard))
    with pytest.raises(Fenced, match="is not ours"):
        await reopened(owner)


async def test_what_was_written_under_a_lower_epoch_is_not_confirmed(join: Join) -> None:
    """It lands while the shard opens again: whoever reads then may not have seen it."""
    store = await join()
    owner = await owner_of(store)
    errors: list[Exception | None] = []
    segment = owner.segment(0, messages(1))
    store.append_soon(owner.shard, segment, Bucket(segment.bucket, segment.first), errors.append)
    again = await reopened(owner)
    await again.append(0, messages(1))
    [error] = errors
    assert isinstance(error, Fenced)


# Giving back


@pytest.mark.parametrize("fate", ["done", "lost", "refused"])
async def test_a_slot_that_could_not_be_given_back_is_given_back_later(
    join: Join, tables: Tables, fate: str
) -> None:
    fates = {"slots": "fine"}
    ring = FaultyRing(
        ModelRing(tables),
        lambda kind, what: fates["slots"] if kind == "change" and what.table is SLOTS else "fine",
    )
    first, second = await join(ring, decisions=1), await join()
    owner = await owner_of(first)
    slot = slot_of(owner.shard)
    fates["slots"] = fate
    with pytest.raises((StoreRefused, StoreUnknown)) if fate != "done" else nullcontext():
        await first.ownership.release(slot)
    with pytest.raises(Fenced):
        await owner.append(0, messages(1))
    fates["slots"] = "fine"
    assert await first.ownership.lost() == []
    assert await second.ownership.claim(slot, "other") == 2


async def test_a_claim_without_an_answer_keeps_nobody_out(join: Join, tables: Tables) -> None:
    asked: list[str] = []

    def fate(kind: str, what: Any) -> str:
        """The transaction times out, and what came of it can't be read."""
        if what.table is not SLOTS:
            return "fine"
        asked.append(kind)
        return {1: "fine", 2: "done", 3: "refused"}.get(len(asked), "fine")

    first, second = await join(FaultyRing(ModelRing(tables), fate)), await join()
    with pytest.raises(StoreUnknown):
        await first.ownership.claim(9, "alpha")
    assert asked == ["serial", "change", "serial"]
    with pytest.raises(StoreRefused, match="which is alive"):
        await second.ownership.claim(9, "beta")
    assert await first.ownership.lost() == []
    assert await second.ownership.claim(9, "beta") == 2


async def test_on_a_real_node() -> None:
    limits = quick(tries=3)
    first, second = await open_store(limits=limits), await open_store(limits=limits)
    try:
        owner = await owner_of(first)
        assert await first.ownership.lost() == []
        await second.ownership.watches._fence(first.ownership.node.process)
        epoch = await second.ownership.claim(slot_of(owner.shard), "other")
        assert epoch == owner.epoch + 1
        assert await first.ownership.lost() == [(slot_of(owner.shard), owner.epoch)]
        with pytest.raises(Fenced):
            await owner.append(0, messages(1))
        assert await second.ownership.lost() == []
    finally:
        await let_go(first)
        await let_go(second)


class StaleSlots(FaultyRing):
    """Plain reads of slots show what was there before they were claimed."""

    def __init__(self, ring: ModelRing) -> None:
        super().__init__(ring, lambda *_: "fine")
        self.is_stale = False
        self.stale_reads = 0

    async def read(self, range: Any) -> Any:
        if self.is_stale and range.table is SLOTS and range.level is not Level.SERIAL:
            self.stale_reads += 1
            return []
        return await super().read(range)


def _fate(fates: dict[str, Any], kind: str, what: Any) -> Any:
    return fates.get(what.table.name, "fine") if kind == "read" else "fine"
