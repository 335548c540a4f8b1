"""Queues by name: creating, reading, changing, listing, deleting, and what can go wrong."""

import logging
from collections.abc import Awaitable, Callable

import pytest
import trio

from pushlane.wire.errors import BadRequest, Conflict, NotFound, Unavailable
from pushlane_dispatcher.browsing.redrive import Redrive
from pushlane_dispatcher.dispatcher import Dispatcher
from pushlane_dispatcher.settings import Settings
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import StoreRefused, StoreUnknown
from pushlane_storage.queue import QueueConfig, QueueRow
from tests.dispatcher.rig import (
    TENANT,
    Call,
    Consumer,
    Gate,
    ScriptedStore,
    blocked,
    dispatching,
    fail,
    message,
)
from tests.running import runners_of


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
        consumer = Consumer(runners_of(opened)[0])
        publication = await opened.publish([message()])
        await consumer.got(1)
        await dispatcher.delete(TENANT, "q")
        assert consumer.end == ("not_found", "the queue was deleted")
        with pytest.raises(NotFound):
            await dispatcher.get(TENANT, "q")
        with pytest.raises(Unavailable):
            runners_of(opened)[0].publish_soon([message()])
        new = await dispatcher.create(TENANT, "q")
        assert new.id != old.id
        assert (await dispatcher.stats(TENANT, "q")).stored == 0
        assert publication.ids[0] is not None
        with pytest.raises(NotFound):
            await dispatcher.explain(TENANT, "q", publication.ids[0])


async def cut_deletion(store: ScriptedStore) -> QueueRow:
    """A server that dies while it deletes a queue; its row as it was."""
    async with dispatching(store) as dispatcher:
        row = await dispatcher.create(TENANT, "q")
        await dispatcher.publish(TENANT, "q", [message()])
        store.script.add("remove_queue", fail(StoreUnknown("?")))
        with pytest.raises(Unavailable):
            await dispatcher.delete(TENANT, "q")
    return row


async def publish(dispatcher: Dispatcher) -> None:
    assert not (await dispatcher.publish(TENANT, "q", [message()], create=True)).failed


async def create(dispatcher: Dispatcher) -> None:
    await dispatcher.create(TENANT, "q")


async def ensure(dispatcher: Dispatcher) -> None:
    await dispatcher.ensure(TENANT, "q", QueueConfig())


@pytest.mark.parametrize("use", [publish, create, ensure])
async def test_whoever_needs_the_name_of_a_queue_that_was_half_deleted_finishes_it(
    use: Callable[[Dispatcher], Awaitable[None]],
) -> None:
    store = ScriptedStore()
    old = await cut_deletion(store)
    async with dispatching(ScriptedStore(store.tables)) as dispatcher:
        await use(dispatcher)
        row = await dispatcher.get(TENANT, "q")
        assert row.id != old.id
        assert store.tables.outline(ShardKey(old.id, 0)).buckets == []


async def get(dispatcher: Dispatcher) -> None:
    with pytest.raises(NotFound):
        await dispatcher.get(TENANT, "q")


async def update(dispatcher: Dispatcher) -> None:
    with pytest.raises(NotFound):
        await dispatcher.update(TENANT, "q", QueueConfig())


async def subscribe(dispatcher: Dispatcher) -> None:
    with pytest.raises(NotFound):
        await dispatcher.open(TENANT, "q")


async def list_all(dispatcher: Dispatcher) -> None:
    await dispatcher.list(TENANT)


@pytest.mark.parametrize("meet", [get, update, subscribe, list_all])
async def test_whoever_meets_a_queue_that_was_half_deleted_has_it_finished(
    meet: Callable[[Dispatcher], Awaitable[None]],
) -> None:
    store = ScriptedStore()
    old = await cut_deletion(store)
    async with dispatching(ScriptedStore(store.tables)) as dispatcher:
        await meet(dispatcher)
        await blocked()
        assert store.tables.read_queue(TENANT, "q") is None
        assert store.tables.outline(ShardKey(old.id, 0)).buckets == []


async def test_a_deletion_that_can_not_be_finished_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    store = ScriptedStore()
    await cut_deletion(store)
    async with dispatching(store) as dispatcher:
        store.script.add("remove_queue", fail(StoreRefused("no")), fail(StoreRefused("no")))
        with pytest.raises(Unavailable):
            await dispatcher.ensure(TENANT, "q", QueueConfig())
        await blocked()
        assert "could not be finished" in caplog.text
        assert (await dispatcher.ensure(TENANT, "q", QueueConfig())).version == 1


