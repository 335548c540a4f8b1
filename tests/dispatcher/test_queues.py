"""Queues by name: creating, reading, changing, listing, deleting, and what can go wrong."""

import pytest

from pushlane.wire.errors import BadRequest, Conflict, NotFound, Unavailable
from pushlane_dispatcher.queues import Queues
from pushlane_dispatcher.redrive import Redrive
from pushlane_dispatcher.settings import Settings
from pushlane_storage.interface import StoreRefused, StoreUnknown
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.rig import TENANT, Call, Consumer, ScriptedStore, dispatching, fail, message


async def test_a_created_queue_can_be_read() -> None:
    async with dispatching() as dispatcher:
        row = await dispatcher.create(TENANT, "q", QueueConfig(max_attempts=2))
        assert row.version == 1
        assert await dispatcher.get(TENANT, "q") == row
        assert await dispatcher.list(TENANT) == [row]


async def test_a_name_is_taken_once() -> None:
    async with dispatching() as dispatcher:
        await dispatcher.create(TENANT, "q")
        with pytest.raises(Conflict, match="queue q exists"):
            await dispatcher.create(TENANT, "q")


async def test_tenants_do_not_see_each_other() -> None:
    async with dispatching() as dispatcher:
        await dispatcher.create("one", "q")
        with pytest.raises(NotFound):
            await dispatcher.get("two", "q")
        assert await dispatcher.list("two") == []
        assert (await dispatcher.create("two", "q")).tenant == "two"


@pytest.mark.parametrize(
    ("tenant", "name"), [(TENANT, ""), (TENANT, ".q"), (TENANT, "a b"), ("", "q")]
)
async def test_bad_names_are_bad_requests_everywhere(tenant: str, name: str) -> None:
    async with dispatching() as dispatcher:
        with pytest.raises(BadRequest):
            await dispatcher.create(tenant, name)
        with pytest.raises(BadRequest):
            await dispatcher.get(tenant, name)
        with pytest.raises(BadRequest):
            await dispatcher.update(tenant, name, QueueConfig())
        with pytest.raises(BadRequest):
            await dispatcher.delete(tenant, name)
        with pytest.raises(BadRequest):
            await dispatcher.open(tenant, name, create=True)


async def test_a_missing_queue_is_not_found_everywhere() -> None:
    async with dispatching() as dispatcher:
        for use in (
            dispatcher.get(TENANT, "q"),
            dispatcher.update(TENANT, "q", QueueConfig()),
            dispatcher.delete(TENANT, "q"),
            dispatcher.open(TENANT, "q"),
            dispatcher.publish(TENANT, "q", [message()]),
            dispatcher.purge(TENANT, "q"),
            dispatcher.stats(TENANT, "q"),
            dispatcher.redrive(TENANT, "q", Redrive(max=1, budget_ms=1)),
            dispatcher.peek(TENANT, "q", 1),
        ):
            with pytest.raises(NotFound):
                await use


async def test_a_bad_configuration_is_refused_at_creation_and_change() -> None:
    async with dispatching() as dispatcher:
        with pytest.raises(BadRequest, match="ordering"):
            await dispatcher.create(TENANT, "q", QueueConfig(ordering="sequence"))
        await dispatcher.create(TENANT, "q")
        with pytest.raises(BadRequest, match="shards is 0"):
            await dispatcher.update(TENANT, "q", QueueConfig(shards=0))
        with pytest.raises(BadRequest, match="shards can't be changed"):
            await dispatcher.update(TENANT, "q", QueueConfig(shards=2))


async def test_lists_come_in_pages() -> None:
    async with dispatching() as dispatcher:
        for name in "cab":
            await dispatcher.create(TENANT, name)
        page = await dispatcher.list(TENANT, limit=2)
        assert [row.name for row in page] == ["a", "b"]
        assert [row.name for row in await dispatcher.list(TENANT, "b")] == ["c"]
        for limit in (0, 1_001):
            with pytest.raises(BadRequest, match="limit"):
                await dispatcher.list(TENANT, limit=limit)


