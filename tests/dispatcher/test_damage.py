"""A store that says its rows are damaged: one shard may stop over it, never the process."""

import pytest
import trio

from pushlane.wire.errors import Unavailable
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.repeat import until_decided, until_done
from pushlane_dispatcher.shard.stop import Stop
from pushlane_storage.interface import StoreDamaged
from tests.dispatcher.rig import TENANT, ScriptedStore, blocked, dispatching, fail, numbered, rig

DAMAGED = StoreDamaged("bits")
PAGED = Bounds(window_messages=10, page_messages=5, segment_messages=5)


@pytest.mark.parametrize("name", ["append", "settle"])
async def test_a_write_that_meets_damage_ends_its_shard_and_loses_nothing(name: str) -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        consumer = r.consumer()
        await r.publish(b"stored")
        await consumer.got(1)
        other = await r.dispatcher.open(TENANT, "other", create=True)
        store.script.add(name, fail(DAMAGED))
        with pytest.raises(Unavailable):
            await (r.publish(b"not") if name == "append" else consumer.ack())
        assert r.runner.stopped_by is Stop.DAMAGED
        assert consumer.end == ("unavailable", Stop.DAMAGED.value)
        assert other.running
        epoch = r.runner.epoch
        await r.reopen()
        assert r.runner.epoch > epoch
        assert await r.consumer().got(1) == [b"stored"]


@pytest.mark.parametrize("name", ["mark_bucket", "drop"])
async def test_a_bucket_that_can_not_be_tidied_stays_and_the_shard_goes_on(name: str) -> None:
    store = ScriptedStore()
    async with rig(store, bounds=Bounds(bucket_messages=1), dedup_window_ms=0) as r:
        store.script.add(name, fail(DAMAGED))
        consumer = r.consumer(acking=True)
        for number in range(4):
            await r.runner.publish(numbered(1, number))
        await consumer.got(4)
        await trio.sleep(10)
        assert r.runner.running
        assert r.runner.stats().stored == 0
        assert len(store.script.called("drop")) >= 2


@pytest.mark.parametrize("name", ["segments", "messages", "due"])
async def test_a_read_that_meets_damage_is_repeated_and_gives_up_nothing(name: str) -> None:
    """A disk that fails for a moment looks the same."""
    store = ScriptedStore()
    async with rig(store, bounds=PAGED) as r:
        store.script.add(name, *[fail(DAMAGED)] * 3)
        await r.runner.publish(numbered(40))
        consumer = r.consumer(100)
        await consumer.got(40)
        await consumer.nack(delay_ms=0)
        await consumer.got(80)
        await trio.sleep(10)
        stats = r.runner.stats()
        assert (stats.dead, stats.stored) == (0, 40)


@pytest.mark.parametrize("name", ["next_epoch", "outline", "heads", "settlements", "write_seal"])
async def test_a_shard_that_can_not_be_recovered_is_unavailable_and_others_are_not(
    name: str,
) -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        await r.publish(b"stored")
        await r.runner.close()
        await blocked()
        store.script.add(name, fail(DAMAGED))
        with pytest.raises(Unavailable, match="could not be opened"):
            await r.reopen()
        assert (await r.dispatcher.open(TENANT, "other", create=True)).running
        await r.reopen()
        assert await r.consumer().got(1) == [b"stored"]


async def test_a_queue_whose_row_is_damaged_is_unavailable() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        for name in ("read_queue", "create_queue"):
            store.script.add(name, fail(DAMAGED))
            with pytest.raises(Unavailable):
                await dispatcher.open(TENANT, "q", create=True)
        store.script.add("list_queues", fail(DAMAGED))
        with pytest.raises(Unavailable):
            await dispatcher.list(TENANT)


async def test_damage_is_no_outcome_to_wait_for_but_a_read_to_repeat() -> None:
    tries = 0

    async def call() -> None:
        nonlocal tries
        await trio.lowlevel.checkpoint()
        tries += 1
        if tries < 4:
            raise DAMAGED

    with pytest.raises(StoreDamaged):
        await until_decided(call, Settings())
    assert tries == 1
    await until_done(call, Settings())
    assert tries == 4
