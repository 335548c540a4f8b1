"""Explain: from the shard's memory, and from the store when that no longer knows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from pushlane.wire.errors import NotFound, Unavailable
from pushlane_dispatcher.core.act import ACK, Act
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.explain import Explanation
from pushlane_dispatcher.core.ident import make_id
from pushlane_dispatcher.dispatcher import open_dispatcher
from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.interface import Backend, StoreUnknown
from pushlane_storage.memory import MemoryStore
from pushlane_storage.queue import QueueConfig
from pushlane_storage.seal import Outline, Seal
from pushlane_storage.seq import make_seq
from pushlane_storage.settlement import Checkpoint, Gone, Settlement
from tests.dispatcher.rig import (
    TENANT,
    Rig,
    ScriptedStore,
    answer,
    blocked,
    fail,
    memory_store,
    message,
    mock_clock,
    rig,
)
from tests.storage.backends import Factory, memory, sqlite

BOUNDS = Bounds(bucket_messages=2)
"""So that buckets are drained soon."""


async def publish(r: Rig, *bodies: bytes) -> list[str]:
    publication = await r.queue.publish([message(body) for body in bodies])
    return [id for id in publication.ids if id]


async def explain(r: Rig, id: str) -> Explanation:
    return await r.dispatcher.explain(TENANT, "q", id)


async def test_what_memory_knows() -> None:
    async with rig() as r:
        (id,) = await publish(r, b"1")
        found = await explain(r, id)
        assert (found.state, found.why) == ("ready", "no consumer")
        consumer = r.consumer(session="worker-7")
        await consumer.got(1)
        found = await explain(r, id)
        assert (found.state, found.session) == ("leased", "worker-7")
        await consumer.ack()
        assert (await explain(r, id)).state == "acked"


@pytest.mark.parametrize("restart", [False, True])
async def test_ends_that_only_the_store_knows(restart: bool) -> None:
    store = memory_store()
    async with rig(store, bounds=BOUNDS, dead_letter="") as r:
        ids = await publish(r, b"acked", b"dead")
        consumer = r.consumer(2)
        await consumer.got(2)
        prefix = consumer.sub.prefix
        consumer.settle(ACK, [(prefix, 1, 1)])
        consumer.settle(Act("nack", dead=True, error="bad"), [(prefix, 2, 2)])
        await blocked()
        consumer.unsubscribe()
        await r.runner.publish([message(b"another lane")], [7])
        ids += await publish(r, b"purged", b"purged")
        await r.queue.purge()
        ids += await publish(r, b"here")
        await blocked()
        if not restart:
            assert [(await explain(r, id)).state for id in ids] == EXPECTED
            return
    async with rig(MemoryStore(store.tables), bounds=BOUNDS) as r:
        assert [(await explain(r, id)).state for id in ids] == EXPECTED


EXPECTED = ["acked", "dead", "purged", "purged", "ready"]


@pytest.mark.parametrize("backend", [memory, sqlite])
def test_ends_that_no_seal_counts(backend: Factory) -> None:
    """A new owner doesn't read the settlements of drained buckets before it seals."""

    async def main() -> None:
        async with backend() as opened:
            async with owner(opened.store) as r:
                ids = await publish_ends(r)
                await until_drained(opened.store, r.runner.key, 2)
            for _ in range(2):
                async with owner(await opened.reopen()) as r:
                    newest = ((await opened.store.outline(r.runner.key)).seals)[-1]
                    assert (newest.owner, newest.flushes) == (r.runner.epoch, [])
                    found = [(await explain(r, id)).state for id in ids]
                    assert found == ["acked", "dead", "expired", "ready"]

    trio.run(main)  # on the real clock: the store's threads take real time


@asynccontextmanager
async def owner(store: Backend) -> AsyncIterator[Rig]:
    async with open_dispatcher(store, clock=mock_clock(), bounds=BOUNDS) as dispatcher:
        await dispatcher.ensure(TENANT, "q", QueueConfig(dead_letter=""))
        yield Rig(dispatcher, await dispatcher.open(TENANT, "q"))