async def test_an_update_replaces_and_can_insist_on_a_version() -> None:
    async with dispatching() as dispatcher:
        await dispatcher.create(TENANT, "q", QueueConfig(max_attempts=2))
        row = await dispatcher.update(TENANT, "q", QueueConfig(lease_ms=5_000), version=1)
        assert row.version == 2
        assert row.config == QueueConfig(lease_ms=5_000)
        assert await dispatcher.get(TENANT, "q") == row
        with pytest.raises(Conflict, match="has version 2, not 1"):
            await dispatcher.update(TENANT, "q", QueueConfig(), version=1)


async def test_an_update_that_another_node_outran_is_a_conflict() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        row = await dispatcher.create(TENANT, "q")

        async def outrun(call: object) -> object:
            return store.tables.read_queue(TENANT, "q")

        store.script.add("read_queue", outrun, outrun)
        store.tables.update_queue(row, QueueConfig(max_attempts=9))
        store.script.add("update_queue", lambda _: store_update(store, row))
        with pytest.raises(Conflict, match="meanwhile"):
            await dispatcher.update(TENANT, "q", QueueConfig())
        assert (await dispatcher.get(TENANT, "q")).config.max_attempts == 9


async def test_an_update_of_a_queue_that_another_node_deleted_finds_none() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        await dispatcher.create(TENANT, "q")

        async def vanish(call: Call) -> object:
            store.tables.remove_queue(store.tables.mark_deleting(await dispatcher.get(TENANT, "q")))
            return await call()

        store.script.add("mark_deleting", vanish)
        with pytest.raises(NotFound, match="there is no queue q"):
            await dispatcher.delete(TENANT, "q")


async def store_update(store: ScriptedStore, row: object) -> object:
    return store.tables.update_queue(row, QueueConfig())  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [StoreUnknown("?"), StoreRefused("no")])
async def test_a_store_that_can_not_answer_makes_it_unavailable(error: Exception) -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        store.script.add("create_queue", fail(error))
        with pytest.raises(Unavailable):
            await dispatcher.create(TENANT, "q")
        store.script.add("list_queues", fail(error))
        with pytest.raises(Unavailable):
            await dispatcher.list(TENANT)
        store.script.add("read_queue", fail(error))
        with pytest.raises(Unavailable):
            await dispatcher.get(TENANT, "q")


async def test_after_an_unknown_change_the_store_is_asked() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        row = await dispatcher.create(TENANT, "q")
        store.script.add("update_queue", fail(StoreUnknown("?")))
        with pytest.raises(Unavailable):
            await dispatcher.update(TENANT, "q", QueueConfig(max_attempts=9))
        store.tables.update_queue(row, QueueConfig(max_attempts=9))  # it had landed after all
        assert (await dispatcher.get(TENANT, "q")).config.max_attempts == 9


async def test_a_deleted_queue_is_gone_with_its_messages_and_can_be_made_again() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        old = await dispatcher.create(TENANT, "q")
        opened = await dispatcher.open(TENANT, "q")
        consumer = Consumer(opened.runners[0])
        publication = await opened.publish([message()])
        await consumer.got(1)
        await dispatcher.delete(TENANT, "q")
        assert consumer.end == ("not_found", "the queue was deleted")
        with pytest.raises(NotFound):
            await dispatcher.get(TENANT, "q")
        with pytest.raises(Unavailable):
            opened.runners[0].publish_soon([message()])
        new = await dispatcher.create(TENANT, "q")
        assert new.id != old.id
        assert (await dispatcher.stats(TENANT, "q")).stored == 0
        assert publication.ids[0] is not None
        with pytest.raises(NotFound):
            await dispatcher.explain(TENANT, "q", publication.ids[0])


async def test_a_queue_that_is_being_deleted_can_not_be_used_and_deleting_goes_on() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        await dispatcher.create(TENANT, "q")
        await dispatcher.publish(TENANT, "q", [message()])
        store.script.add("remove_queue", fail(StoreUnknown("?")))
        with pytest.raises(Unavailable):
            await dispatcher.delete(TENANT, "q")
        for use in (
            dispatcher.get(TENANT, "q"),
            dispatcher.update(TENANT, "q", QueueConfig()),
            dispatcher.open(TENANT, "q", create=True),
        ):
            with pytest.raises(NotFound, match="being deleted"):
                await use
        with pytest.raises(Conflict):
            await dispatcher.create(TENANT, "q")
        await dispatcher.delete(TENANT, "q")
        assert store.tables.read_queue(TENANT, "q") is None


