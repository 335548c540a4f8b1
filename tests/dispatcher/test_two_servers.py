"""Two servers on one keyspace: who may change, delete and serve a queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import trio

from pushlane.wire.errors import NotFound, Unavailable
from pushlane_dispatcher.browsing.redrive import Redrive
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_dispatcher.shard.stop import Stop
from pushlane_storage.bucket import ShardKey
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.ring import Change
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.cassandra.tables import QUEUES
from pushlane_storage.interface import StoreUnknown
from pushlane_storage.note import DueShard
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.seal import Outline
from pushlane_storage.slot import slot_of
from tests.dispatcher.rig import TENANT, Consumer, message, mock_clock
from tests.held import held, let_go
from tests.running import runners_of, stats_now
from tests.storage.cassandra.model_ring import ModelRing, Tables

CONFIG = QueueConfig(shards=3)


class Server:
    def __init__(self, dispatcher: Dispatcher, store: CassandraStore) -> None:
        self.dispatcher = dispatcher
        self.store = store

    async def publish(self, *bodies: bytes) -> bool:
        """Whether all of them were confirmed."""
        messages = [message(body) for body in bodies]
        try:
            return not (await self.dispatcher.publish(TENANT, "q", messages, create=True)).failed
        except Unavailable:
            return False

    def freeze(self) -> None:
        """Its heart stands still: for others it may be dead."""
        self.store.ownership.node.beating = False


@asynccontextmanager
async def server(
    tables: Tables, name: str, settings: Settings | None = None
) -> AsyncIterator[Server]:
    clock, ring = mock_clock(), ModelRing(tables)
    # Else servers adopt the real time, which the store would tell: by that, what is stamped with
    # the mock time is due at once, and every server opens the queues that another gives back.
    ring.wall = clock.system
    store = await held(CassandraStore.over(ring, Limits()))
    async with open_dispatcher(store, clock=clock, owner=name, settings=settings) as dispatcher:
        yield Server(dispatcher, store)
    await let_go(store)


@pytest.fixture
async def tables() -> Tables:
    return Tables()


@pytest.fixture
async def a(tables: Tables) -> AsyncIterator[Server]:
    async with server(tables, "alpha") as found:
        yield found


@pytest.fixture
async def b(tables: Tables) -> AsyncIterator[Server]:
    async with server(tables, "beta") as found:
        yield found


async def test_a_queue_that_another_server_has_is_not_opened(a: Server, b: Server) -> None:
    await a.dispatcher.create(TENANT, "q", CONFIG)
    assert await a.publish(b"1", b"2", b"3")
    with pytest.raises(Unavailable, match="in use by server alpha"):
        await b.dispatcher.open(TENANT, "q")
    assert await a.publish(b"4"), "it is none the worse for it"
    assert (await a.dispatcher.stats(TENANT, "q")).stored == 4


async def test_a_queue_that_another_server_has_is_changed_by_its_row(a: Server, b: Server) -> None:
    queue = await a.dispatcher.open(TENANT, "q", create=True)
    assert await a.publish(b"1")
    await trio.sleep(0.3)
    began = trio.current_time()
    row = await b.dispatcher.update(TENANT, "q", QueueConfig(max_messages=1))
    assert trio.current_time() - began == pytest.approx(Settings().row_ms / 1000)
    assert queue.row == row, "who serves it goes by it when that is answered"
    assert queue.running
    assert not await a.publish(b"2"), "it is full"
    assert b.store.stats().slots == 0, "none was needed for that"


async def test_a_change_is_answered_at_once_where_nobody_else_has_the_queue(
    a: Server, b: Server
) -> None:
    await a.dispatcher.create(TENANT, "q", CONFIG)
    began = trio.current_time()
    await b.dispatcher.update(TENANT, "q", CONFIG)
    assert await a.publish(b"1")
    await a.dispatcher.update(TENANT, "q", CONFIG)
    assert trio.current_time() == began


async def test_who_else_has_a_queue_may_not_be_known(
    a: Server, b: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = await a.dispatcher.create(TENANT, "q", CONFIG)

    async def fail(slot: int) -> None:
        await trio.lowlevel.checkpoint()
        raise StoreUnknown("no answer")

    monkeypatch.setattr(b.store.ownership, "owner_of", fail)
    began = trio.current_time()
    assert (await b.dispatcher.update(TENANT, "q", CONFIG)).version == row.version + 1
    assert trio.current_time() - began == pytest.approx(Settings().row_ms / 1000)


async def test_a_queue_that_another_server_has_is_deleted_with_it(
    a: Server, b: Server, tables: Tables
) -> None:
    row = await a.dispatcher.create(TENANT, "q", CONFIG)
    queue = await a.dispatcher.open(TENANT, "q")
    consumers = [Consumer(runner, credit=1) for runner in runners_of(queue)]
    assert await a.publish(b"1", b"2", b"3")
    await trio.sleep(0.3)
    with trio.fail_after(Settings().row_ms / 1000 + 0.3):
        await b.dispatcher.delete(TENANT, "q")
    assert [consumer.end for consumer in consumers] == [("not_found", Stop.DELETED.value)] * 3
    assert not await confirmed(queue)
    assert a.store.stats().slots == 0, "they were given back at once"
    assert await nothing_is_left(b, row)
    made_again = await b.dispatcher.create(TENANT, "q", CONFIG)
    assert made_again.id != row.id
    assert not await confirmed(queue)
    assert await b.publish(b"1"), "nobody else has it"
    assert not await confirmed(queue)
    assert (await b.dispatcher.stats(TENANT, "q")).stored == 1


async def test_a_deletion_takes_no_slot_from_other_queues(a: Server, b: Server) -> None:
    """Who serves others in the same slot keeps it, and closes what is deleted."""
    going, staying = await two_in_one_slot(a)
    with trio.fail_after(Settings().row_ms / 1000 + 0.3):
        await b.dispatcher.delete(TENANT, going.row.name)
    assert not await confirmed(going)
    assert await confirmed(staying)
    assert runners_of(staying)[0].epoch == 1
    assert (await b.dispatcher.create(TENANT, going.row.name)).id != going.row.id
    assert not await confirmed(going)


async def test_shards_that_are_spread_over_servers_are_taken_off_by_each(
    a: Server, b: Server
) -> None:
    """Each keeps the slots, for other queues: so nobody can claim those of the other one."""
    row = await spread_row(a, 6)
    servers = [a, a, b, a, b, b]
    runners = [await open_shard(server, row, n) for n, server in enumerate(servers)]
    with ExitStack() as stack, trio.fail_after(3 * Settings().row_ms / 1000 + 0.5):
        for runner, server in zip(runners, servers, strict=True):
            stack.enter_context(server.dispatcher._shards._slots.of(runner.key).using())
        await b.dispatcher.delete(TENANT, "q")
        assert {runner.stopped_by for runner in runners} == {Stop.DELETED}
        assert await nothing_is_left(a, row)
        assert (a.store.stats().slots, b.store.stats().slots) == (3, 3)


async def test_both_may_delete_what_both_have(a: Server, b: Server) -> None:
    row = await spread_row(a, 4)
    runners = [
        await (a, b)[number % 2].dispatcher._shards.open(row, number, None) for number in range(4)
    ]
    async with trio.open_nursery() as nursery:
        for server in (a, b):
            nursery.start_soon(server.dispatcher.delete, TENANT, "q")
    assert {runner.stopped_by for runner in runners} == {Stop.DELETED}
    assert await nothing_is_left(a, row)


async def test_a_server_that_has_only_the_slot_hears_of_a_deletion(a: Server, b: Server) -> None:
    """It would not look at the queue: it serves others there. It is found among what is due."""
    going, staying = await two_in_one_slot(a)
    Consumer(runners_of(staying)[0])
    await runners_of(going)[0].close()
    with pytest.raises(Unavailable, match="which goes on: server alpha has not closed it"):
        await b.dispatcher.delete(TENANT, going.row.name)
    with pytest.raises(Unavailable, match="being deleted"):
        await b.dispatcher.create(TENANT, going.row.name)
    with pytest.raises(NotFound):
        await b.dispatcher.get(TENANT, going.row.name)
    await trio.sleep(Settings().due_ms / 1000)
    assert await nothing_is_left(b, going.row)
    assert await confirmed(staying)
    await b.dispatcher.create(TENANT, going.row.name)


async def test_time_proves_nothing_of_who_does_not_hear_of_a_deletion(
    a: Server, b: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await a.dispatcher.open(TENANT, "q", create=True)
    Consumer(runners_of(queue)[0])
    with monkeypatch.context() as deaf:
        deaf.setattr(a.dispatcher.upkeep, "_compare_row", nothing)
        deaf.setattr(a.dispatcher, "_open_due", nothing)
        for _ in range(10):
            with pytest.raises(Unavailable, match="being deleted, which goes on: server alpha"):
                await b.dispatcher.delete(TENANT, "q")
            assert await confirmed(queue), "nobody was told that it is gone"
    await trio.sleep(Settings().row_ms / 500 + 0.3)
    assert await nothing_is_left(b, queue.row), "it went on without anybody asking"
    assert not await confirmed(queue)


async def test_a_deletion_goes_on_after_its_answer_where_two_have_a_part(
    a: Server, b: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = await spread_row(a, 2)
    runners = [await open_shard(server, row, n) for n, server in enumerate((b, a))]
    with b.dispatcher._shards._slots.of(runners[0].key).using():
        with monkeypatch.context() as deaf:
            deaf.setattr(a.dispatcher.upkeep, "_compare_row", nothing)
            with pytest.raises(Unavailable, match="which goes on"):
                await b.dispatcher.delete(TENANT, "q")
        assert [runner.stopped_by for runner in runners] == [Stop.DELETED, None]
        await trio.sleep(2 * Settings().row_ms / 1000 + 0.3)
        assert runners[1].stopped_by is Stop.DELETED
        assert await nothing_is_left(b, row), "the first is taken off when the last one was"


async def open_shard(server: Server, row: QueueRow, number: int) -> ShardRunner:
    """One shard of a queue, that somebody uses."""
    runner = await server.dispatcher._shards.open(row, number, None)
    await runner.publish([message()])
    Consumer(runner)
    return runner


async def confirmed(queue: OpenQueue) -> bool:
    try:
        return not (await queue.publish([message()])).failed
    except Unavailable:
        return False


async def nothing(*_: object) -> None:
    await trio.lowlevel.checkpoint()


async def nothing_is_left(server: Server, row: QueueRow) -> bool:
    found = await server.store.catalog.read(TENANT, row.name)
    shards = [ShardKey(row.id, number) for number in range(row.config.shards)]
    outlines = [await server.store.outline(shard) for shard in shards]
    due = [
        due
        for shard in shards
        for due in await server.store.ownership.due_shards(slot_of(shard), 1 << 50, 100)
        if due.queue_id == row.id
    ]
    return (found is None or found.id != row.id) and not due and set(map(str, outlines)) == {NONE}


NONE = str(Outline([], [], None))


async def two_in_one_slot(server: Server) -> tuple[OpenQueue, OpenQueue]:
    """Two queues whose only shards share a slot, which nobody else needs."""
    seen: dict[int, str] = {}
    for number in range(1_000):
        row = await server.dispatcher.create(TENANT, f"q{number}")
        name = seen.setdefault(slot_of(ShardKey(row.id, 0)), row.name)
        if name != row.name:
            opened = [await server.dispatcher.open(TENANT, each) for each in (name, row.name)]
            return opened[0], opened[1]
    raise AssertionError("a thousand queues, and no two in one slot")


async def spread_row(server: Server, shards: int) -> QueueRow:
    """A queue whose shards have a slot each."""
    while True:
        row = await server.dispatcher.create(TENANT, "q", QueueConfig(shards=shards))
        if len({slot_of(ShardKey(row.id, number)) for number in range(shards)}) == shards:
            return row
        await server.dispatcher.delete(TENANT, "q")


async def test_a_server_that_was_frozen_confirms_nothing_for_a_queue_that_was_deleted(
    a: Server, b: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a.dispatcher.create(TENANT, "q", CONFIG)
    assert await a.publish(b"1", b"2", b"3")
    a.freeze()
    monkeypatch.setattr(a.dispatcher.upkeep, "_compare_row", nothing)
    began = trio.current_time()
    await b.dispatcher.delete(TENANT, "q")
    assert trio.current_time() - began >= Limits().judge_ms / 1000, "it had to be outlived"
    assert not await a.publish(b"4")
    row = await b.dispatcher.create(TENANT, "q")
    assert await b.publish(b"5")
    # By now it is another process, and the new queue is the other server's.
    assert not await a.publish(b"6")
    await b.dispatcher.aclose()
    await let_go(b.store)
    assert await a.publish(b"7")
    queue = await a.dispatcher.open(TENANT, "q")
    assert queue.row.id == row.id
    assert sorted(await Consumer(runners_of(queue)[0]).got(2)) == [b"5", b"7"]


async def test_a_row_is_read_again_after_a_claim(
    a: Server, b: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it waited for the slot, whoever had that deleted the queue."""
    await a.dispatcher.create(TENANT, "q", CONFIG)
    claim, deleted = b.store.ownership.claim, trio.Event()

    async def late(slot: int, owner: str) -> int:
        if not deleted.is_set():
            deleted.set()
            await a.dispatcher.delete(TENANT, "q")
        return await claim(slot, owner)

    monkeypatch.setattr(b.store.ownership, "claim", late)
    with pytest.raises(NotFound):
        await b.dispatcher.open(TENANT, "q")
    assert deleted.is_set()