async def publish_ends(r: Rig) -> list[str]:
    """Acked, dead and expired, two to a bucket, and one in the next that has not ended."""
    ids = await publish(r, b"acked", b"dead")
    consumer = r.consumer(1)
    await consumer.got(1)
    await consumer.ack()
    await consumer.got(2)
    await consumer.nack(consumer.runs[1], dead=True, error="bad")
    consumer.unsubscribe()
    at_once = message().published_at + 1
    publication = await r.queue.publish([message(expires_at=at_once)] * 2)
    ids += [id for id in publication.ids[:1] if id]
    return ids + await publish(r, b"here")


async def until_drained(store: Backend, key: ShardKey, count: int) -> None:
    with trio.fail_after(60):
        while sum(row.drained for row in (await store.outline(key)).buckets) < count:  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_what_was_dropped_is_unknown() -> None:
    async with rig(bounds=BOUNDS, dedup_window_ms=1_000) as r:
        consumer = r.consumer(acking=True)
        ids = await publish(r, b"1", b"2")
        await publish(r, b"3")
        await consumer.got(3)
        await trio.sleep(60)
        found = await explain(r, ids[0])
        assert found.state == "unknown"


async def test_a_settlement_beyond_a_seal_tells_nothing() -> None:
    store = memory_store()
    async with rig(store, bounds=BOUNDS) as r:
        ids = await publish(r, b"1", b"2")
        consumer = r.consumer(acking=True)
        await consumer.got(2)
        await publish(r, b"3")
        await blocked()
        key, epoch = r.runner.key, r.runner.epoch
        drained = [row for row in store.tables.outline(key).buckets if row.drained]
    async with rig(MemoryStore(store.tables), bounds=BOUNDS) as r:
        # The first owner wakes up and writes what nobody must believe.
        bucket: BucketKey = drained[0].key
        lie = Checkpoint([], [Gone("dead:x", drained[0].first, drained[0].first + 1)], [], [])
        zombie = Settlement(bucket, epoch, 99, [bucket], checkpoint=lie)
        store.tables._fencing = False
        store.tables.settle(key, [zombie])
        assert [(await explain(r, id)).state for id in ids] == ["acked", "acked"]


async def test_a_message_beyond_a_seal_has_no_end() -> None:
    """Its bucket was closed by an owner that was none any more, and so was its ack written."""
    store = ScriptedStore()
    async with rig(store) as r:
        bucket, first = BucketKey(4, 1, 10), make_seq(1, 0)
        row = Bucket(bucket, first, closed=True, drained=True, count=2)
        acks = Settlement(bucket, 1, 0, [bucket], acked=[(first, first + 1)])
        store.script.always = {
            "outline": answer(Outline([Seal(2, [(4, 1, 1)], [])], [row], None)),
            "settlements": answer([acks]),
        }
        ids = [make_id(r.queue.row.id, 0, 4, seq) for seq in (first, first + 1)]
        assert [(await explain(r, id)).state for id in ids] == ["acked", "unknown"]


async def test_ids_that_are_none_of_this_queues() -> None:
    async with rig() as r:
        (id,) = await publish(r, b"1")
        row = r.queue.row
        await r.dispatcher.create(TENANT, "other")
        for strange in ("", "nonsense", id.upper(), id + "0" * 20 + "-", make_id(row.id, 1, 4, 1)):
            with pytest.raises(NotFound):
                await explain(r, strange)
        with pytest.raises(NotFound):
            await r.dispatcher.explain(TENANT, "other", id)
        for lane, seq in ((4, 1 << 50), (9, 1)):
            assert (await explain(r, make_id(row.id, 0, lane, seq))).state == "unknown"


async def test_a_store_that_can_not_answer_makes_it_unavailable() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        store.script.add("outline", fail(StoreUnknown("?")))
        with pytest.raises(Unavailable):
            await explain(r, make_id(r.queue.row.id, 0, 9, 1))
