"""Dead letters, whole way: into their queue, and back out of it."""

import trio

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_storage.interface import StoreUnknown
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.rig import (
    TENANT,
    Consumer,
    Rig,
    ScriptedStore,
    blocked,
    fail_after,
    message,
    numbered,
    rig,
)
from tests.running import runners_of, stats_now


async def dead_consumer(r: Rig, name: str = "q.dead", **options: object) -> Consumer:
    queue = await r.dispatcher.open(TENANT, name)
    return Consumer(runners_of(queue)[0], **options)  # type: ignore[arg-type]


async def test_attempts_run_out_and_the_message_dies() -> None:
    async with rig(max_attempts=2, backoff_base_ms=100) as r:
        consumer = r.consumer()
        publication = await r.queue.publish([message(b"1", headers={"h": "v"})])
        for attempt in (1, 2):
            await consumer.got(attempt)
            await consumer.nack(consumer.runs[-1], error="no good")
        await trio.sleep(1)
        dead = await dead_consumer(r)
        assert await dead.got(1) == [b"1"]
        letter = dead.runs[0].messages[0]
        assert letter.headers == {"h": "v"}
        assert letter.dead is not None
        assert letter.dead.cause == "max_attempts"
        assert (letter.dead.queue, letter.dead.id) == ("q", publication.ids[0])
        assert (letter.dead.attempts, letter.dead.error) == (2, "no good")
        assert r.runner.stats().dead == 1
        row = await r.dispatcher.get(TENANT, "q.dead")
        assert row.config.dead_letter == ""


async def test_a_dead_letter_queue_has_no_dead_letters_of_its_own() -> None:
    async with rig() as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        await consumer.nack(dead=True)
        await trio.sleep(1)
        dead = await dead_consumer(r)
        await dead.got(1)
        await dead.nack(dead=True)  # its end
        await trio.sleep(1)
        assert (await r.dispatcher.stats(TENANT, "q.dead")).stored == 0
        names = [row.name for row in await r.dispatcher.list(TENANT)]
        assert names == ["q", "q.dead"]


async def test_another_queue_can_take_the_dead_letters() -> None:
    async with rig(dead_letter="grave") as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        await consumer.nack(dead=True)
        await trio.sleep(1)
        dead = await dead_consumer(r, "grave")
        assert await dead.got(1) == [b"1"]


async def test_no_dead_letter_queue_means_that_it_ends() -> None:
    async with rig(dead_letter="") as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        await consumer.nack(dead=True)
        await trio.sleep(1)
        assert r.runner.stats().dead == 1
        assert [row.name for row in await r.dispatcher.list(TENANT)] == ["q"]


async def test_many_travel_together() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        consumer = r.consumer()
        await r.runner.publish(numbered(50))
        await consumer.got(50)
        store.script.calls.clear()
        await consumer.nack(dead=True)
        await trio.sleep(1)
        dead = await dead_consumer(r)
        assert len(await dead.got(50)) == 50
        assert len(store.script.called("append")) <= 3


async def test_a_full_dead_letter_queue_makes_them_wait() -> None:
    async with rig() as r:
        await r.dispatcher.create(TENANT, "q.dead", QueueConfig(max_messages=1))
        consumer = r.consumer()
        await r.publish(b"1", b"2")
        await consumer.got(2)
        await consumer.nack(dead=True)
        await trio.sleep(10)
        assert r.runner.stats().leaving == 1
        dead = await dead_consumer(r, acking=True)
        assert sorted(await dead.got(2)) == [b"1", b"2"]
        await blocked()
        assert r.runner.stats().stored == 0


async def test_a_dead_letter_queue_that_can_not_be_had_makes_them_wait() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        store.script.add("create_queue", *[fail_after(StoreUnknown("?"))] * 3)
        await consumer.nack(dead=True)
        await trio.sleep(30)
        dead = await dead_consumer(r)
        assert await dead.got(1) == [b"1"]


