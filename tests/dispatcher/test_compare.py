"""An owner whose slot was taken steps down, also when it has nothing to write."""

from __future__ import annotations

import logging

import pytest
import trio

from pushlane_dispatcher.dispatcher import open_dispatcher
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.stop import Stop
from pushlane_storage.bucket import ShardKey
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.interface import StoreUnknown
from pushlane_storage.slot import slot_of
from tests.dispatcher.rig import (
    TENANT,
    Consumer,
    Gate,
    answer,
    fail,
    message,
    mock_clock,
    rig,
)
from tests.dispatcher.shared_store import SharedScriptedStore
from tests.held import held, let_go
from tests.running import runners_of
from tests.storage.cassandra.model_ring import ModelRing, Tables

SOON = Settings(compare_ms=1_000)


async def test_rows_are_compared_again_and_again() -> None:
    store = SharedScriptedStore()
    async with rig(store, settings=SOON) as r:
        await trio.sleep(3.5)
        assert len(store.rivals.called("lost")) == 3
        assert r.runner.running


async def test_an_owner_that_lost_its_slot_steps_down_at_rest() -> None:
    store = SharedScriptedStore()
    async with rig(store, settings=SOON) as r:
        consumer = r.consumer()
        slot = slot_of(r.runner.key)
        store.rivals.add("lost", answer([(slot, r.runner.epoch)]))
        await trio.sleep(1.5)
        assert consumer.end == ("unavailable", Stop.FENCED.value)
        assert not r.queue.running
        await r.reopen()
        assert r.runner.epoch == 2
        assert not (await r.publish(b"1")).failed


async def test_what_it_lost_before_is_no_matter() -> None:
    store = SharedScriptedStore()
    async with rig(store, settings=SOON) as r:
        slot = slot_of(r.runner.key)
        other = (slot + 1) % 256
        store.rivals.add("lost", answer([(slot, r.runner.epoch - 1), (other, 1)]))
        await trio.sleep(1.5)
        assert r.runner.running


async def test_a_slot_that_is_lost_while_a_shard_opens_is_claimed_anew() -> None:
    store = SharedScriptedStore()
    async with rig(store, settings=SOON) as r:
        slow = Gate()
        store.script.add("outline", slow)
        row = await r.dispatcher.create(TENANT, "other")
        slot = slot_of(ShardKey(row.id, 0))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(r.dispatcher.open, TENANT, "other")
            await slow.entered.wait()
            store.rivals.add("lost", answer([(slot, 1)]))
            await trio.sleep(1.5)
            slow.released.set()
        queue = await r.dispatcher.open(TENANT, "other")
        assert runners_of(queue)[0].epoch == 2


async def test_a_store_that_does_not_answer_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    store = SharedScriptedStore()
    async with rig(store, settings=SOON) as r:
        slot = slot_of(r.runner.key)
        lost = answer([(slot, r.runner.epoch)])
        store.rivals.add("lost", fail(StoreUnknown("no answer")), lost)
        await trio.sleep(1.5)
        assert r.runner.running
        assert "the slots were not compared: no answer" in caplog.text
        await trio.sleep(1)
        assert not r.queue.running


async def test_two_processes_of_one_keyspace() -> None:
    """The one whose heart stands still hears of it by comparing: it has nothing to write."""
    tables = Tables()
    first = await held(CassandraStore.over(ModelRing(tables), Limits()))
    second = await held(CassandraStore.over(ModelRing(tables), Limits()))
    async with (
        open_dispatcher(first, clock=mock_clock()) as one,
        open_dispatcher(second, clock=mock_clock()) as two,
    ):
        queue = await one.open(TENANT, "q", create=True)
        await queue.publish([message(b"1")])
        consumer = Consumer(runners_of(queue)[0])
        await consumer.got(1)
        first.ownership.node.beating = False
        taken = await two.open(TENANT, "q")
        assert runners_of(taken)[0].epoch == 2
        assert (await two.stats(TENANT, "q")).stored == 1
        with trio.fail_after(Settings().compare_ms / 1000 + 0.1):
            await consumer.until(lambda: consumer.end is not None)
        assert consumer.end == ("unavailable", Stop.FENCED.value)
        numbers = one.store_numbers()
        assert (numbers["slots"], numbers["slots_lost"], numbers["fenced"]) == (0, 1, 1)
    await let_go(first)
    await let_go(second)
