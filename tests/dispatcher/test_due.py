"""What is due in queues that nobody uses is seen to all the same."""

from __future__ import annotations

import pytest
import trio

from pushlane.wire.errors import Throttled
from pushlane_dispatcher.queues.due import DueShards
from pushlane_dispatcher.queues.queues import Elsewhere
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.stop import Stop
from pushlane_storage.interface import StoreRefused
from pushlane_storage.member import Owner
from pushlane_storage.note import DueShard
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.rig import (
    TENANT,
    Consumer,
    ScriptedStore,
    answer,
    blocked,
    dispatching,
    fail,
    memory_store,
    message,
)
from tests.running import runners_of, stats_now

SETTINGS = Settings(due_ms=1_000, idle_ms=5_000)


async def test_a_message_expires_in_a_queue_that_nobody_has_open() -> None:
    store = memory_store()
    async with dispatching(store, settings=SETTINGS) as dispatcher:
        await dispatcher.create(TENANT, "q", QueueConfig())
        wall = dispatcher.clock.wall()
        await dispatcher.publish(TENANT, "q", [message(b"1", expires_at=wall + 60_000)])
        await trio.sleep(15)
        assert dispatcher.open_shards == 0, "it was idle"
        await trio.sleep(40)
        assert (dispatcher.open_shards, dispatcher.due.opened) == (0, 0)
        await trio.sleep(8)
        assert dispatcher.due_numbers() == {"opened": 1}
        assert dispatcher.opened(TENANT, "q") is None
        assert (await dispatcher.stats(TENANT, "q.dead")).stored == 1
        await trio.sleep(20)
        assert dispatcher.open_shards == 0, "there is nothing more to do"
        assert dispatcher.due.opened == 1


async def test_a_message_expires_after_a_restart_that_nobody_noticed() -> None:
    store = memory_store()
    async with dispatching(store, settings=SETTINGS) as dispatcher:
        await dispatcher.create(TENANT, "q", QueueConfig(shards=4))
        wall = dispatcher.clock.wall()
        await dispatcher.publish(TENANT, "q", [message(b"1", expires_at=wall + 60_000)])
    async with dispatching(store, settings=SETTINGS) as dispatcher:
        await trio.sleep(58)
        assert dispatcher.open_shards == 0
        await trio.sleep(5)
        assert dispatcher.due.opened == 1, "of four shards"
        assert (await dispatcher.stats(TENANT, "q.dead")).stored == 1


async def test_a_transfer_that_was_interrupted_goes_on_by_itself() -> None:
    store = ScriptedStore()
    async with dispatching(store, settings=SETTINGS) as dispatcher:
        await dispatcher.create(TENANT, "q", QueueConfig())
        await dispatcher.create(TENANT, "q.dead", QueueConfig(dead_letter="", max_messages=1))
        await dispatcher.publish(TENANT, "q.dead", [message(b"full")])
        queue = await dispatcher.open(TENANT, "q")
        await queue.publish([message(b"1")])
        consumer = Consumer(runners_of(queue)[0])
        await consumer.got(1)
        await consumer.nack(dead=True)
        await trio.sleep(1)
        assert stats_now(queue).leaving == 1
    async with dispatching(store, settings=SETTINGS) as dispatcher:
        await dispatcher.purge(TENANT, "q.dead")
        await trio.sleep(3)
        assert dispatcher.due.opened == 1
        assert (await dispatcher.stats(TENANT, "q.dead")).stored == 1


async def test_a_shard_that_was_open_before_its_queue_takes_on_what_was_changed() -> None:
    store = memory_store()
    async with dispatching(store, settings=SETTINGS) as dispatcher:
        await dispatcher.create(TENANT, "q", QueueConfig())
        wall = dispatcher.clock.wall()
        await dispatcher.publish(TENANT, "q", [message(b"1"), message(b"2", expires_at=wall + 100)])
    async with dispatching(store, settings=SETTINGS) as dispatcher:
        await trio.sleep(2)
        assert (dispatcher.due.opened, dispatcher.opened(TENANT, "q")) == (1, None)
        await dispatcher.update(TENANT, "q", QueueConfig(paused=True, max_message_bytes=1))
        queue = await dispatcher.open(TENANT, "q")
        consumer = Consumer(runners_of(queue)[0])
        await trio.sleep(1)
        assert consumer.runs == []
        assert (await queue.publish([message(b"long")])).failed
        await dispatcher.update(TENANT, "q", QueueConfig())
        assert await consumer.got(1) == [b"1"]


async def test_a_shard_whose_sibling_stopped_takes_on_what_is_changed() -> None:
    async with dispatching() as dispatcher:
        await dispatcher.create(TENANT, "q", QueueConfig(shards=2))
        first, second = runners_of(await dispatcher.open(TENANT, "q"))
        consumer = Consumer(first)
        second.stop(Stop.UNDECIDED)
        await blocked()
        await dispatcher.update(TENANT, "q", QueueConfig(shards=2, paused=True))
        await first.publish([message(b"1")])
        await trio.sleep(1)
        assert consumer.runs == []


@pytest.mark.parametrize("name", ["gone", "made-again"])
async def test_a_queue_that_was_deleted_or_made_again_is_left_alone(name: str) -> None:
    store = ScriptedStore()
    async with dispatching(store, settings=SETTINGS) as dispatcher:
        await dispatcher.create(TENANT, "made-again", QueueConfig())
        store.script.add("due_shards", answer([DueShard(0, TENANT, name, "old id", 0)]))
        await trio.sleep(3)
        assert len(store.script.called("due_shards")) > 256
        assert (dispatcher.due.opened, dispatcher.open_shards) == (0, 0)


@pytest.mark.parametrize("name", ["due_shards", "outline"])
async def test_a_store_that_fails_is_asked_again(name: str) -> None:
    store = ScriptedStore()
    async with dispatching(store, settings=SETTINGS) as dispatcher:
        await dispatcher.create(TENANT, "q", QueueConfig())
        wall = dispatcher.clock.wall()
        await dispatcher.publish(TENANT, "q", [message(b"1", expires_at=wall + 20_000)])
        await trio.sleep(15)
        store.script.always[name] = fail(StoreRefused("no"))
        await trio.sleep(15)
        assert dispatcher.due.opened == 0
        del store.script.always[name]
        await trio.sleep(5)
        assert dispatcher.due.opened == 1


async def test_of_a_slot_that_another_server_owns_one_shard_is_tried() -> None:
    tried: list[int] = []

    async def open_one(due: DueShard) -> bool:
        await trio.lowlevel.checkpoint()
        tried.append(due.shard)
        if due.queue == "theirs":
            raise Elsewhere("theirs", Owner("p", "n2", 1))
        if due.queue == "full":
            raise Throttled("too many")
        return True

    store = ScriptedStore()
    theirs = [DueShard(0, TENANT, "theirs", "id", n) for n in range(3)]
    ours = [DueShard(0, TENANT, "full", "id", 7), DueShard(0, TENANT, "ours", "id", 8)]
    store.script.add("due_shards", answer(theirs), answer(ours))
    due = DueShards(store.ownership, SETTINGS, lambda: 0, open_one)
    await due.look()
    assert tried == [0, 7, 8]
    assert due.opened == 1