async def test_leavers_go_on_after_a_restart_and_arrive_once() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        await r.dispatcher.create(TENANT, "q.dead")
        consumer = r.consumer()
        await r.publish(b"1")
        await consumer.got(1)
        dead = await r.dispatcher.open(TENANT, "q.dead")
        await consumer.nack(dead=True)
        # Stored there, and the source stops before it can note that.
        with trio.move_on_after(1):
            while not stats_now(dead).stored:
                await trio.lowlevel.checkpoint()
            await r.runner.close()
    async with rig(ScriptedStore(store.tables)) as r:
        await trio.sleep(5)
        assert (await r.dispatcher.stats(TENANT, "q.dead")).stored == 1
        assert (await r.dispatcher.stats(TENANT, "q")).stored == 0


async def test_expired_and_overflowing_messages_die_too() -> None:
    bounds = Bounds(expiry_sweep_ms=100)
    async with rig(bounds=bounds, max_messages=2, overflow="dead_letter") as r:
        await r.publish(b"stale", expires_at=message().published_at + 1_000)
        await r.publish(b"2")
        await r.publish(b"3")
        dead = await dead_consumer_when_there(r)
        await dead.got(1)
        causes = [run.messages[0].dead for run in dead.runs]
        assert [cause.cause for cause in causes if cause] == ["overflow"]


async def dead_consumer_when_there(r: Rig) -> Consumer:
    await trio.sleep(1)
    return await dead_consumer(r)


async def test_a_full_dead_letter_queue_costs_next_to_nothing() -> None:
    store = ScriptedStore()
    async with rig(store, max_messages=100) as r:
        await r.dispatcher.create(TENANT, "q.dead", QueueConfig(max_messages=1))
        consumer = r.consumer()
        await r.runner.publish(numbered(100))
        await consumer.got(100)
        await consumer.nack(dead=True)
        await trio.sleep(10)
        pumps = 0
        pump = r.runner._engine.pump

        def counted() -> None:
            nonlocal pumps
            pumps += 1
            pump()

        r.runner._engine.pump = counted  # type: ignore[method-assign]
        await trio.sleep(600)
        assert pumps < 600
        assert r.runner.stats().stuck == r.runner.stats().leaving == 99
        refused = await r.queue.publish([message(b"one more")] * 2)
        assert [error.code for error in refused.failed.values()] == ["queue_full"]


async def test_a_dead_letter_queue_that_is_deleted_is_made_again() -> None:
    async with rig() as r:
        await r.dispatcher.create(TENANT, "q.dead", QueueConfig(max_messages=1))
        consumer = r.consumer()
        await r.publish(b"1", b"2")
        await consumer.got(2)
        await consumer.nack(dead=True)
        await trio.sleep(10)
        await r.dispatcher.delete(TENANT, "q.dead")
        await trio.sleep(60)
        assert (await r.dispatcher.stats(TENANT, "q.dead")).stored == 1
        assert r.runner.stats().stored == 0


async def test_a_dead_letter_that_is_too_large_waits_and_says_so() -> None:
    async with rig(dead_letter="small") as r:
        await r.dispatcher.create(TENANT, "small", QueueConfig(max_message_bytes=5))
        consumer = r.consumer()
        publication = await r.queue.publish([message(b"too large"), message(b"fits")])
        await consumer.got(2)
        await consumer.nack(dead=True)
        await trio.sleep(1)
        assert (await r.dispatcher.stats(TENANT, "small")).stored == 1
        stats = await r.dispatcher.stats(TENANT, "q")
        assert (stats.leaving, stats.stuck) == (1, 1)
        assert publication.ids[0] is not None
        found = await r.dispatcher.explain(TENANT, "q", publication.ids[0])
        assert "small refuses it" in found.why
        numbers = r.dispatcher.transfer_numbers()
        assert (numbers["refused"], numbers["leaving"]) == (1, 1)
        config = QueueConfig(max_message_bytes=50)
        await r.dispatcher.update(TENANT, "small", config)
        await trio.sleep(400)
        assert (await r.dispatcher.stats(TENANT, "small")).stored == 2
