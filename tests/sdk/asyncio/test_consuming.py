"""The asyncio shell against a fake server: iterators, handlers, lost leases."""

from __future__ import annotations

import asyncio

import pytest

import pushlane
from pushlane.wire import frames
from tests.sdk.asyncio.loop import on_asyncio
from tests.sdk.fake_server import FakeServer, fake_server

FAST = pushlane.Settings(backoff_base_ms=5, backoff_max_ms=20, connect_ms=300)


def positions(fake: FakeServer, kind: type[frames.Frame]) -> list[int]:
    return [n for n, frame in enumerate(fake.model.received) if isinstance(frame, kind)]


async def lose_everything(fake: FakeServer) -> None:
    for session in fake.model.sessions.values():
        for sub in session.subs.values():
            fake.model.lose(sub, list(sub.held))
    await fake.flush()


@on_asyncio
async def test_start_leaves_before_the_handler_runs() -> None:
    async with fake_server() as fake, pushlane.connect(fake.url) as client:
        started_at_call = []

        def handle(message: pushlane.Message) -> None:
            asyncio.get_running_loop()
            started_at_call.append(client._driver.core.consumer.subscriptions)
            subscription = message._lease.subscription
            assert subscription.starts == [], "its start is still here"

        consumer = asyncio.create_task(client.consume("q", handle))
        await client.publish_many("q", range(20))
        await asyncio.sleep(0.1)
        assert len(started_at_call) == 20
        await client.close()
        await consumer
        assert len(positions(fake, frames.Start)) < 20
        assert positions(fake, frames.Start)[0] < positions(fake, frames.Ack)[0]


@on_asyncio
async def test_taking_from_an_iterator_starts_at_once() -> None:
    async with fake_server() as fake, pushlane.connect(fake.url) as client:
        await client.publish_many("q", range(2))
        subscription = await client.subscribe("q")
        message = await anext(subscription)
        assert message._lease.subscription.starts == []
        await asyncio.sleep(0.02)
        assert len(positions(fake, frames.Start)) == 1
        await subscription.close()


@on_asyncio
async def test_a_lost_lease_cancels_the_handler_and_goes_on() -> None:
    async with fake_server() as fake, pushlane.connect(fake.url) as client:
        began = asyncio.Event()
        ends: list[str] = []

        async def handle(message: pushlane.Message) -> None:
            if message.fence == 1:
                began.set()
                try:
                    await asyncio.sleep(10)
                except asyncio.CancelledError:
                    ends.append("cancelled" if message.lost else "why?")
                    raise
            ends.append("done")

        consumer = asyncio.create_task(client.consume("q", handle))
        await client.publish("q", 1)
        await began.wait()
        await lose_everything(fake)
        await asyncio.sleep(0.05)
        assert ends == ["cancelled", "done"]
        await client.close()
        await consumer
        assert fake.model.queues["q"][0].settled == "ack"


@on_asyncio
async def test_a_lost_lease_cancels_the_block() -> None:
    async with fake_server() as fake, pushlane.connect(fake.url) as client:
        await client.publish("q", 1)
        subscription = await client.subscribe("q")
        message = await anext(subscription)
        losing = asyncio.create_task(asyncio.sleep(0.02))
        losing.add_done_callback(lambda _: tasks.append(asyncio.create_task(lose_everything(fake))))
        tasks: list[asyncio.Task[None]] = []
        with pytest.raises(pushlane.LeaseLost):
            async with message:
                await asyncio.sleep(10)
        assert message.lost
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        with pytest.raises(pushlane.LeaseLost):
            async with message:
                pass
        await asyncio.gather(*tasks)


@on_asyncio
async def test_a_cancelled_block_gives_its_message_back_at_once() -> None:
    async with fake_server() as fake, pushlane.connect(fake.url) as client:
        await client.publish("q", 1)
        subscription = await client.subscribe("q")
        message = await anext(subscription)

        async def work() -> None:
            async with message:
                await asyncio.sleep(10)

        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        again = await anext(subscription)
        assert again.id == message.id
        assert fake.model.nacks[0].delay_ms == 0
        await again.ack()


@on_asyncio
async def test_cancelling_consume_cancels_its_handlers_and_gives_back() -> None:
    async with fake_server() as fake, pushlane.connect(fake.url) as client:
        running: set[int] = set()

        async def handle(message: pushlane.Message) -> None:
            running.add(message.body)
            try:
                await asyncio.sleep(10)
            finally:
                running.discard(message.body)

        consumer = asyncio.create_task(client.consume("q", handle, concurrency=2))
        await client.publish_many("q", range(5))
        await asyncio.sleep(0.05)
        assert len(running) == 2
        consumer.cancel()
        await asyncio.wait([consumer])
        assert consumer.cancelled()
        assert running == set()
        await asyncio.sleep(0.05)
        assert len(fake.model.ready["q"]) == 5


@on_asyncio
async def test_handlers_settle_themselves_if_they_like() -> None:
    async with fake_server() as fake, pushlane.connect(fake.url) as client:

        async def handle(message: pushlane.Message) -> None:
            if message.body == "reject":
                await message.reject("bad")
            elif message.body == "ack":
                await message.ack()
                raise RuntimeError("too late to matter")
            else:
                await message.extend(60_000)

        consumer = asyncio.create_task(client.consume("q", handle))
        await client.publish_many("q", ["reject", "ack", "extend"])
        await asyncio.sleep(0.05)
        await client.close()
        await consumer
        assert [m.settled for m in fake.model.queues["q"]] == ["dead", "ack", "ack"]


@on_asyncio
async def test_a_subscription_that_the_server_ends_raises() -> None:
    async with fake_server() as fake, pushlane.connect(fake.url) as client:

        async def handle(message: pushlane.Message) -> None: ...

        subscription = await client.subscribe("q")
        consumer = asyncio.create_task(client.consume("q", handle))
        await asyncio.sleep(0.02)
        waiting = asyncio.ensure_future(anext(subscription))
        await asyncio.sleep(0)
        await fake.send(frames.Ended(1, "not_found", "deleted"))
        await fake.send(frames.Ended(2, "forbidden", "withdrawn"))
        with pytest.raises(pushlane.NotFound):
            await waiting
        with pytest.raises(pushlane.Forbidden):
            await consumer


@on_asyncio
async def test_a_session_that_is_gone_is_begun_anew() -> None:
    async with fake_server() as fake, pushlane.connect(fake.url, settings=FAST) as client:
        await client.publish("q", 1)
        subscription = await client.subscribe("q")
        message = await anext(subscription)
        await fake.cut()
        for name in list(fake.model.sessions):
            fake.model.forget(name)
        again = await anext(subscription)
        assert message.lost
        assert again.id == message.id
        with pytest.raises(pushlane.LeaseLost):
            await message.ack()
        await again.ack()


@on_asyncio
async def test_bad_concurrency() -> None:
    async with fake_server() as fake, pushlane.connect(fake.url) as client:
        with pytest.raises(pushlane.BadRequest, match="concurrency"):
            await client.consume("q", print, concurrency=0)
