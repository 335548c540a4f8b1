"""Queue rows: compare-and-set, fresh ids, deletion."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from pushlane_storage.bucket import CONTROL, Bucket, BucketKey, ShardKey
from pushlane_storage.interface import Backend, QueueExists, QueueMissing, VersionConflict
from pushlane_storage.note import Note
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.seal import Seal
from pushlane_storage.seq import make_seq
from pushlane_storage.slot import slot_of
from tests.storage.samples import FULL_CONFIG, claimed, claimed_all, message

Reopen = Callable[[], Awaitable[Backend]]
RACERS = 40


async def remove(store: Backend, row: QueueRow) -> None:
    await store.catalog.remove(await store.catalog.mark_deleting(row))


async def winners(*attempts: Callable[[], Awaitable[object]]) -> int:
    """How many of these, run at the same time, were not refused."""
    won = 0

    async def run(attempt: Callable[[], Awaitable[object]]) -> None:
        nonlocal won
        try:
            await attempt()
        except (QueueExists, VersionConflict):
            return
        won += 1

    async with trio.open_nursery() as nursery:
        for attempt in attempts:
            nursery.start_soon(run, attempt)
    return won


class CatalogConformance:
    async def test_a_new_queue_has_version_1_and_is_read_back(
        self, store: Backend, tenant: str
    ) -> None:
        row = await store.catalog.create(tenant, "orders", QueueConfig())
        assert row == QueueRow(tenant, "orders", row.id, QueueConfig(), 1, False)
        assert await store.catalog.read(tenant, "orders") == row

    async def test_every_field_of_the_configuration_comes_back(
        self, store: Backend, reopen: Reopen, tenant: str
    ) -> None:
        for field in QueueConfig.__struct_fields__:
            assert getattr(FULL_CONFIG, field) != getattr(QueueConfig(), field), field
        row = await store.catalog.create(tenant, "full", FULL_CONFIG)
        assert row.config == FULL_CONFIG
        store = await reopen()
        assert await store.catalog.read(tenant, "full") == row

    async def test_a_name_is_taken_once(self, store: Backend, tenant: str) -> None:
        row = await store.catalog.create(tenant, "orders", QueueConfig())
        with pytest.raises(QueueExists):
            await store.catalog.create(tenant, "orders", FULL_CONFIG)
        assert await store.catalog.read(tenant, "orders") == row

    async def test_a_queue_that_is_not_there_reads_as_none(
        self, store: Backend, tenant: str
    ) -> None:
        assert await store.catalog.read(tenant, "nothing") is None

    async def test_tenants_do_not_see_each_other(self, store: Backend, tenant: str) -> None:
        other = tenant + "x"
        mine = await store.catalog.create(tenant, "orders", QueueConfig())
        theirs = await store.catalog.create(other, "orders", FULL_CONFIG)
        assert mine.id != theirs.id
        await remove(store, theirs)
        assert await store.catalog.list(tenant, "", 10) == [mine]
        assert await store.catalog.list(other, "", 10) == []

    async def test_queues_are_listed_by_name_page_by_page(
        self, store: Backend, tenant: str
    ) -> None:
        names = ["b", "a.dead", "Z", "a", "_x", "a-1", "10", "9"]
        rows = {name: await store.catalog.create(tenant, name, QueueConfig()) for name in names}
        everything = [rows[name] for name in sorted(names)]
        assert await store.catalog.list(tenant, "", 100) == everything
        assert await store.catalog.list(tenant, "", 3) == everything[:3]
        assert await store.catalog.list(tenant, everything[2].name, 3) == everything[3:6]
        assert await store.catalog.list(tenant, "a", 1) == [rows["a-1"]]
        assert await store.catalog.list(tenant, "a,", 1) == [rows["a-1"]]
        assert await store.catalog.list(tenant, "b", 100) == []

    async def test_an_update_replaces_the_configuration(
        self, store: Backend, reopen: Reopen, tenant: str
    ) -> None:
        first = await store.catalog.create(tenant, "orders", QueueConfig())
        second = await store.catalog.update(first, FULL_CONFIG)
        assert second == QueueRow(tenant, "orders", first.id, FULL_CONFIG, 2, False)
        third = await store.catalog.update(second, QueueConfig(paused=True))
        assert third == QueueRow(tenant, "orders", first.id, QueueConfig(paused=True), 3, False)
        store = await reopen()
        assert await store.catalog.read(tenant, "orders") == third

    async def test_an_old_version_changes_nothing(self, store: Backend, tenant: str) -> None:
        first = await store.catalog.create(tenant, "orders", QueueConfig())
        second = await store.catalog.update(first, FULL_CONFIG)
        with pytest.raises(VersionConflict):
            await store.catalog.update(first, QueueConfig())
        with pytest.raises(VersionConflict):
            await store.catalog.mark_deleting(first)
        assert await store.catalog.read(tenant, "orders") == second

    async def test_what_is_not_there_can_not_be_changed(self, store: Backend, tenant: str) -> None:
        row = QueueRow(tenant, "nothing", "0" * 32, QueueConfig(), 1)
        with pytest.raises(QueueMissing):
            await store.catalog.update(row, QueueConfig())
        with pytest.raises(QueueMissing):
            await store.catalog.mark_deleting(row)
        await store.catalog.remove(row)
        assert await store.catalog.read(tenant, "nothing") is None

    async def test_a_queue_that_is_being_deleted_may_lose_shards(
        self, store: Backend, tenant: str
    ) -> None:
        row = await store.catalog.create(tenant, "q", QueueConfig(shards=3))
        row = await store.catalog.mark_deleting(row)
        left = await store.catalog.update(row, QueueConfig(shards=1))
        assert (left.deleting, left.config.shards, left.version) == (True, 1, row.version + 1)
        assert await store.catalog.read(tenant, "q") == left
        with pytest.raises(VersionConflict):
            await store.catalog.update(row, QueueConfig(shards=2))
        assert await store.catalog.mark_deleting(row) == left
        await store.catalog.remove(left)
        assert await store.catalog.read(tenant, "q") is None

    async def test_a_queue_being_deleted_keeps_its_name(
        self, store: Backend, reopen: Reopen, tenant: str
    ) -> None:
        row = await store.catalog.create(tenant, "orders", FULL_CONFIG)
        deleting = await store.catalog.mark_deleting(row)
        assert deleting == QueueRow(tenant, "orders", row.id, FULL_CONFIG, 2, True)
        with pytest.raises(QueueExists):
            await store.catalog.create(tenant, "orders", QueueConfig())
        store = await reopen()
        assert await store.catalog.list(tenant, "", 10) == [deleting]

    async def test_marking_again_is_fine_and_never_goes_back(
        self, store: Backend, tenant: str
    ) -> None:
        row = await store.catalog.create(tenant, "orders", QueueConfig())
        deleting = await store.catalog.mark_deleting(row)
        assert await store.catalog.mark_deleting(row) == deleting
        assert await store.catalog.mark_deleting(deleting) == deleting
        updated = await store.catalog.update(deleting, FULL_CONFIG)
        assert updated.deleting
        assert await store.catalog.read(tenant, "orders") == updated

    async def test_a_removed_queue_is_gone(
        self, store: Backend, reopen: Reopen, tenant: str
    ) -> None:
        row = await store.catalog.create(tenant, "orders", QueueConfig())
        await remove(store, row)
        assert await store.catalog.read(tenant, "orders") is None
        store = await reopen()
        assert await store.catalog.list(tenant, "", 10) == []
        with pytest.raises(QueueMissing):
            await store.catalog.update(row, QueueConfig())

    async def test_removing_takes_all_that_the_shards_stored(
        self, store: Backend, reopen: Reopen, tenant: str
    ) -> None:
        row = await store.catalog.create(tenant, "orders", QueueConfig(shards=2))
        other = ShardKey(row.id + "0", 0)  # its id only begins like the removed one's
        shards = [ShardKey(row.id, 0), ShardKey(row.id, 1)]
        kept, *owners = await claimed_all(store, other, *shards)
        await kept.append(0, [message(not_before=5)])
        for owner in owners:
            await owner.append(0, [message(not_before=5)])
            await owner.settle(0, owner.bucket(), CONTROL)
            await store.write_seal(owner.shard, Seal(owner.epoch, [], []))
            await store.write_note(owner.shard, Note(owner.epoch, 0, tenant, "orders", 5))
        await remove(store, row)
        store = await reopen()
        for owner in owners:
            await assert_nothing_stored(store, owner.shard, owner.bucket())
            due = await store.ownership.due_shards(slot_of(owner.shard), 6, 1_000)
            assert row.id not in {shard.queue_id for shard in due}
        assert len((await store.outline(kept.shard)).buckets) == 1
        assert len(await store.due(kept.shard, 0, 10, 10)) == 1

    async def test_a_queue_made_again_is_another_one(self, store: Backend, tenant: str) -> None:
        old = await store.catalog.create(tenant, "orders", FULL_CONFIG)
        owner = await claimed(store, old.id)
        segment = await owner.append(0, [message()])
        await remove(store, old)
        new = await store.catalog.create(tenant, "orders", QueueConfig())
        assert new.id != old.id
        assert (new.version, new.deleting, new.config) == (1, False, QueueConfig())
        await assert_nothing_stored(store, ShardKey(new.id, 0), segment.bucket)
        with pytest.raises(VersionConflict):
            await store.catalog.update(old, FULL_CONFIG)
        with pytest.raises(VersionConflict):
            await store.catalog.mark_deleting(old)

    async def test_removing_again_leaves_the_next_queue_of_that_name_alone(
        self, store: Backend, tenant: str
    ) -> None:
        old = await store.catalog.mark_deleting(
            await store.catalog.create(tenant, "orders", QueueConfig())
        )
        await store.catalog.remove(old)
        await store.catalog.remove(old)
        new = await store.catalog.create(tenant, "orders", QueueConfig())
        owner = await claimed(store, new.id)
        await owner.append(0, [message()])
        await store.catalog.remove(old)
        assert await store.catalog.read(tenant, "orders") == new
        assert (await store.outline(owner.shard)).buckets == [Bucket(owner.bucket(), owner.seq(0))]

    async def test_one_of_many_creators_wins(self, store: Backend, tenant: str) -> None:
        async def create() -> None:
            await store.catalog.create(tenant, "orders", QueueConfig())

        assert await winners(*[create] * RACERS) == 1

    async def test_one_of_many_updates_wins(self, store: Backend, tenant: str) -> None:
        row = await store.catalog.create(tenant, "orders", QueueConfig())

        async def update() -> None:
            await store.catalog.update(row, FULL_CONFIG)

        assert await winners(*[update] * RACERS) == 1
        stored = await store.catalog.read(tenant, "orders")
        assert stored is not None
        assert stored.version == 2

    async def test_an_update_and_a_deletion_do_not_both_win(
        self, store: Backend, tenant: str
    ) -> None:
        row = await store.catalog.create(tenant, "orders", QueueConfig())

        async def update() -> None:
            await store.catalog.update(row, FULL_CONFIG)

        async def delete() -> None:
            await store.catalog.mark_deleting(row)

        assert await winners(update, delete) == 1


async def assert_nothing_stored(store: Backend, shard: ShardKey, key: BucketKey) -> None:
    assert (await store.outline(shard)).buckets == []
    assert (await store.outline(shard)).seals == []
    assert await store.due(shard, 0, 1 << 62, 10) == []
    assert await store.heads(shard, key) == []
    assert await store.segments(shard, key, 0, 10) == []
    assert await store.messages(shard, key, [make_seq(key.epoch, 0)]) == {}
    assert await store.settlements(shard, key) == []
    assert await store.settlements(shard, CONTROL) == []
