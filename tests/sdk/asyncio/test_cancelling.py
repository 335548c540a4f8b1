"""Cancelled at any moment: no started message stays in hand, and nothing waits for nobody."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

import pushlane
from pushlane.core.lease import Lease, Phase
from pushlane.wire import frames
from tests.sdk.asyncio.loop import on_asyncio
from tests.sdk.fake_server import FakeServer, fake_server

SETTINGS = pushlane.Settings(backoff_base_ms=5, backoff_max_ms=20)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[FakeServer, pushlane.Client]]:
    """A client with nothing in hand at its end, which is quick."""
    async with fake_server() as fake:
        client = await pushlane.connect(fake.url, settings=SETTINGS)
        yield fake, client
        clocks = client._core.consumer.clocks
        assert not [lease for lease in clocks.running if lease.kept_until is not None]
        began = asyncio.get_running_loop().time()
        await client.close()
        assert asyncio.get_running_loop().time() - began < 10


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110  # each step of the loop counts here
            await asyncio.sleep(0)


def leases_of(client: pushlane.Client) -> list[Lease]:
    return list(client._core.consumer.clocks.running)


async def idle(message: pushlane.Message) -> None:
    await asyncio.sleep(3600)


@pytest.mark.parametrize("steps", range(40))
@on_asyncio
async def test_consume_cancelled_at_any_step(steps: int) -> None:
    """Between two steps of the loop it may subscribe, take, begin handlers, or work."""
    async with connected() as (fake, client):
        await client.publish_many("q", range(30))
        consumer = asyncio.create_task(client.consume("q", idle))
        for _ in range(steps):
            await asyncio.sleep(0)
        consumer.cancel()
        with suppress(asyncio.CancelledError):
            await consumer
        assert not leases_of(client)
        assert not _handlers()
        await until(lambda: not client._core.consumer.settler.pending)
        assert not [m for m in fake.model.queues["q"] if m.settled]


@on_asyncio
async def test_handlers_that_were_cancelled_before_their_first_step_give_back() -> None:
    async with connected() as (_fake, client):
        await client.publish_many("q", range(30))
        consumer = asyncio.create_task(client.consume("q", idle))
        await until(lambda: leases_of(client))
        assert len(_handlers()) == 10
        consumer.cancel()
        await asyncio.wait([consumer])
        assert not leases_of(client)
        subscription = await client.subscribe("q")
        seen = [await anext(subscription) for _ in range(30)]
        assert len({message.id for message in seen}) == 30
        await subscription.close()


def _handlers() -> list[asyncio.Task[object]]:
    tasks = asyncio.all_tasks()
    return [task for task in tasks if "Consumption._handle" in repr(task.get_coro())]


@on_asyncio
async def test_a_lease_that_is_lost_before_its_handler_begins_frees_its_place() -> None:
    async with connected() as (_fake, client):
        seen: list[int] = []
        await client.publish_many("q", range(2))
        handler = lambda message: seen.append(message.body)  # noqa: E731
        consumer = asyncio.create_task(client.consume("q", handler, concurrency=1))
        await until(lambda: leases_of(client))
        (lease,) = leases_of(client)
        client._core.consumer.settler.lose(lease)
        client._driver.run()
        assert lease.lost
        await until(lambda: len(seen) == 1)
        consumer.cancel()
        await asyncio.wait([consumer])


@on_asyncio
async def test_whoever_cancels_a_handler_its_message_comes_again() -> None:
    async with connected() as (_, client):
        fences: list[int | None] = []

        async def handle(message: pushlane.Message) -> None:
            fences.append(message.fence)
            if len(fences) == 1:
                await asyncio.sleep(3600)

        await client.publish("q", 1)
        consumer = asyncio.create_task(client.consume("q", handle))
        await until(lambda: fences)
        (task,) = _handlers()
        task.cancel()
        await until(lambda: len(fences) == 2)
        assert fences[0] != fences[1]
        consumer.cancel()
        await asyncio.wait([consumer])


@on_asyncio
async def test_a_handler_that_ends_the_program_acks_nothing() -> None:
    async with connected() as (_fake, client):
        handled: list[pushlane.Message] = []

        class Quit(BaseException):
            pass

        async def handle(message: pushlane.Message) -> None:
            handled.append(message)
            if len(handled) == 1:
                raise Quit

        await client.publish("q", 1)
        consumer = asyncio.create_task(client.consume("q", handle))
        await until(lambda: len(handled) == 2)
        consumer.cancel()
        await asyncio.wait([consumer])


@on_asyncio
async def test_a_consume_that_is_refused_leaves_no_error_behind() -> None:
    forgotten: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: forgotten.append(context))
    async with connected() as (fake, client):
        await fake.flush()
        fake.model.receive = _refusing(fake)  # type: ignore[method-assign]
        with pytest.raises(pushlane.Forbidden):
            await client.consume("q", idle)
        gc.collect()
        await asyncio.sleep(0)
    assert forgotten == []


def _refusing(fake: FakeServer) -> Callable[..., None]:
    receive = fake.model.receive

    def refuse(connection: object, data: bytes) -> None:
        frame = pushlane.wire.JSON.decode_client(data)
        if isinstance(frame, frames.Subscribe):
            error = frames.ErrorFrame("forbidden", "no", id=frame.id)
            connection.outbox.append(error)  # type: ignore[attr-defined]
        else:
            receive(connection, data)  # type: ignore[arg-type]

    return refuse


# Beginning


@pytest.mark.parametrize("steps", range(0, 40, 2))
@on_asyncio
async def test_a_subscribe_cancelled_at_any_step_takes_nothing(steps: int) -> None:
    async with connected() as (_fake, client):
        await client.publish_many("q", range(10))
        subscribing = asyncio.create_task(client.subscribe("q"))
        for _ in range(steps):
            await asyncio.sleep(0)
        subscribing.cancel()
        with suppress(asyncio.CancelledError):
            await (await subscribing).close()
        other = await client.subscribe("q")
        async with asyncio.timeout(10):
            seen = {(await anext(other)).id for _ in range(10)}
        assert len(seen) == 10
        await other.close()


@pytest.mark.parametrize("steps", range(0, 40, 2))
@on_asyncio
async def test_a_connect_cancelled_at_any_step_leaves_no_task(steps: int) -> None:
    async with fake_server() as fake:
        before = asyncio.all_tasks()

        async def connect() -> pushlane.Client:
            return await pushlane.connect(fake.url, settings=SETTINGS)

        connecting = asyncio.create_task(connect())
        for _ in range(steps):
            await asyncio.sleep(0)
        connecting.cancel()
        with suppress(asyncio.CancelledError):
            await (await connecting).close()
        await until(lambda: asyncio.all_tasks() <= before)


# Waiting for the next message


@on_asyncio
async def test_a_wait_for_a_message_that_timed_out_leaves_nothing_behind() -> None:
    async with connected() as (_, client):
        subscription = await client.subscribe("q")
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(subscription), 0.001)
        assert not subscription._waiters
        waiting = asyncio.create_task(anext(subscription))
        await client.publish("q", 1)
        assert (await waiting).body == 1
        assert not subscription._waiters
        await subscription.close()


@pytest.mark.parametrize("steps", range(30))
@on_asyncio
async def test_a_block_cancelled_at_any_step_is_not_kept(steps: int) -> None:
    async with connected() as (_, client):
        await client.publish("q", 1)
        subscription = await client.subscribe("q")

        async def work() -> None:
            async with await anext(subscription):
                await asyncio.sleep(3600)

        worker = asyncio.create_task(work())
        for _ in range(steps):
            await asyncio.sleep(0)
        worker.cancel()
        await asyncio.wait([worker])
        assert all(lease.kept_until is None for lease in leases_of(client))
        await subscription.close()


# Publishing


@on_asyncio
async def test_a_publish_cancelled_while_a_close_times_out() -> None:
    async with fake_server() as fake:
        client = await pushlane.connect(fake.url, settings=SETTINGS)
        fake.is_mute = True
        publishing = asyncio.create_task(client.publish("q", 1))
        await asyncio.sleep(0.01)
        client._core.close(client._driver.now(), 0)
        client._core.tick(client._driver.now())
        client._driver.run()
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        await client.close()


@on_asyncio
async def test_one_who_waits_for_room_cancelled_while_a_close_times_out() -> None:
    async with fake_server() as fake:
        settings = pushlane.Settings(waiting_messages=1)
        client = await pushlane.connect(fake.url, settings=settings)
        fake.reject = 503
        await fake.cut()
        publishing = [asyncio.create_task(client.publish("q", n)) for n in range(3)]
        await asyncio.sleep(0.01)
        client._core.close(client._driver.now(), 0)
        client._core.tick(client._driver.now())
        client._driver.run()
        for task in publishing:
            task.cancel()
        results = await asyncio.gather(*publishing, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 3
        await client.close()


@on_asyncio
async def test_many_publishes_that_are_cancelled_leave_no_error_behind() -> None:
    forgotten: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: forgotten.append(context))
    async with fake_server() as fake:
        client = await pushlane.connect(fake.url, settings=pushlane.Settings(waiting_messages=3))
        fake.reject = 503
        await fake.cut()
        publishing = asyncio.create_task(client.publish_many("q", range(10)))
        await asyncio.sleep(0.01)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        await client.close(timeout_ms=0)
        del publishing
        gc.collect()
        await asyncio.sleep(0)
    assert forgotten == []


def bodies(fake: FakeServer) -> list[object]:
    """What the server has stored."""
    stored = [one.message.body for one in fake.model.queues["q"]]
    return [msgspec.json.decode(body) for body in stored if body is not msgspec.UNSET]


@on_asyncio
async def test_a_publish_that_was_not_sent_is_withdrawn_when_its_time_is_up() -> None:
    async with fake_server() as fake:
        async with pushlane.connect(fake.url, settings=SETTINGS) as client:
            fake.reject = 503
            await fake.cut()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await client.publish("q", "one")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await client.publish_many("q", ["many", "many more"])
            fake.reject = None
            await client.publish("q", "last")
        assert bodies(fake) == ["last"]


@on_asyncio
async def test_a_publish_that_was_sent_may_be_stored_though_its_time_is_up() -> None:
    async with fake_server() as fake:
        async with pushlane.connect(fake.url, settings=SETTINGS) as client:
            fake.is_mute = True
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.publish_many("q", ["a", "b"])
            fake.is_mute = False
            await fake.flush()
        assert bodies(fake) == ["a", "b"]


@on_asyncio
async def test_a_bad_item_withdraws_what_came_before_it_and_was_not_sent() -> None:
    async with fake_server() as fake:
        async with pushlane.connect(fake.url, settings=SETTINGS) as client:
            with pytest.raises(pushlane.BadRequest, match="use data="):
                await client.publish_many("q", [1, b"bytes", 3])
            await client.publish("q", "last")
        assert bodies(fake) == ["last"]


# Closing


@on_asyncio
async def test_everybody_who_closes_is_told() -> None:
    async with fake_server() as fake:
        client = await pushlane.connect(fake.url, settings=SETTINGS)
        fake.is_mute = True
        publishing = asyncio.create_task(client.publish("q", 1))
        await asyncio.sleep(0.01)
        closing = [asyncio.create_task(client.close()) for _ in range(3)]
        await asyncio.sleep(0.01)
        fake.is_mute = False
        await fake.flush()
        async with asyncio.timeout(10):
            await asyncio.gather(publishing, *closing)


@on_asyncio
async def test_a_started_message_is_over_after_a_close_that_was_cancelled() -> None:
    async with fake_server() as fake:
        client = await pushlane.connect(fake.url, settings=SETTINGS)
        await client.publish("q", 1)
        consumer = asyncio.create_task(client.consume("q", idle))
        await until(lambda: leases_of(client))
        (lease,) = leases_of(client)
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0.01)
        closing.cancel()
        await asyncio.wait([closing, consumer])
        assert lease.phase is Phase.OVER


@on_asyncio
async def test_a_close_without_a_server_is_quick() -> None:
    """With messages in hand that nobody has taken, and one that is acked."""
    async with fake_server() as fake:
        settings = pushlane.Settings(backoff_base_ms=5, backoff_max_ms=20, away_ms=200)
        client = await pushlane.connect(fake.url, settings=settings)
        await client.publish_many("q", range(5))
        subscription = await client.subscribe("q")
        message = await anext(subscription)
        fake.reject = 503
        await fake.cut()
        await until(lambda: client.state == "connecting")
        acking = asyncio.create_task(message.ack())
        async with asyncio.timeout(10):
            await subscription.close()
            await client.close()
            with pytest.raises(pushlane.ConnectionLost):
                await acking