async def test_a_row_that_is_another_queue_s_by_now_stops_what_is_open(
    a: Server, tables: Tables
) -> None:
    """Nobody may do that; somebody who edits rows by hand may all the same."""
    queue = await a.dispatcher.open(TENANT, "q", create=True)
    consumer = Consumer(runners_of(queue)[0])
    change = Change(QUEUES, (TENANT, "q"), {"id": queue.row.id}, {"id": "another"})
    assert await ModelRing(tables).change(change)
    with trio.fail_after(Settings().row_ms / 1000 + 0.1):
        await consumer.until(lambda: consumer.end is not None)
    assert consumer.end == ("not_found", Stop.DELETED.value)
    assert (await a.dispatcher.open(TENANT, "q")).row.id == "another"


async def test_a_row_that_was_changed_elsewhere_is_taken_up(a: Server, b: Server) -> None:
    queue = await a.dispatcher.open(TENANT, "q", create=True)
    row = await b.store.catalog.update(queue.row, QueueConfig(lease_ms=5_000))
    await trio.sleep(Settings().row_ms / 1000 + 0.1)
    assert queue.running
    assert queue.row == row
    assert runners_of(queue)[0]._shard.config.lease_ms == 5_000


async def test_rows_of_all_open_queues_are_compared_in_each_round(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(row_reads=2)
    async with server(tables, "alpha", settings) as a:
        for number in range(5):
            Consumer(runners_of(await a.dispatcher.open(TENANT, f"q{number}", create=True))[0])
        read, busy, most = a.dispatcher._queues.read, 0, 0
        reads: dict[str, list[float]] = {}

        async def slowly(tenant: str, name: str) -> QueueRow:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            reads.setdefault(name, []).append(trio.current_time())
            await trio.sleep(0.2)
            busy -= 1
            return await read(tenant, name)

        monkeypatch.setattr(a.dispatcher._queues, "read", slowly)
        await trio.sleep(4 * settings.row_ms / 1000 + 0.9)
        assert most == settings.row_reads
        assert sorted(reads) == [f"q{number}" for number in range(5)]
        for times in reads.values():
            gaps = [after - before for before, after in pairwise(times)]
            assert gaps == [pytest.approx(settings.row_ms / 1000)] * 3


async def test_a_row_that_can_not_be_read_keeps_no_other_from_being_compared(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tables, "alpha", Settings(row_reads=1)) as a, server(tables, "beta") as b:
        for name in ("q0", "q1"):
            opened = await a.dispatcher.open(TENANT, name, create=True)
        read = a.dispatcher._queues.read

        async def hang(tenant: str, name: str) -> QueueRow:
            if name == "q0":
                await trio.sleep_forever()
            return await read(tenant, name)

        monkeypatch.setattr(a.dispatcher._queues, "read", hang)
        await b.dispatcher.update(TENANT, "q1", QueueConfig(lease_ms=5_000))
        await trio.sleep(Settings().row_ms / 1000 + 0.1)
        assert opened.running
        assert opened.row.version == 2


async def test_shards_that_were_opened_for_what_is_due_are_compared_too(
    a: Server, b: Server
) -> None:
    row = await a.dispatcher.create(TENANT, "q", QueueConfig(shards=2))
    runner = await a.dispatcher._shards.open(row, 1, None)
    await trio.sleep(0.3)
    await b.dispatcher.update(TENANT, "q", QueueConfig(shards=2, lease_ms=5_000))
    assert runner._shard.config.lease_ms == 5_000


async def test_a_deletion_that_was_cut_is_finished_through_another_server(
    a: Server, b: Server
) -> None:
    row = await a.dispatcher.create(TENANT, "q", CONFIG)
    assert await a.publish(b"1", b"2", b"3")
    await a.store.catalog.mark_deleting(row)
    assert not await b.publish(b"4"), "its owner is alive"
    a.freeze()
    await trio.sleep(Limits().alive_ms / 1000)  # it was seen alive just now
    assert await b.publish(b"5")
    assert (await b.dispatcher.get(TENANT, "q")).id != row.id


# Looking, and giving back


async def look(server: Server, ids: list[str]) -> list[object]:
    """Everything that can be asked."""
    dispatcher = server.dispatcher
    page = await dispatcher.peek(TENANT, "q", 10)
    assert await dispatcher.consumers(TENANT, "q") == []
    assert await dispatcher.usage(TENANT, 0, 1, 1, "q", 1_000) == []
    return [
        await dispatcher.stats(TENANT, "q"),
        sorted(page.id(found) for found in page.messages),
        [(await dispatcher.message(TENANT, "q", id))[0].body for id in ids],
        {(await dispatcher.explain(TENANT, "q", id)).state for id in ids},
    ]


async def test_who_only_looks_takes_nothing(a: Server, b: Server) -> None:
    await a.dispatcher.create(TENANT, "q", CONFIG)
    bodies = [b"%d" % number for number in range(6)]
    messages = [message(body) for body in bodies]
    published = await a.dispatcher.publish(TENANT, "q", messages)
    ids = [id for id in published.ids if id is not None]
    seen = await look(b, ids)
    stats = await a.dispatcher.stats(TENANT, "q")
    assert seen == [stats, sorted(ids), bodies, {"ready"}]
    assert b.store.stats().slots == 0
    assert await a.publish(b"7"), "its owner goes on"
    await a.dispatcher.aclose()
    await let_go(a.store)
    assert (await b.dispatcher.stats(TENANT, "q")).stored == 7, "nobody owns it"
    assert b.store.stats().slots == 0


async def test_a_server_gives_back_what_is_idle(a: Server, b: Server) -> None:
    await a.dispatcher.create(TENANT, "q", CONFIG)
    assert await a.publish(b"1", b"2", b"3")
    assert a.store.stats().slots > 0
    assert not await b.publish(b"4")
    for _ in range(25):  # who looks now and then keeps nothing open
        await trio.sleep(Settings().shared_idle_ms / 10_000)
        await a.dispatcher.stats(TENANT, "q")
    assert (a.store.stats().slots, a.dispatcher.open_shards) == (0, 0)
    assert await b.publish(b"4")
    assert (await b.dispatcher.stats(TENANT, "q")).stored == 4


async def test_a_slow_producer_does_not_read_its_backlog_with_every_message(
    a: Server, b: Server
) -> None:
    row = await a.dispatcher.create(TENANT, "q")
    buckets = []
    for _ in range(30):
        assert await a.publish(b"1")
        await trio.sleep(100)
        buckets.append(len((await a.store.outline(ShardKey(row.id, 0))).buckets))
    epochs = {bucket.key.epoch for bucket in (await a.store.outline(ShardKey(row.id, 0))).buckets}
    assert len(epochs) <= 100_000 / Settings().shared_idle_ms + 1
    assert buckets[-1] <= 12
    await trio.sleep(Bounds().bucket_ms / 1000 + 60)
    assert await b.publish(b"2"), "it is given back all the same"


async def test_all_shards_of_a_queue_are_idle_or_none(a: Server) -> None:
    await a.dispatcher.create(TENANT, "q", CONFIG)
    queue = await a.dispatcher.open(TENANT, "q")
    for _ in range(20):
        await runners_of(queue)[1].publish([message(b"1")])
        await trio.sleep(Settings().shared_idle_ms / 5_000)
    assert queue.running
    await trio.sleep(Settings().shared_idle_ms / 1000 * 2)
    assert a.dispatcher.open_shards == 0


async def test_a_new_owner_writes_the_note_that_it_found(a: Server, b: Server) -> None:
    row = await a.dispatcher.create(TENANT, "q")
    assert await a.publish(b"1")
    await trio.sleep(Settings().shared_idle_ms / 1000 * 2)
    before = (await a.store.outline(ShardKey(row.id, 0))).note
    runner = runners_of(await b.dispatcher.open(TENANT, "q"))[0]
    await trio.sleep(1)
    after = (await b.store.outline(runner.key)).note
    assert before is not None
    assert before.due is not None
    assert after == msgspec.structs.replace(before, owner=runner.epoch, n=0)


async def test_a_queue_with_a_consumer_is_not_idle(a: Server, b: Server) -> None:
    queue = await a.dispatcher.open(TENANT, "q", create=True)
    consumer = Consumer(runners_of(queue)[0])
    await trio.sleep(Settings().shared_idle_ms / 1000 * 3)
    assert not await b.publish(b"1")
    assert await a.publish(b"1")
    assert await consumer.got(1)


async def test_one_of_two_servers_gets_all_shards(a: Server, b: Server) -> None:
    """Both want them at the same time, again and again."""
    await a.dispatcher.create(TENANT, "q", QueueConfig(shards=8))
    done: list[Server] = []

    async def insist(server: Server) -> None:
        while not done:
            if await server.publish(b"1"):
                done.append(server)
            await trio.sleep(0.1)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for server in (a, b):
                nursery.start_soon(insist, server)
    assert len(done) == 1


async def test_who_can_not_have_all_shards_keeps_none(a: Server, b: Server) -> None:
    row = await a.dispatcher.create(TENANT, "q", QueueConfig(shards=4))
    last = slot_of(ShardKey(row.id, 3))
    await b.store.ownership.claim(last, "beta")
    with pytest.raises(Unavailable, match="in use by server beta"):
        await a.dispatcher.open(TENANT, "q")
    assert (a.store.stats().slots, a.dispatcher.open_shards) == (0, 0)
    await b.store.ownership.release(last)
    assert await a.publish(b"1")


async def test_dead_letters_arrive_though_another_server_has_looked_for_them(
    a: Server, b: Server
) -> None:
    queue = await a.dispatcher.open(TENANT, "q", create=True)
    consumer = Consumer(runners_of(queue)[0])
    assert await a.publish(b"1")
    await consumer.got(1)
    await b.dispatcher.ensure(TENANT, "q.dead", QueueConfig(dead_letter=""))
    assert (await b.dispatcher.stats(TENANT, "q.dead")).stored == 0
    await consumer.nack(dead=True)
    await trio.sleep(0.1)
    assert (await b.dispatcher.stats(TENANT, "q.dead")).stored == 1
    assert stats_now(queue).leaving == 0


async def test_messages_that_can_not_leave_keep_no_other_server_out(a: Server, b: Server) -> None:
    """Their queue is the other server's, and that one needs theirs: nobody may hold on to it."""
    queue = await a.dispatcher.open(TENANT, "q", create=True)
    consumer = Consumer(runners_of(queue)[0])
    assert await a.publish(b"1", b"2")
    await consumer.got(2)
    await b.dispatcher.ensure(TENANT, "q.dead", QueueConfig(dead_letter=""))
    letters = Consumer(runners_of(await b.dispatcher.open(TENANT, "q.dead"))[0])
    await consumer.nack(dead=True)
    with trio.fail_after(60):
        while stats_now(queue).stuck < 2:  # noqa: ASYNC110
            await trio.sleep(1)
    consumer.leave()
    await trio.sleep(Settings().shared_idle_ms / 1000 * 3)
    assert await b.publish(b"3")
    assert await letters.got(2) == [b"1", b"2"]


async def test_a_store_that_fails_while_rows_are_compared_ends_nothing(
    a: Server, b: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await a.dispatcher.open(TENANT, "q", create=True)
    await b.store.catalog.update(queue.row, QueueConfig(max_messages=7))

    async def fail(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise Unavailable("the store could not answer", retry_ms=1_000)

    with monkeypatch.context() as failing:
        failing.setattr(a.dispatcher._queues, "read", fail)
        await trio.sleep(Settings().row_ms / 1000 * 3)
    await trio.sleep(Settings().row_ms / 1000 * 3)
    assert queue.running
    assert queue.row.config.max_messages == 7


async def test_what_is_redriven_to_a_queue_of_another_server_comes_back(tables: Tables) -> None:
    """It asks there: nothing was sent, so it need not wait for an outcome."""
    async with server(tables, "one") as one, server(tables, "two") as two:
        assert await one.publish(b"theirs")
        for runner in runners_of(await one.dispatcher.open(TENANT, "q")):
            Consumer(runner)  # it stays there
        await two.dispatcher.create(TENANT, "mine", QueueConfig())
        await two.dispatcher.publish(TENANT, "mine", [message(b"1")])
        wanted = Redrive(max=10, budget_ms=1_000, to="q")
        assert (await two.dispatcher.redrive(TENANT, "mine", wanted)).count == 1
        consumer = Consumer(runners_of(await two.dispatcher.open(TENANT, "mine"))[0])
        await trio.sleep(30)
        assert (await two.dispatcher.stats(TENANT, "mine")).leaving == 1
        with trio.fail_after(90):
            assert await consumer.got(1) == [b"1"]


async def test_who_deletes_may_die_before_the_others_are_called(a: Server, b: Server) -> None:
    going, staying = await two_in_one_slot(a)
    Consumer(runners_of(staying)[0])
    await runners_of(going)[0].close()
    marked: Any = b.store.catalog
    await marked._queues.mark_deleting(going.row)
    with pytest.raises(Unavailable, match="server alpha has not closed it"):
        await b.dispatcher.create(TENANT, going.row.name)
    for _ in range(5):
        await trio.sleep(60)
    assert await nothing_is_left(b, going.row)


async def test_what_is_opened_for_what_is_due_goes_by_the_newest_row(a: Server, b: Server) -> None:
    row = await a.dispatcher.create(TENANT, "q", QueueConfig(dead_letter=""))
    await a.dispatcher.get(TENANT, "q")
    await b.store.catalog.update(row, QueueConfig(dead_letter="letters"))
    await a.dispatcher._open_due(DueShard(0, TENANT, "q", row.id, 0))
    [held] = a.dispatcher._shards._held.values()
    assert held.runner is not None
    assert held.runner._shard.verdicts.dead_letter == "letters"
