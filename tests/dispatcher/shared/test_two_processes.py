"""Two processes on one keyspace, on the model of Cassandra and on a real one.

These run on the real clock: Cassandra has no other. test_two_servers.py has more of it, on the
model and on mock time, where what must happen within two seconds is measured.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import pytest
import trio

from pushlane.wire.errors import NotFound, PushlaneError, Unavailable
from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.stop import Stop
from pushlane_storage.bucket import ShardKey
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.slot import slot_of
from pushlane_storage.wall import wall_clock
from tests.running import runners_of
from tests.storage.cassandra.model_ring import ModelRing, Tables
from tests.storage.cassandra.tools import NODE, connected_store, quick
from tests.storage.samples import unique

SETTINGS = Settings(shared_idle_ms=500)
BUSY = Settings(shared_idle_ms=3_600_000)
PATIENCE_S = 60.0
LIMITS = quick()


class Process(NamedTuple):
    dispatcher: Dispatcher
    store: CassandraStore
    tenant: str

    async def publish(self, body: bytes, name: str = "q") -> bool:
        """Whether it was confirmed."""
        try:
            return await confirmed(await self.dispatcher.open(self.tenant, name), body)
        except PushlaneError:
            return False

    async def delete(self, name: str = "q") -> None:
        """Whoever else has it has closed it when this returns; on a slow machine that takes more
        than one try."""
        with trio.fail_after(PATIENCE_S):
            while True:
                try:
                    await self.dispatcher.delete(self.tenant, name)
                    return
                except NotFound:
                    return
                except Unavailable:
                    await trio.sleep(0.1)

    async def stored(self) -> int:
        return (await self.dispatcher.stats(self.tenant, "q")).stored


Start = Callable[..., AbstractAsyncContextManager[Process]]


@pytest.fixture(params=["model", NODE])
def start(request: pytest.FixtureRequest) -> Start:
    """One more process."""
    tables, tenant = Tables(), unique("tenant")

    @asynccontextmanager
    async def start(name: str, settings: Settings = SETTINGS) -> AsyncIterator[Process]:
        opening = (
            CassandraStore.over(ModelRing(tables), LIMITS)
            if request.param == "model"
            else connected_store(NODE, LIMITS)
        )
        async with (
            opening as store,
            open_dispatcher(store, owner=name, settings=settings) as dispatcher,
        ):
            yield Process(dispatcher, store, tenant)

    return start


async def until(done: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not done():  # noqa: ASYNC110  (it is another process's, so to say)
            await trio.sleep(0.02)


async def test_a_queue_that_a_live_process_serves_is_deleted_through_another(
    start: Start,
) -> None:
    async with start("alpha", BUSY) as a, start("beta", BUSY) as b:
        await a.dispatcher.create(a.tenant, "q", QueueConfig(shards=2))
        queue = await a.dispatcher.open(a.tenant, "q")
        assert await a.publish(b"1")
        await b.delete()
        assert not await confirmed(queue, b"2")
        assert {runner.stopped_by for runner in runners_of(queue)} == {Stop.DELETED}
        await until(lambda: a.store.stats().slots == 0)  # they were given back, idle or not
        assert b.store.stats().fencings == 0
        made_again = await b.dispatcher.create(b.tenant, "q", QueueConfig(shards=2))
        assert made_again.id != queue.row.id
        assert not await confirmed(queue, b"3")
        assert await b.publish(b"4")
        assert not await confirmed(queue, b"5")
        assert await b.stored() == 1


async def test_a_queue_is_deleted_beside_another_that_keeps_its_slot(start: Start) -> None:
    async with start("alpha", BUSY) as a, start("beta", BUSY) as b:
        rows: dict[int, QueueRow] = {}
        for number in range(1_000):
            row = await a.dispatcher.create(a.tenant, f"q{number}")
            other = rows.setdefault(slot_of(ShardKey(row.id, 0)), row)
            if other is not row:
                break
        going = await a.dispatcher.open(a.tenant, row.name)
        staying = await a.dispatcher.open(a.tenant, other.name)
        assert await confirmed(going, b"1")
        await b.delete(row.name)
        assert not await confirmed(going, b"2")
        assert await confirmed(staying, b"3")
        assert (await b.dispatcher.create(b.tenant, row.name)).id != row.id
        assert not await confirmed(going, b"4")


async def test_nothing_is_confirmed_for_a_queue_that_another_process_deleted(
    start: Start,
) -> None:
    async with start("alpha", BUSY) as a, start("beta", BUSY) as b:
        await a.dispatcher.create(a.tenant, "q", QueueConfig())
        queue = await a.dispatcher.open(a.tenant, "q")
        assert await a.publish(b"1")
        a.store.ownership.node.beating = False
        await b.delete()
        assert not await confirmed(queue, b"2")
        with pytest.raises(NotFound):
            await b.dispatcher.get(b.tenant, "q")
        made_again = await b.dispatcher.create(b.tenant, "q")
        assert made_again.id != queue.row.id
        assert await b.publish(b"3")
        assert not await confirmed(queue, b"4")
        assert not await a.publish(b"5"), "the new one is the other's"
        assert await b.stored() == 1


async def test_who_served_a_queue_stops_when_its_row_says_that_it_is_deleted(
    start: Start,
) -> None:
    async with start("alpha") as a, start("beta") as b:
        await a.dispatcher.create(a.tenant, "q", QueueConfig())
        queue = await a.dispatcher.open(a.tenant, "q")
        assert await a.publish(b"1")
        await b.store.catalog.mark_deleting(queue.row)
        await until(lambda: not queue.running)
        assert not await a.publish(b"2")
        await b.delete()
        await b.dispatcher.create(b.tenant, "q")
        assert not await confirmed(queue, b"3")
        await until_confirmed(a, b"4")
        assert await a.stored() == 1, "of the new one"


async def test_who_serves_a_queue_goes_by_what_another_process_changed(start: Start) -> None:
    async with start("alpha", BUSY) as a, start("beta") as b:
        await a.dispatcher.create(a.tenant, "q", QueueConfig())
        queue = await a.dispatcher.open(a.tenant, "q")
        assert await a.publish(b"1")
        began = trio.current_time()
        await b.dispatcher.update(b.tenant, "q", QueueConfig(max_messages=1))
        assert trio.current_time() - began >= Settings().row_ms / 1000, "the other has read it"
        await until(lambda: queue.row.version == 2)  # else on a slow machine
        assert queue.running
        assert not await a.publish(b"2"), "it is full"


async def test_what_was_changed_meanwhile_counts_from_the_next_opening_on(start: Start) -> None:
    async with start("alpha") as a, start("beta") as b:
        await a.dispatcher.create(a.tenant, "q", QueueConfig())
        assert await a.publish(b"1")
        await until(lambda: a.store.stats().slots == 0)
        await b.dispatcher.update(b.tenant, "q", QueueConfig(max_messages=1))
        assert b.store.stats().slots == 0, "they were needed for a moment"
        assert not await a.publish(b"2"), "its row was read again after the claim"


async def test_a_process_that_is_idle_gives_the_queue_to_the_next_at_once(start: Start) -> None:
    async with start("alpha") as a, start("beta", BUSY) as b:
        await a.dispatcher.create(a.tenant, "q", QueueConfig(shards=2))
        assert await a.publish(b"1")
        await until(lambda: a.store.stats().slots == 0)
        with trio.fail_after(PATIENCE_S):
            assert await b.publish(b"2")
        assert await b.stored() == 2
        assert b.store.stats().fencings == 0, "nobody had to be outlived"
        assert not await a.publish(b"3")


async def test_a_process_that_ends_gives_everything_back(start: Start) -> None:
    async with start("beta", BUSY) as b:
        async with AsyncExitStack() as stack:
            a = await stack.enter_async_context(start("alpha", BUSY))
            await a.dispatcher.create(a.tenant, "q", QueueConfig(shards=2))
            assert await a.publish(b"1")
            assert not await b.publish(b"2")
        assert await b.publish(b"3")
        assert await b.stored() == 2
        assert b.store.stats().fencings == 0


async def until_confirmed(process: Process, body: bytes) -> None:
    with trio.fail_after(PATIENCE_S):
        while not await process.publish(body):  # noqa: ASYNC110
            await trio.sleep(0.1)


async def confirmed(queue: OpenQueue, body: bytes) -> bool:
    try:
        return not (await queue.publish([Message(body, wall_clock())])).failed
    except PushlaneError:
        return False
