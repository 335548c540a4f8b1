"""A queue that nobody has open, looked at: the same as its next owner would say."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable

import pytest
import trio

from pushlane.wire.errors import NotFound, Unavailable
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.explain import Explanation
from pushlane_dispatcher.core.ident import make_id
from pushlane_dispatcher.core.lane import Lane
from pushlane_dispatcher.dispatcher import Dispatcher
from pushlane_dispatcher.settings import Settings
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Fenced, StoreUnknown
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.rig import (
    START,
    TENANT,
    Call,
    Consumer,
    ScriptedStore,
    dispatching,
    fail,
    go,
    hang,
    memory_store,
    message,
    rig,
)
from tests.running import runners_of

BOUNDS = Bounds(bucket_messages=4, segment_messages=2)
HOUR = 3_600_000


async def fill(dispatcher: Dispatcher) -> list[str]:
    """A queue of two shards with everything in it; ids in the order of what was published."""
    await dispatcher.create(
        TENANT, "q", QueueConfig(shards=2, backoff_base_ms=HOUR, backoff_max_ms=HOUR)
    )
    queue = await dispatcher.open(TENANT, "q")
    ids: list[str] = []
    for number in range(30):
        at = START + HOUR if number % 5 == 4 else 0
        lanes = [7 if number % 3 == 0 else 4]
        key = None if at or lanes == [7] else f"k{number}"
        messages = [message(b"%d" % number, not_before=at, key=key)]
        publication = await queue.publish(messages, lanes)
        assert publication.ids[0] is not None
        ids.append(publication.ids[0])
        await trio.sleep(0.01)
    for runner in runners_of(queue):
        consumer = Consumer(runner, credit=5)
        await consumer.got(5)
        await consumer.ack(*consumer.runs[:1])
        await consumer.nack(*consumer.runs[1:2], error="oops")
        consumer.leave()
    await trio.sleep(1)
    return ids


async def described(dispatcher: Dispatcher, ids: list[str]) -> list[object]:
    pages = []
    after: str | None = ""
    while after is not None:
        page = await dispatcher.peek(TENANT, "q", 7, after)
        pages += [(page.id(found), found.attempts, found.message) for found in page.messages]
        after = page.after(len(page.messages))
    found: list[object] = []
    for id in ids:
        try:
            found.append(await dispatcher.message(TENANT, "q", id))
        except NotFound:
            found.append(None)
    return [pages, found, await dispatcher.consumers(TENANT, "q")]


async def test_it_says_what_its_next_owner_says() -> None:
    store = memory_store()
    async with dispatching(store, bounds=BOUNDS) as dispatcher:
        ids = await fill(dispatcher)
    async with dispatching(store, bounds=BOUNDS) as dispatcher:
        seen = await described(dispatcher, ids)
        stats = await dispatcher.stats(TENANT, "q")
        states = [(await dispatcher.explain(TENANT, "q", id)).state for id in ids]
        assert dispatcher.open_shards == 0
        await dispatcher.open(TENANT, "q")
        await trio.sleep(1)
        assert await described(dispatcher, ids) == seen
        assert await dispatcher.stats(TENANT, "q") == stats
        assert stats.delayed == 6
        assert stats.retrying == 4
        assert stats.oldest_at is not None
        assert [(await dispatcher.explain(TENANT, "q", id)).state for id in ids] == states
        assert set(states) == {"acked", "delayed", "ready", "retrying"}


async def test_a_shard_that_is_open_here_answers_itself() -> None:
    store = memory_store()
    async with dispatching(store, bounds=BOUNDS) as dispatcher:
        ids = await fill(dispatcher)
    async with dispatching(store, bounds=BOUNDS) as dispatcher:
        seen = await described(dispatcher, ids)
        row = await dispatcher.get(TENANT, "q")
        runner = await dispatcher._shards.open(row, 1)
        assert await described(dispatcher, ids) == seen
        before = (await dispatcher.stats(TENANT, "q")).stored
        ticket = await runner.publish([message(b"new")])
        assert (await dispatcher.stats(TENANT, "q")).stored == before + 1
        id = make_id(*runner.key, 4, ticket.seqs[0])
        found = await dispatcher.explain(TENANT, "q", id)
        assert (found.state, found.why) == ("ready", "no consumer")
        assert dispatcher.open_shards == 1
        await runner.close()
        found = await dispatcher.explain(TENANT, "q", id)
        assert (found.state, found.why) == ("ready", "no consumer on this server")
        assert dispatcher.open_shards == 0


async def test_what_waits_says_so() -> None:
    store = memory_store()
    async with rig(store) as r:
        at = START + HOUR
        published = await r.queue.publish([message(), message(not_before=at), message()])
        ready, delayed, _ = published.ids
        assert ready is not None
        assert delayed is not None
    async with dispatching(store) as dispatcher:
        found = await dispatcher.explain(TENANT, "q", delayed)
        assert found == Explanation("delayed", "its delay is not over", until=at)
        found = await dispatcher.explain(TENANT, "q", ready)
        assert found == Explanation("ready", "no consumer on this server")
        with pytest.raises(NotFound):
            await dispatcher.explain(TENANT, "q", ready.replace(ready[:4], "0000"))
        await dispatcher.purge(TENANT, "q")
    async with dispatching(store) as dispatcher:
        assert (await dispatcher.explain(TENANT, "q", ready)).state == "purged"
        stats = await dispatcher.stats(TENANT, "q")
        assert (stats.stored, stats.ready, stats.oldest_at) == (0, 0, None)


async def test_a_message_whose_body_is_gone_is_ready_all_the_same() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        published = await r.queue.publish([message()])
        [id] = published.ids
        assert id is not None

    async def nothing(_: Call) -> object:
        await trio.lowlevel.checkpoint()
        return {}

    async with dispatching(ScriptedStore(store.tables)) as dispatcher:
        dispatcher._context.store.script.add("messages", nothing)  # type: ignore[attr-defined]
        assert (await dispatcher.explain(TENANT, "q", id)).state == "ready"


async def test_a_bucket_that_is_dropped_while_one_reads_is_not_there() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=BOUNDS) as r:
        consumer = r.consumer(acking=True)
        await r.publish(*[b"%d" % number for number in range(4)])
        await consumer.got(4)
        row = r.queue.row
    [bucket] = store.tables.outline(ShardKey(row.id, 0)).buckets
    other = ScriptedStore(store.tables)

    async def dropped(call: Call) -> object:
        found = await call()
        store.tables.drop(ShardKey(row.id, 0), bucket.key)
        return found

    other.script.add("outline", dropped)
    async with dispatching(other) as dispatcher:
        assert (await dispatcher.stats(TENANT, "q")).stored == 0


def live_lanes() -> int:
    gc.collect()
    return sum(type(found) is Lane for found in gc.get_objects())


async def stuck(dispatcher: Dispatcher) -> str:
    """A queue with a message that is on its way out and can't arrive; the message's id."""
    await dispatcher.create(TENANT, "q.dead", QueueConfig(dead_letter="", max_messages=1))
    await dispatcher.publish(TENANT, "q.dead", [message(b"full")])
    await dispatcher.create(TENANT, "q")
    queue = await dispatcher.open(TENANT, "q")
    publication = await queue.publish([message(b"1")])
    consumer = Consumer(runners_of(queue)[0])
    await consumer.got(1)
    await consumer.nack(dead=True)
    assert publication.ids[0] is not None
    return publication.ids[0]


async def test_looking_leaves_nothing_in_memory() -> None:
    store = memory_store()
    async with dispatching(store) as dispatcher:
        id = await stuck(dispatcher)
    before = live_lanes()
    async with dispatching(store) as dispatcher:
        for _ in range(5):
            assert (await dispatcher.stats(TENANT, "q")).leaving == 1
            assert (await dispatcher.explain(TENANT, "q", id)).state == "leaving"
            assert (await dispatcher.message(TENANT, "q", id))[0].body == b"1"
            assert (await dispatcher.peek(TENANT, "q", 5)).messages == []
            assert await dispatcher.consumers(TENANT, "q") == []
        assert dispatcher.open_shards == 0
        assert live_lanes() == before


async def test_a_look_or_an_opening_that_fails_leaves_nothing_in_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("ERROR")  # what is logged is kept, with the error and all that it refers to
    store = ScriptedStore()
    async with dispatching(store, settings=Settings(usage=False)) as dispatcher:
        await stuck(dispatcher)
    before = live_lanes()
    async with dispatching(store) as dispatcher:
        for _ in range(3):
            store.script.add("due", fail(StoreUnknown("?")))
            with pytest.raises(Unavailable):
                await dispatcher.stats(TENANT, "q")
            store.script.add("put_usage", *3 * [fail(Fenced("gone"))])
            with pytest.raises(Unavailable):
                await dispatcher.open(TENANT, "q")
        assert live_lanes() == before


async def test_a_look_that_fails_at_its_second_shard_leaves_nothing_of_the_first() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        await dispatcher.create(TENANT, "q.dead", QueueConfig(dead_letter="", max_messages=1))
        await dispatcher.publish(TENANT, "q.dead", [message(b"full")])
        await dispatcher.create(TENANT, "q", QueueConfig(shards=2))
        runner = runners_of(await dispatcher.open(TENANT, "q"))[0]
        await runner.publish([message(b"1")])
        consumer = Consumer(runner)
        await consumer.got(1)
        await consumer.nack(dead=True)
    before = live_lanes()
    async with dispatching(store) as dispatcher:
        store.script.add("outline", go, fail(StoreUnknown("?")))
        with pytest.raises(Unavailable):
            await dispatcher.stats(TENANT, "q")
        assert live_lanes() == before


async def test_a_store_that_does_not_answer_is_unavailable() -> None:
    store = ScriptedStore()
    async with rig(store):
        pass
    async with dispatching(ScriptedStore(store.tables)) as dispatcher:
        dispatcher._context.store.script.add("outline", fail(StoreUnknown("?")))  # type: ignore[attr-defined]
        with pytest.raises(Unavailable):
            await dispatcher.stats(TENANT, "q")
        assert (await dispatcher.stats(TENANT, "q")).stored == 0


async def test_few_are_looked_at_at_once() -> None:
    store = ScriptedStore()
    async with dispatching(store) as dispatcher:
        for number in range(6):
            await dispatcher.create(TENANT, f"q{number}")
    slow = ScriptedStore(store.tables)
    under_way = most = 0

    async def slowly(call: Call) -> object:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await trio.sleep(0.1)
        under_way -= 1
        return await call()

    slow.script.always["outline"] = slowly
    async with dispatching(slow, settings=Settings(views=2)) as dispatcher:
        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(dispatcher.stats, TENANT, f"q{number}")
        assert most == 2


@pytest.mark.parametrize("look", ["stats", "explain", "message"])
async def test_a_look_takes_no_longer_than_it_may(look: str, autojump_clock: object) -> None:
    store = ScriptedStore()
    async with dispatching(store, settings=Settings(peek_ms=5_000)) as dispatcher:
        await dispatcher.create(TENANT, "q", QueueConfig())
        row = await dispatcher.get(TENANT, "q")
        store.script.always["outline"] = hang
        ask: dict[str, Callable[[], Awaitable[object]]] = {
            "stats": lambda: dispatcher.stats(TENANT, "q"),
            "explain": lambda: dispatcher.explain(TENANT, "q", make_id(row.id, 0, 4, 0)),
            "message": lambda: dispatcher.message(TENANT, "q", make_id(row.id, 0, 4, 0)),
        }
        begun = trio.current_time()
        with pytest.raises(Unavailable, match="too long"):
            await ask[look]()
        assert trio.current_time() - begun == pytest.approx(5)
        assert await dispatcher.consumers(TENANT, "q") == [], "nothing is read for it"
        with pytest.raises(NotFound):
            await dispatcher.consumers(TENANT, "none")
        del store.script.always["outline"]