async def test_deletions_are_finished_a_few_at_once() -> None:
    store = ScriptedStore()
    for number in range(5):
        row = store.tables.create_queue(TENANT, f"q{number}", QueueConfig())
        store.tables.mark_deleting(row)
    gate = Gate()
    store.script.always["remove_queue"] = gate
    async with dispatching(store, settings=Settings(finishing=2)) as dispatcher:
        for _ in range(3):
            await dispatcher.list(TENANT)
            await blocked()
        assert len(store.script.called("remove_queue")) == 2
        gate.released.set()
        while await dispatcher.list(TENANT):
            await blocked()


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


async def test_rows_are_remembered_for_a_short_while() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        row = await dispatcher.create(TENANT, "q")
        changed = store.tables.update_queue(row, QueueConfig(lease_ms=7_000))
        assert await dispatcher.get(TENANT, "q") == row
        await trio.sleep(Settings().row_ms / 1000)
        assert await dispatcher.get(TENANT, "q") == changed


async def test_an_update_reaches_open_shards() -> None:
    async with dispatching() as dispatcher:
        await dispatcher.create(TENANT, "q", QueueConfig(paused=True))
        opened = await dispatcher.open(TENANT, "q")
        consumer = Consumer(runners_of(opened)[0])
        await opened.publish([message()])
        assert consumer.runs == []
        await dispatcher.update(TENANT, "q", QueueConfig())
        assert await consumer.got(1) == [b"1"]
        assert opened.row.config == QueueConfig()


async def test_what_dies_in_a_queue_that_others_name_is_kept() -> None:
    async with dispatching() as dispatcher:
        await dispatcher.create(TENANT, "q", QueueConfig(dead_letter="grave"))
        opened = await dispatcher.open(TENANT, "grave", create=True)  # with dead letters of its own
        assert runners_of(opened)[0]._shard.verdicts.dead_letter == "grave.dead"
        await opened.publish([message()])
        consumer = Consumer(runners_of(opened)[0])
        await consumer.got(1)
        await consumer.nack(dead=True)
        dead = await dispatcher.open(TENANT, "grave.dead", create=True)
        assert await Consumer(runners_of(dead)[0]).got(1) == [b"1"]


async def test_dead_letters_go_where_none_die_again() -> None:
    async with dispatching() as dispatcher:
        await dispatcher.create(TENANT, "orders")
        await dispatcher.create(TENANT, "grave", QueueConfig(dead_letter=""))
        await dispatcher.create(TENANT, "old.dead")
        with pytest.raises(Conflict, match=r"orders, which sends .* to orders\.dead"):
            await dispatcher.create(TENANT, "q", QueueConfig(dead_letter="orders"))
        for target in ("grave", "old.dead", "not.there", "", None):
            name = f"{target}-q"
            await dispatcher.create(TENANT, name, QueueConfig(dead_letter=target))
            with pytest.raises(Conflict, match="dead letters of its own"):
                await dispatcher.update(TENANT, name, QueueConfig(dead_letter="orders"))
            await dispatcher.update(TENANT, name, QueueConfig(dead_letter=target, lease_ms=5_000))


async def test_no_two_queues_bury_each_others_dead() -> None:
    async with dispatching() as dispatcher:
        await dispatcher.create(TENANT, "a", QueueConfig(dead_letter="b"))
        with pytest.raises(Conflict, match="to b"):
            await dispatcher.create(TENANT, "b", QueueConfig(dead_letter="a"))


async def test_what_was_configured_before_can_be_changed_otherwise() -> None:
    store = ScriptedStore()
    store.tables.create_queue(TENANT, "q", QueueConfig(dead_letter="orders"))
    async with dispatching(store) as dispatcher:
        await dispatcher.create(TENANT, "orders")
        config = QueueConfig(dead_letter="orders", lease_ms=5_000)
        assert (await dispatcher.update(TENANT, "q", config)).config == config


async def test_changing_a_queue_minds_no_dead_letter_queue_that_is_being_deleted() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        await dispatcher.create(TENANT, "grave")
        opened = await dispatcher.open(TENANT, "grave")
        row = await dispatcher.get(TENANT, "grave")
        await dispatcher._queues.mark_deleting(row)
        await dispatcher.create(TENANT, "q", QueueConfig(dead_letter="grave"))
        assert opened.running
