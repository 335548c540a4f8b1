"""A grant: the sink of one receive at one shard, in the moments that are hard to meet."""

from __future__ import annotations

import trio

from pushlane.wire.errors import NotFound, Unavailable
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.grant import Grant, find_grant
from pushlane_dispatcher.open_queue import OpenQueue
from pushlane_dispatcher.poll import Poll, PollOptions
from pushlane_dispatcher.settled import Settled
from pushlane_gateway.session.delivery import size_of
from tests.dispatcher.rig import Consumer, Rig, blocked, message, rig

OPTIONS = PollOptions("me", 1, None, 1_000, 300, 1_000_000, size_of)


def attach(r: Rig, credit: int = 10) -> Grant:
    return Grant.attach(r.runner, Settled(30_000, 10), "me", credit, None, lambda: None)


async def test_what_was_taken_back_is_not_in_the_answer() -> None:
    async with rig() as r:
        await r.publish(b"1", b"2")
        grant = attach(r)
        await blocked()
        prefix = grant.subscription.prefix
        r.runner.settle(grant.subscription, 1, Act("nack", delay_ms=60_000), [(prefix, 1, 1)])
        found, size = grant.take(10, 1_000_000, size_of)
        assert [shown.receipt for shown in found] == [f"{prefix}.2"]
        assert size > 0
        grant.stop()
        grant.begin()
        assert r.runner.stats().leased == 1


async def test_what_comes_while_the_answer_is_written_goes_back() -> None:
    async with rig() as r:
        await r.publish(b"1")
        grant = attach(r)
        await blocked()
        grant.take(1, 1_000_000, size_of)
        await r.publish(b"2")
        await blocked()
        assert r.runner.stats().reserved == 2
        grant.stop()
        await r.publish(b"3")
        await blocked()
        assert r.runner.stats().reserved == 2
        grant.begin()
        await blocked()
        stats = r.runner.stats()
        assert (stats.leased, stats.reserved, stats.ready) == (1, 0, 2)


async def test_nothing_happens_after_its_end() -> None:
    async with rig() as r:
        await r.publish(b"1")
        grant = attach(r)
        await blocked()
        grant.take(1, 1_000_000, size_of)
        grant.give_back()
        grant.ended("unavailable", "the shard was closed")
        grant.deliver([], False)
        grant.stop()
        grant.begin()
        grant.give_back()
        assert (grant.error, grant.came) == (None, False)
        await blocked()
        stats = r.runner.stats()
        assert (stats.subscriptions, stats.ready) == (0, 1)


async def test_a_shard_that_stops_at_any_moment() -> None:
    async with rig() as r:
        await r.publish(b"1", b"2", b"3")
        waiting, taken, begun = attach(r, 1), attach(r, 1), attach(r, 1)
        await blocked()
        for grant in (taken, begun):
            grant.take(1, 1_000_000, size_of)
        begun.begin()
        await r.runner.close()
        assert isinstance(waiting.error, Unavailable)
        for grant in (waiting, taken, begun):
            grant.stop()
            grant.begin()
            grant.rest()
            grant.give_back()
        assert len(begun._settled) == 0


async def test_a_deleted_queue_is_not_found() -> None:
    async with rig() as r:
        grant = attach(r)
        await r.dispatcher.delete("default", "q")
        assert isinstance(grant.error, NotFound)
        assert grant.error.retry_ms is None


async def test_only_grants_are_found() -> None:
    async with rig() as r:
        settled = Settled(30_000, 10)
        grant, consumer = attach(r), Consumer(r.runner)
        assert find_grant(r.runner, grant.subscription, settled) is grant
        assert find_grant(r.runner, consumer.sub, settled) is None


async def test_a_ready_shard_whose_messages_another_consumer_gets() -> None:
    """Then the other shards are asked, too, and answer when they have something."""
    async with rig(shards=2) as r:
        queue: OpenQueue = r.queue
        one, other = queue.runners
        await one.publish([message(b"1"), message(b"2")])
        consumer = Consumer(one, 1)
        await consumer.got(1)
        assert [runner.ready for runner in queue.runners] == [True, False]
        one.credit(consumer.sub, 100)  # it has more free permits than the receive will have
        poll = Poll(queue, OPTIONS, Settled(30_000, 10))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll.run)
            await blocked()
            assert (one.stats().subscriptions, other.stats().subscriptions) == (2, 1)
            await other.publish([message(b"3")])
        assert consumer.bodies == [b"1", b"2"]
        (found,) = poll.take()
        assert found.message.body == b"3"
        poll.begin()
        assert (one.stats().subscriptions, other.stats().subscriptions) == (1, 1)
