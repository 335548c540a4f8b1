"""A receive: the sink of one request's feed, in the moments that are hard to meet."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from pushlane.wire.errors import NotFound, PushlaneError, Unavailable
from pushlane_dispatcher.callers.receive import Receive
from pushlane_dispatcher.core.act import ACK, Act
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_leases.memory import MemoryLeases
from pushlane_storage.message import Message
from tests.dispatcher.rig import TENANT, Consumer, Gate, Rig, ScriptedStore, blocked, message, rig
from tests.dispatcher.subscriber import door_of, settle, subscribe
from tests.running import runners_of, stats_now

LARGE = 1_000_000


def size_of(message: Message) -> int:
    return len(message.body)


async def receive(r: Rig, most: int = 10) -> Receive:
    found = Receive(TENANT, "q", "me", most, None)
    door = door_of(r.dispatcher)
    door.subscribe(found.spec, found, lambda feed, _: found.subscribed(feed))
    await door.done()
    return found


def bodies(found: Receive, size: int = LARGE) -> list[bytes]:
    return [taken.message.body for taken in found.take(size, size_of)]


async def test_nothing_is_waited_for_where_nothing_is() -> None:
    async with rig(shards=4) as r:
        found = await receive(r)
        before = trio.current_time()
        await found.wait(0, 300)
        assert trio.current_time() == before
        assert bodies(found) == []
        await blocked()
        assert stats_now(r.queue).subscriptions == 0


@pytest.mark.parametrize("most", [1, 3, 7, 40])
async def test_it_gets_what_there_is_of_all_shards_and_no_more_than_it_asked_for(most: int) -> None:
    async with rig(shards=4) as r:
        await runners_of(r.queue)[1].publish([message(b"%d" % n) for n in range(20)])
        await runners_of(r.queue)[3].publish([message(b"x")])
        found = await receive(r, most)
        before = trio.current_time()
        await found.wait(0, 300)
        assert trio.current_time() == before
        stats = stats_now(r.queue)
        assert stats.reserved == min(most, 21)
        assert len(bodies(found)) == min(most, 21)
        found.begin()
        await blocked()
        stats = stats_now(r.queue)
        assert (stats.leased, stats.reserved) == (min(most, 21), 0)


async def test_another_consumer_gets_what_was_ready() -> None:
    """Then it waits for all shards."""
    async with rig(shards=2) as r:
        one, other = runners_of(r.queue)
        consumer = Consumer(one, 100)
        await one.publish([message(b"1"), message(b"2")])
        found = await receive(r, 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.wait, 1_000, 300)
            await blocked()
            assert (one.stats().subscriptions, other.stats().subscriptions) == (2, 1)
            await other.publish([message(b"3")])
        assert consumer.bodies == [b"1", b"2"]
        assert bodies(found) == [b"3"]
        found.begin()
        assert (one.stats().subscriptions, other.stats().subscriptions) == (1, 1)


async def test_what_was_taken_back_is_not_in_the_answer() -> None:
    async with rig() as r:
        await r.publish(b"1", b"2")
        found = await receive(r)
        await blocked()
        (subscription,) = r.runner._shard.consumers.subscriptions.values()
        found.lost([(subscription.prefix, 1, 1)])
        (taken,) = found.take(LARGE, size_of)
        assert taken.receipt == f"{subscription.prefix}.2"


async def test_what_comes_while_the_answer_is_written_goes_back() -> None:
    async with rig() as r:
        await r.publish(b"1", b"2")
        found = await receive(r)
        await blocked()
        assert bodies(found, 1) == [b"1"]
        await r.publish(b"3")
        await blocked()
        assert r.runner.stats().reserved == 2
        found.begin()
        await blocked()
        stats = r.runner.stats()
        assert (stats.leased, stats.reserved, stats.ready) == (1, 0, 2)


async def test_nothing_happens_after_its_end() -> None:
    async with rig() as r:
        await r.publish(b"1")
        found = await receive(r)
        await blocked()
        assert bodies(found) == [b"1"]
        found.give_back()
        found.begin()
        found.give_back()
        await blocked()
        stats = r.runner.stats()
        assert (stats.subscriptions, stats.ready, stats.leased) == (0, 1, 0)


async def test_a_shard_that_stops_at_any_moment() -> None:
    async with rig() as r:
        await r.publish(b"1", b"2", b"3")
        waiting, taken, begun = [await receive(r, 1) for _ in range(3)]
        await blocked()
        assert [bodies(taken), bodies(begun)] == [[b"2"], [b"3"]]
        begun.begin()
        await r.runner.close()
        with pytest.raises(Unavailable) as caught:
            bodies(waiting)
        assert caught.value.retry_ms == 100
        for found in (waiting, taken, begun):
            found.begin()
            found.give_back()


async def test_one_of_several_shards_that_stops() -> None:
    """What it gave is lost; what the others gave is not."""
    async with rig(shards=2) as r:
        found = await receive(r)
        for number, runner in enumerate(runners_of(r.queue)):
            await runner.publish([message(b"%d" % number)])
        await blocked()
        await runners_of(r.queue)[0].close()
        await found.wait(10_000, 300)
        assert bodies(found) == [b"1"]


async def test_a_deleted_queue_is_not_found() -> None:
    async with rig() as r:
        found = await receive(r)
        await r.dispatcher.delete(TENANT, "q")
        with pytest.raises(NotFound) as caught:
            bodies(found)
        assert caught.value.retry_ms is None


@pytest.mark.parametrize("released", [True, False])
async def test_what_must_be_read_is_waited_for_but_not_for_long(released: bool) -> None:
    store, gate = ScriptedStore(), Gate()
    async with rig(store, bounds=Bounds(window_messages=1, page_messages=1)) as r:
        for body in (b"1", b"2", b"3", b"4"):
            await r.publish(body)
        store.script.always["segments"] = store.script.always["messages"] = gate
        found = await receive(r)
        if released:
            gate.released.set()
        before = trio.current_time()
        await found.wait(0, 300)
        waited = trio.current_time() - before
        assert gate.entered.is_set()
        assert waited == pytest.approx(0 if released else 0.3)
        assert bodies(found) == ([b"1", b"2", b"3", b"4"] if released else [b"1"])
        found.give_back()
        gate.released.set()


# Whose receipts they are


async def test_who_has_a_receipt_has_the_answer() -> None:
    """What settles it overtakes the end of the answer: the attempt counts all the same."""
    async with rig(max_attempts=1) as r:
        await r.publish(b"1", b"2")
        found = await receive(r)
        await found.wait(0, 300)
        first, second = [(taken.prefix, taken.n, taken.n) for taken in found.take(LARGE, size_of)]
        assert (await settle(r.dispatcher, Act("nack", delay_ms=0), first)).lost == []
        await blocked()
        stats = r.runner.stats()
        assert (stats.reserved, stats.dead) == (1, 1)
        found.begin()
        assert (await settle(r.dispatcher, ACK, second)).lost == []
        assert r.runner.stats().subscriptions == 0


async def test_a_session_may_settle_them_too() -> None:
    async with rig(shards=3) as r:
        await runners_of(r.queue)[2].publish([message(b"1")])
        found = await receive(r)
        await found.wait(0, 300)
        (taken,) = found.take(LARGE, size_of)
        found.begin()
        session = await subscribe(r.dispatcher)
        receipt = taken.prefix, taken.n, taken.n
        assert (await session.ack(receipt)).lost == []
        assert (await session.ack(receipt)).duplicate == [receipt]
        assert stats_now(r.queue).subscriptions == 3


@pytest.mark.parametrize("leases", [None, MemoryLeases])
async def test_what_a_shard_that_stopped_had_out(leases: Any) -> None:
    async with rig(leases=leases and leases()) as r:
        await r.publish(b"1", b"2")
        found = await receive(r)
        await found.wait(0, 300)
        first, second = [(taken.prefix, taken.n, taken.n) for taken in found.take(LARGE, size_of)]
        found.begin()
        await r.runner.close()
        await r.reopen()
        lost = [] if leases else [first]
        assert (await settle(r.dispatcher, ACK, first)).lost == lost
        assert (await settle(r.dispatcher, Act("nack", dead=True), second)).lost == (
            [] if leases else [second]
        )
        await blocked()
        assert r.runner.stats().subscriptions == 0


@pytest.mark.parametrize("most", [101, 1_000])
async def test_no_more_than_a_shard_may_give_to_one(most: int) -> None:
    async with rig(shards=2, bounds=Bounds(credit=100)) as r:
        found = Receive(TENANT, "q", "me", most, None)
        errors: list[PushlaneError | None] = []
        door_of(r.dispatcher).subscribe(found.spec, found, lambda _, error: errors.append(error))
        await blocked()
        assert [str(error) for error in errors] == ["credit must be 1 to 100"]
        await r.queue.publish([message(b"%d" % n, key=f"{n}") for n in range(10)])
        await blocked()
        assert stats_now(r.queue).subscriptions == 0
