"""An owner confirms an extension or a repeat when it asked, after that, whether it still is one."""

import pytest
import trio

from pushlane.wire.errors import Unavailable
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.core.effects import PublishTicket, SettleTicket
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.stop import Stop
from pushlane_dispatcher.waiter import Waiter
from pushlane_storage.interface import Fenced, StoreRefused, StoreUnknown
from tests.dispatcher.rig import (
    Consumer,
    Gate,
    Rig,
    blocked,
    fail,
    hang,
    message,
    rig,
)
from tests.dispatcher.shared_store import SharedScriptedStore


def extend(r: Rig, consumer: Consumer) -> Waiter[SettleTicket]:
    waiter: Waiter[SettleTicket] = Waiter()
    receipts = [consumer.receipt(run) for run in consumer.runs]
    consumer.settle(Act("extend", lease_ms=60_000), receipts, waiter)
    return waiter


async def holding(r: Rig) -> Consumer:
    """A consumer with a message."""
    consumer = r.consumer()
    await r.publish(b"1")
    await consumer.got(1)
    return consumer


async def test_an_extension_is_answered_after_the_question() -> None:
    store = SharedScriptedStore()
    gate = Gate()
    async with rig(store) as r:
        consumer = await holding(r)
        store.rivals.add("confirm", gate)
        waiter = extend(r, consumer)
        await gate.entered.wait()
        await blocked()
        with trio.move_on_after(1) as asking:
            await waiter.wait()
        assert asking.cancelled_caught, "not before the store has said so"
        gate.released.set()
        assert not (await waiter.wait()).lost


async def test_those_that_come_meanwhile_share_the_next_question() -> None:
    store = SharedScriptedStore()
    gate = Gate()
    async with rig(store) as r:
        consumer = await holding(r)
        store.rivals.add("confirm", gate)
        first = extend(r, consumer)
        await gate.entered.wait()
        others = [extend(r, consumer) for _ in range(5)]
        await blocked()
        gate.released.set()
        for waiter in (first, *others):
            assert not (await waiter.wait()).lost
        assert len(store.rivals.called("confirm")) == 2
        assert not (await extend(r, consumer).wait()).lost
        assert len(store.rivals.called("confirm")) == 3


async def test_an_owner_that_was_fenced_confirms_nothing() -> None:
    store = SharedScriptedStore()
    async with rig(store) as r:
        consumer = await holding(r)
        store.rivals.add("confirm", fail(Fenced("by a test")))
        with pytest.raises(Unavailable):
            await extend(r, consumer).wait()
        assert r.runner.stopped_by is Stop.FENCED


@pytest.mark.parametrize("error", [StoreUnknown("?"), StoreRefused("no")])
async def test_a_question_without_an_answer_is_asked_again(error: Exception) -> None:
    store = SharedScriptedStore()
    async with rig(store) as r:
        consumer = await holding(r)
        store.rivals.add("confirm", fail(error), fail(error))
        assert not (await extend(r, consumer).wait()).lost
        assert len(store.rivals.called("confirm")) == 3


async def test_an_owner_that_can_not_tell_steps_down() -> None:
    store = SharedScriptedStore()
    async with rig(store, settings=Settings(decide_ms=5_000)) as r:
        consumer = await holding(r)
        store.rivals.always["confirm"] = hang
        with pytest.raises(Unavailable):
            await extend(r, consumer).wait()
        assert r.runner.stopped_by is Stop.UNDECIDED


def repeat(r: Rig) -> Waiter[PublishTicket]:
    waiter: Waiter[PublishTicket] = Waiter()
    r.runner.publish_soon([message(dedup="d")], waiter)
    return waiter


async def test_a_repeat_is_answered_after_the_question() -> None:
    store = SharedScriptedStore()
    gate = Gate()
    async with rig(store) as r:
        first = await r.publish(b"1", dedup="d")
        assert not store.rivals.called("confirm"), "what is stored is confirmed by the store"
        store.rivals.add("confirm", gate)
        waiter = repeat(r)
        await gate.entered.wait()
        with trio.move_on_after(1) as asking:
            await waiter.wait()
        assert asking.cancelled_caught, "not before the store has said so"
        gate.released.set()
        assert (await waiter.wait()).duplicates == {0: (4, first.seqs[0])}


async def test_an_owner_that_was_fenced_knows_no_duplicates() -> None:
    store = SharedScriptedStore()
    async with rig(store) as r:
        await r.publish(b"1", dedup="d")
        store.rivals.add("confirm", fail(Fenced("by a test")))  # and its queue is another one's
        with pytest.raises(Unavailable):
            await repeat(r).wait()
        assert r.runner.stopped_by is Stop.FENCED
