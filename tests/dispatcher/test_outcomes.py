"""What a store may answer besides success, and what becomes of those who wait."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from pushlane.wire.errors import Unavailable
from pushlane_dispatcher.core.act import ACK
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import PublishTicket, SettleTicket
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.stop import Stop
from pushlane_dispatcher.waiter import Waiter
from pushlane_storage.interface import Fenced, StoreRefused, StoreUnknown
from pushlane_storage.memory import MemoryStore
from pushlane_storage.slot import slot_of
from tests.dispatcher.rig import (
    TENANT,
    Call,
    Gate,
    Rig,
    ScriptedStore,
    Step,
    answer,
    blocked,
    fail,
    fail_after,
    hang,
    memory_store,
    message,
    numbered,
    rig,
)

UNKNOWN = StoreUnknown("?")
REFUSED = StoreRefused("no")


async def test_an_unknown_append_is_written_again_with_the_same_bytes() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        store.script.add("append", fail(UNKNOWN), fail_after(UNKNOWN), fail_after(UNKNOWN))
        ticket = await r.publish(b"1")
        assert not ticket.failed
        written = store.script.called("append")
        assert len(written) == 4
        assert all(args == written[0] for args in written)
        consumer = r.consumer()
        assert await consumer.got(1) == [b"1"]
        assert r.runner.stats().stored == 1


async def test_an_unknown_settle_is_written_again() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        store.script.add("settle", fail_after(UNKNOWN), fail(REFUSED))
        assert not (await consumer.ack()).lost
        written = store.script.called("settle")
        assert len(written) == 3
        assert all(args == written[0] for args in written)


@pytest.mark.parametrize("step", [fail(UNKNOWN), fail_after(UNKNOWN), hang])
@pytest.mark.parametrize("name", ["append", "settle"])
async def test_what_stays_undecided_ends_the_shard_and_loses_nothing(
    step: Callable[..., Awaitable[Any]], name: str
) -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        consumer = r.consumer()
        stored = await r.publish(b"stored")
        await consumer.got(1)
        store.script.always[name] = step
        began = trio.current_time()
        with pytest.raises(Unavailable):
            await (r.publish(b"perhaps") if name == "append" else consumer.ack())
        assert trio.current_time() - began == pytest.approx(30, abs=0.1)
        assert r.runner.stopped_by is Stop.UNDECIDED
        assert consumer.end == ("unavailable", Stop.UNDECIDED.value)
        store.script.always.clear()
        epoch = r.runner.epoch
        await r.reopen()
        assert r.runner.epoch == epoch + 1
        assert not stored.failed
        landed = step not in (hang,) and step.__qualname__.startswith("fail_after")
        second = r.consumer()
        if name == "append":
            await second.got(1 + landed)
            # The first one's lease ends in the same millisecond in which the shard gave up.
            assert sorted(second.bodies) == [b"perhaps", b"stored"][1 - landed :]
        else:
            assert r.runner.stats().stored == (0 if landed else 1)


async def test_every_waiting_publisher_and_settler_is_told() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=Bounds(flushes=1)) as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        store.script.always["append"] = hang
        publishers: list[Waiter[PublishTicket]] = [Waiter() for _ in range(3)]
        for waiter in publishers:
            r.runner.publish_soon([message(dedup="same")], waiter)
        settle = Gate()
        store.script.add("settle", settle)
        settler: Waiter[SettleTicket] = Waiter()
        consumer.settle(ACK, [consumer.receipt(consumer.runs[0])], settler)
        await settle.entered.wait()
        for waiter in publishers:
            with pytest.raises(Unavailable) as told:
                await waiter.wait()
            assert told.value.retry_ms
        with pytest.raises(Unavailable):
            await settler.wait()


async def test_a_refused_append_fails_its_publishers_and_those_behind_it() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        gate = Gate()

        async def refuse_late(_: object) -> None:
            await gate(trio.lowlevel.checkpoint)
            raise REFUSED

        store.script.add("append", refuse_late)
        first: Waiter[PublishTicket] = Waiter()
        r.runner.publish_soon([message(b"1")], first)
        await gate.entered.wait()
        gate.released.set()
        ticket = await first.wait()
        assert [error.code for error in ticket.failed.values()] == ["unavailable"]
        assert r.runner.running
        assert not (await r.publish(b"2")).failed
        consumer = r.consumer()
        assert await consumer.got(1) == [b"2"]


async def test_a_refused_append_with_others_behind_it_is_written_again() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        gate = Gate()

        async def refuse_late(_: object) -> None:
            await gate(trio.lowlevel.checkpoint)
            raise REFUSED

        second_gate = Gate()
        store.script.add("append", refuse_late, second_gate)
        waiters: list[Waiter[PublishTicket]] = [Waiter(), Waiter()]
        r.runner.publish_soon([message(b"1")], waiters[0])
        await gate.entered.wait()
        r.runner.publish_soon([message(b"2")], waiters[1])
        await second_gate.entered.wait()
        gate.released.set()
        second_gate.released.set()
        for waiter in waiters:
            assert not (await waiter.wait()).failed
        consumer = r.consumer()
        assert await consumer.got(2) == [b"1", b"2"]


async def test_a_refusal_after_an_unknown_outcome_must_not_undo_what_may_be_stored() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        store.script.add("append", fail_after(UNKNOWN), fail(REFUSED))
        assert not (await r.publish(b"1")).failed
        assert not (await r.publish(b"2")).failed  # would overwrite it, were it undone
        consumer = r.consumer()
        assert await consumer.got(2) == [b"1", b"2"]


def steal_slot(store: MemoryStore, r: Rig) -> None:
    store.tables.claim(slot_of(r.runner.key), "somebody else")


@pytest.mark.parametrize("what", ["append", "settle"])
async def test_a_fenced_owner_steps_down_at_once(what: str) -> None:
    store = memory_store()
    async with rig(store) as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        steal_slot(store, r)
        with pytest.raises(Unavailable):
            await (r.publish(b"2") if what == "append" else consumer.ack())
        assert trio.current_time() < 1
        assert r.runner.stopped_by is Stop.FENCED
        assert consumer.end == ("unavailable", Stop.FENCED.value)
        await r.reopen()
        again = r.consumer()
        assert await again.got(1) == [b"1"]


async def test_a_fence_met_while_tidying_ends_the_shard_too() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=Bounds(bucket_messages=1)) as r:
        store.script.add("mark_bucket", fail(Fenced("gone")))
        await r.publish(b"1")
        await r.publish(b"2")
        await blocked()
        assert r.runner.stopped_by is Stop.FENCED
        await r.reopen()


async def test_marks_and_drops_are_repeated_in_order() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=Bounds(bucket_messages=1), dedup_window_ms=0) as r:
        store.script.add("mark_bucket", fail(UNKNOWN), fail(REFUSED))
        consumer = r.consumer(acking=True)
        await r.runner.publish(numbered(1))
        await r.runner.publish(numbered(1, 1))
        await consumer.got(2)
        await trio.sleep(10)
        tidied = [name for name, _ in store.script.calls if name in ("mark_bucket", "drop")]
        assert tidied[:3] == ["mark_bucket"] * 3
        assert tidied.count("drop") >= 1


@pytest.mark.parametrize("step", [hang, fail(UNKNOWN), fail(REFUSED)])
@pytest.mark.parametrize("name", ["mark_bucket", "drop"])
async def test_publishes_and_settles_do_not_wait_for_tidying(name: str, step: Step) -> None:
    store = ScriptedStore()
    store.script.always[name] = step
    async with rig(store, bounds=Bounds(bucket_messages=1), dedup_window_ms=0) as r:
        consumer = r.consumer(acking=True)
        for number in range(3):
            await r.runner.publish(numbered(1, number))
        await consumer.got(3)
        await trio.sleep(1)
        assert store.script.called(name)
        consumer.acking = False
        with trio.fail_after(0.1):
            await r.publish(b"4", expires_at=r.dispatcher.clock.wall() + 60_000)
            await consumer.got(4)
            await consumer.nack(consumer.runs[-1], dead=True)
        del store.script.always[name]


async def test_a_note_that_stays_undecided_ends_the_shard() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        store.script.always["write_note"] = fail(UNKNOWN)
        with pytest.raises(Unavailable):
            await r.publish(b"1", expires_at=r.dispatcher.clock.wall() + 60_000)
        assert r.runner.stopped_by is Stop.UNDECIDED


@pytest.mark.parametrize("error", [UNKNOWN, REFUSED])
async def test_a_note_is_written_again_and_what_waits_for_it_is_stored(error: Exception) -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        store.script.add("write_note", fail(error), fail(error))
        await r.publish(b"1", expires_at=r.dispatcher.clock.wall() + 60_000)
        assert len(store.script.called("write_note")) == 3
        assert r.runner.stats().stored == 1


@pytest.mark.parametrize("error", [UNKNOWN, REFUSED])
async def test_reads_are_tried_until_they_succeed(error: Exception) -> None:
    store = ScriptedStore()
    bounds = Bounds(window_messages=10, page_messages=5, segment_messages=5)
    async with rig(store, bounds=bounds) as r:
        store.script.add("segments", fail(error), fail(error))
        await r.runner.publish(numbered(40))
        consumer = r.consumer(acking=True)
        assert await consumer.got(40) == [b"%d" % n for n in range(40)]


async def test_a_fenced_read_ends_the_shard() -> None:
    store = ScriptedStore()
    bounds = Bounds(window_messages=10, page_messages=5, segment_messages=5)
    async with rig(store, bounds=bounds) as r:
        store.script.add("segments", fail(Fenced("gone")))
        await r.runner.publish(numbered(40))
        consumer = r.consumer(acking=True)
        await consumer.until(lambda: consumer.end is not None)
        assert r.runner.stopped_by is Stop.FENCED


async def test_damaged_messages_die_and_the_others_of_the_same_read_live() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=Bounds(window_messages=10), dead_letter="") as r:
        await r.runner.publish(numbered(10))
        consumer = r.consumer(10)
        await consumer.got(10)
        bad = consumer.runs[0].seq + 3

        async def damaged(call: Call) -> object:
            found: Any = await call()
            found.pop(bad, None)
            return found

        store.script.always["messages"] = damaged
        await consumer.nack(delay_ms=0)
        await consumer.got(19)
        await blocked()
        assert sorted(consumer.bodies[10:]) == [b"%d" % n for n in range(10) if n != 3]
        assert r.runner.stats().dead == 1


async def test_a_page_that_is_missing_dies_and_the_others_live() -> None:
    store = ScriptedStore()
    bounds = Bounds(window_messages=10, page_messages=5, segment_messages=5, bucket_messages=20)
    async with rig(store, bounds=bounds, dead_letter="") as r:
        store.script.add("segments", answer([]))
        await r.runner.publish(numbered(40))
        r.consumer(acking=True)
        await trio.sleep(10)
        stats = r.runner.stats()
        assert stats.dead > 0
        assert stats.acked + stats.dead == 40


@pytest.mark.parametrize("name", ["append", "settle", "segments"])
async def test_any_other_error_of_a_store_is_a_bug_and_ends_everything(name: str) -> None:
    store = ScriptedStore()
    bounds = Bounds(window_messages=5, page_messages=5, segment_messages=5)
    told: list[object] = []
    with pytest.RaisesGroup(pytest.RaisesExc(ZeroDivisionError), flatten_subgroups=True):
        async with rig(store, bounds=bounds) as r:
            store.script.add(name, fail(ZeroDivisionError()))
            r.runner.publish_soon(numbered(20), lambda _, error: told.append(error))
            await blocked()
            r.consumer(acking=True)
            await trio.sleep_forever()
    assert len(told) == 1
    assert isinstance(told[0], Unavailable if name == "append" else type(None))
    assert r.runner.stopped_by is Stop.CANCELLED


async def test_a_body_that_raises_comes_out_as_it_is_and_ends_the_shards() -> None:
    store = ScriptedStore()
    ends: list[object] = []

    async def body() -> None:
        async with rig(store) as r:
            r.consumer(session="told").ended = lambda *end: ends.append(end)  # type: ignore[method-assign]
            store.script.always["append"] = hang
            r.runner.publish_soon([message()], lambda _, error: ends.append(error))
            await blocked()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await body()
    assert isinstance(ends[0], Unavailable)
    assert ends[1:] == [("unavailable", Stop.CANCELLED.value, [])]


async def test_a_cancelled_body_ends_the_shards_cleanly() -> None:
    with trio.move_on_after(5) as scope:
        async with rig() as r:
            consumer = r.consumer()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert consumer.end == ("unavailable", Stop.CANCELLED.value)


async def test_the_time_to_decide_is_a_setting() -> None:
    store = ScriptedStore()
    async with rig(store, settings=Settings(decide_ms=500)) as r:
        store.script.always["append"] = hang
        with pytest.raises(Unavailable):
            await r.publish(b"1")
        assert trio.current_time() == pytest.approx(0.5)
        store.script.always.clear()
        assert (await r.dispatcher.publish(TENANT, "q", [message()])).ids[0]
