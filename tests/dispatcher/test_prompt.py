"""A store calls back, and a cache may answer at once: no task waits for either."""

import pytest
import trio

from pushlane.wire.errors import Unavailable
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.shard.stop import Stop
from pushlane_leases.memory import InstantLeases
from pushlane_storage.interface import Fenced, StoreRefused, StoreUnknown
from tests.dispatcher.rig import (
    Gate,
    ScriptedStore,
    blocked,
    fail,
    fail_after,
    rig,
)

UNKNOWN = StoreUnknown("?")
REFUSED = StoreRefused("no")


async def test_no_task_waits_for_a_write() -> None:
    store = ScriptedStore()
    gate = Gate()
    store.script.add("append", gate)
    async with rig(store) as r, trio.open_nursery() as nursery:
        nursery.start_soon(r.publish, b"1")
        await gate.entered.wait()
        assert len(r.runner._engine._nursery.child_tasks) == 0
        gate.released.set()
    assert [args[1].messages[0].body for args in store.script.called("append")] == [b"1"]


async def test_an_unknown_append_is_written_again_with_the_same_bytes() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        store.script.add("append", fail_after(UNKNOWN), fail(REFUSED), fail_after(UNKNOWN))
        ticket = await r.publish(b"1")
        assert not ticket.failed
        written = store.script.called("append")
        assert len(written) == 4
        assert all(args == written[0] for args in written)
        assert r.runner.stats().stored == 1


async def test_a_refused_append_is_undone() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        store.script.add("append", fail(REFUSED))
        ticket = await r.publish(b"1")
        assert isinstance(ticket.failed[0], Unavailable)
        assert not (await r.publish(b"2")).failed
        assert await r.consumer().got(1) == [b"2"]


async def test_an_unknown_settle_is_written_again() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        store.script.add("settle", fail_after(UNKNOWN), fail(REFUSED))
        assert not (await consumer.ack()).lost
        assert len(store.script.called("settle")) == 3


async def test_a_fenced_owner_steps_down() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        store.script.add("append", fail(Fenced("by a test")))
        with pytest.raises(Unavailable):
            await r.publish(b"1")
        assert r.runner.stopped_by is Stop.FENCED


async def test_an_outcome_that_comes_too_late_changes_nothing() -> None:
    store = ScriptedStore()
    gate = Gate()
    store.script.add("append", gate)
    async with rig(store) as r:
        runner = r.runner

        async def publish() -> None:
            with pytest.raises(Unavailable):
                await r.publish(b"1")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            await gate.entered.wait()
            runner._engine.stop(Stop.UNDECIDED)
        gate.released.set()
        await blocked()
        assert runner.stopped_by is Stop.UNDECIDED
        await r.reopen()
        assert await r.consumer().got(1) == [b"1"], "it was stored all the same"


async def test_a_bug_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def appended(*_: object) -> None:
        raise ZeroDivisionError

    with pytest.RaisesGroup(pytest.RaisesExc(ZeroDivisionError), flatten_subgroups=True):
        async with rig(ScriptedStore()) as r:
            monkeypatch.setattr(Shard, "appended", appended)
            await r.publish(b"1")


async def test_what_a_cache_answers_at_once_leaves_at_once() -> None:
    leases = InstantLeases()
    async with rig(leases=leases) as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        name = f"{r.runner.key.queue_id}/{r.runner.key.shard}"
        [run] = leases.table.claim(name, r.runner.epoch, 0)
        assert (run.prefix, run.n, run.count) == (consumer.sub.prefix, 1, 1)
        await consumer.ack()
        await blocked()
        assert leases.table.claim(name, r.runner.epoch, 0) == []


async def test_a_stale_epoch_at_once_ends_the_shard() -> None:
    leases = InstantLeases()
    async with rig(leases=leases) as r:
        name = f"{r.runner.key.queue_id}/{r.runner.key.shard}"
        leases.table.claim(name, r.runner.epoch + 1, 0)
        r.consumer()
        await r.publish(b"1")
        await blocked()
        with pytest.raises(Unavailable):
            await r.publish(b"2")
        assert r.runner.stopped_by is Stop.STALE
