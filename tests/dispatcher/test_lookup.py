"""Messages by their id, and who consumes: through the dispatcher."""

from __future__ import annotations

import pytest
import trio

from pushlane.wire.errors import Conflict, NotFound, Unavailable
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.ident import make_id
from pushlane_storage.interface import StoreUnknown
from pushlane_storage.memory import MemoryStore
from tests.dispatcher.rig import (
    START,
    TENANT,
    Gate,
    Rig,
    ScriptedStore,
    answer,
    blocked,
    fail,
    memory_store,
    message,
    rig,
)

NARROW = Bounds(window_messages=1, segment_messages=1)


async def publish(r: Rig, *bodies: bytes, delay_ms: int = 0) -> list[str]:
    not_before = START + int(trio.current_time() * 1000) + delay_ms if delay_ms else 0
    sent = [message(body, not_before=not_before) for body in bodies]
    return [id for id in (await r.queue.publish(sent)).ids if id]


async def read(r: Rig, id: str) -> tuple[bytes, int]:
    found, attempts = await r.dispatcher.message(TENANT, "q", id)
    return found.body, attempts


async def state(r: Rig, id: str) -> str:
    return (await r.dispatcher.explain(TENANT, "q", id)).state


async def test_a_message_in_memory() -> None:
    async with rig() as r:
        (id,) = await publish(r, b"1")
        assert await read(r, id) == (b"1", 0)
        consumer = r.consumer()
        await consumer.got(1)
        assert await read(r, id) == (b"1", 1)
        await consumer.ack()
        with pytest.raises(NotFound, match="has ended"):
            await read(r, id)


async def test_a_message_in_the_store() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=NARROW) as r:
        ids = await publish(r, b"1", b"2", b"3")
        assert await read(r, ids[2]) == (b"3", 0)
        store.script.add("messages", fail(StoreUnknown("?")), answer({}))
        with pytest.raises(Unavailable):
            await read(r, ids[2])
        with pytest.raises(NotFound):
            await read(r, ids[2])


async def test_ids_of_others() -> None:
    async with rig() as r:
        (id,) = await publish(r, b"1")
        await r.dispatcher.create(TENANT, "other")
        for strange in ("x", make_id(r.queue.row.id, 1, 4, 0), make_id(r.queue.row.id, 0, 4, 9)):
            with pytest.raises(NotFound):
                await read(r, strange)
            with pytest.raises(NotFound):
                await r.dispatcher.cancel(TENANT, "q", strange)
        with pytest.raises(NotFound):
            await r.dispatcher.message(TENANT, "other", id)


@pytest.mark.parametrize("delay_ms", [5_000, 3_600_000])
@pytest.mark.parametrize("restart", [False, True])
async def test_cancel(delay_ms: int, restart: bool) -> None:
    store = memory_store()
    async with rig(store) as r:
        (id,) = await publish(r, b"1", delay_ms=delay_ms)
        (kept,) = await publish(r, b"2", delay_ms=delay_ms)
        if not restart:
            await r.dispatcher.cancel(TENANT, "q", id)
    async with rig(MemoryStore(store.tables)) as r:
        if restart:
            await r.dispatcher.cancel(TENANT, "q", id)
        await blocked()
        assert (await state(r, id), await state(r, kept)) == ("purged", "delayed")
        consumer = r.consumer()
        await trio.sleep(delay_ms / 1000 + 1)
        assert consumer.bodies == [b"2"]


async def test_cancel_behind_the_window() -> None:
    async with rig(bounds=NARROW) as r:
        await publish(r, b"1", b"2")
        (id,) = await publish(r, b"3", delay_ms=5_000)
        await r.dispatcher.cancel(TENANT, "q", id)
        consumer = r.consumer(acking=True)
        await trio.sleep(10)
        assert consumer.bodies == [b"1", b"2"]


async def test_what_can_not_be_cancelled() -> None:
    async with rig() as r:
        (id,) = await publish(r, b"1")
        with pytest.raises(Conflict):
            await r.dispatcher.cancel(TENANT, "q", id)
        assert await state(r, id) == "ready"
        assert r.runner._engine.tickets == {}


async def test_a_cancel_that_the_shard_does_not_live_to_answer() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        (id,) = await publish(r, b"1", delay_ms=5_000)
        gate = Gate()
        store.script.add("settle", gate)
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                with pytest.raises(Unavailable):
                    await r.dispatcher.cancel(TENANT, "q", id)

            nursery.start_soon(cancel)
            await gate.entered.wait()
            await r.runner.close()
        with pytest.raises(Unavailable):
            r.runner.cancel(4, 0, 0, lambda *_: None)


async def test_consumers() -> None:
    async with rig(shards=2) as r:
        r.consumer(7, session="worker")
        found = await r.dispatcher.consumers(TENANT, "q")
        assert [(one.session, one.shard, one.credit) for one in found] == [("worker", 0, 7)]
        await r.runner.close()
        await blocked()
        with pytest.raises(Unavailable):
            r.runner.consumers()