async def test_open_creates_when_asked_and_only_then() -> None:
    async with dispatching() as dispatcher:
        with pytest.raises(NotFound):
            await dispatcher.open(TENANT, "q")
        opened = await dispatcher.open(TENANT, "q", create=True)
        assert opened.row == await dispatcher.get(TENANT, "q")
        assert await dispatcher.open(TENANT, "q", create=True) is opened


async def test_who_loses_the_race_to_create_takes_what_is_there() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:

        async def too_late(call: object) -> object:
            return None

        store.script.add("read_queue", too_late)
        row = store.tables.create_queue(TENANT, "q", QueueConfig(max_attempts=7))
        assert await dispatcher.ensure(TENANT, "q", QueueConfig()) == row


async def test_rows_are_remembered_up_to_a_bound() -> None:
    store = ScriptedStore()
    async with dispatching(store, settings=Settings(queue_rows=2)) as dispatcher:
        for name in "abc":
            await dispatcher.create(TENANT, name)
        store.script.calls.clear()
        for name in "bc":
            await dispatcher.get(TENANT, name)
        assert store.script.calls == []
        await dispatcher.get(TENANT, "a")
        assert store.script.called("read_queue") == [(TENANT, "a")]


async def test_an_update_reaches_open_shards() -> None:
    async with dispatching() as dispatcher:
        await dispatcher.create(TENANT, "q", QueueConfig(paused=True))
        opened = await dispatcher.open(TENANT, "q")
        consumer = Consumer(opened.runners[0])
        await opened.publish([message()])
        assert consumer.runs == []
        await dispatcher.update(TENANT, "q", QueueConfig())
        assert await consumer.got(1) == [b"1"]
        assert opened.row.config == QueueConfig()


async def test_a_dead_letter_queue_has_none_of_its_own() -> None:
    async with dispatching() as dispatcher:
        queues: Queues = dispatcher._queues
        q = await dispatcher.create(TENANT, "q")
        grave = await dispatcher.create(TENANT, "grave")
        dead = await dispatcher.create(TENANT, "old.dead", QueueConfig(dead_letter="x"))
        assert await queues.dead_letter(q) == "q.dead"
        assert await queues.dead_letter(grave) == "grave.dead"
        assert await queues.dead_letter(dead) is None
        opened = await dispatcher.open(TENANT, "grave")

        def target() -> str | None:
            return opened.runners[0]._shard.verdicts.dead_letter

        assert target() == "grave.dead"
        await dispatcher.update(TENANT, "q", QueueConfig(dead_letter="grave"))
        assert target() is None
        await dispatcher.update(TENANT, "q", QueueConfig(dead_letter=""))
        assert target() == "grave.dead"
        await dispatcher.create(TENANT, "r", QueueConfig(dead_letter="grave"))
        assert target() is None
        await dispatcher.delete(TENANT, "r")
        assert target() == "grave.dead"


async def test_who_is_a_dead_letter_queue_is_known_after_a_restart() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        await dispatcher.create(TENANT, "q", QueueConfig(dead_letter="grave"))
        await dispatcher.create(TENANT, "grave")
    async with dispatching(ScriptedStore(store.tables)) as dispatcher:
        grave = await dispatcher.get(TENANT, "grave")
        assert await dispatcher._queues.dead_letter(grave) is None


async def test_changing_a_queue_minds_no_dead_letter_queue_that_is_being_deleted() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        await dispatcher.create(TENANT, "grave")
        opened = await dispatcher.open(TENANT, "grave")
        row = await dispatcher.get(TENANT, "grave")
        await dispatcher._queues.mark_deleting(row)
        await dispatcher.create(TENANT, "q", QueueConfig(dead_letter="grave"))
        assert opened.running
