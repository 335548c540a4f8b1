"""A feed: one subscription, over all shards of its queue."""

from __future__ import annotations

from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.core.act import ACK, START, Act
from pushlane_dispatcher.core.effects import SettleTicket
from pushlane_dispatcher.core.runs import make_runs
from pushlane_dispatcher.waiter import Waiter
from tests.dispatcher.rig import TENANT, Consumer, blocked, message, rig
from tests.dispatcher.subscriber import subscribe
from tests.running import runners_of, stats_now

# Who may settle


async def test_an_older_holder_has_no_say_after_a_resume_by_another() -> None:
    """As when a client resumes at another gateway, and the first one does not know yet."""
    async with rig() as r:
        older = await subscribe(r.dispatcher, credit=10)
        await r.publish(b"1", b"2")
        await blocked()
        (subscription,) = r.runner._shard.consumers.subscriptions.values()
        newer = Consumer(r.runner, session="newer")
        newer.sub = subscription
        assert newer.resume(older.receipts) == []
        older.feed.set_credit(1)
        older.feed.detach(1)
        older.feed.unsubscribe()
        older.feed.end()
        assert (subscription.credit, subscription.away_until, subscription.closed) == (10, None, 0)
        for act in (ACK, START, Act("nack", dead=True), Act("extend", lease_ms=1_000_000)):
            refused = await older.settle(act, *older.receipts)
            assert (refused.lost, refused.error) == (older.receipts, None)
        before = r.runner.stats()
        assert (before.leased, before.acked, before.dead) == (2, 0, 0)
        waiter: Waiter[SettleTicket] = Waiter()
        newer.settle(ACK, older.receipts, waiter)
        assert (await waiter.wait()).lost == []
        assert r.runner.stats().acked == 2


async def test_who_resumed_goes_on() -> None:
    async with rig(shards=3) as r:
        it = await subscribe(r.dispatcher, credit=30)
        await r.queue.publish([message(b"%d" % n) for n in range(30)])
        await blocked()
        for receipts in (it.receipts[:10], it.receipts[10:20]):
            it.feed.detach(30_000)
            refused = await it.ack(*receipts)
            assert refused.lost == receipts, "nobody settles between a drop and a resume"
            lost: list[list[ReceiptRun]] = []
            it.feed.resume(it.receipts, (), lost.append)
            assert lost == [[]]
            assert (await it.ack(*receipts)).lost == []
            it.receipts = [one for one in it.receipts if one not in receipts]


# What it says


async def test_only_a_request_is_told_that_nothing_is_left() -> None:
    async with rig(shards=3) as r:
        request = await subscribe(r.dispatcher, session="http:me")
        session = await subscribe(r.dispatcher)
        await blocked()
        assert (request.quiets > 0, session.quiets) == (True, 0)


async def test_a_deleted_queue_ends_it() -> None:
    async with rig(shards=3) as r:
        it = await subscribe(r.dispatcher)
        await r.dispatcher.delete(TENANT, "q")
        assert it.end is not None
        assert it.end[0] == "not_found"
        assert it.feed.closed


async def test_an_unsubscribed_one_gets_nothing_more_and_may_settle() -> None:
    async with rig(shards=2) as r:
        it = await subscribe(r.dispatcher, credit=10)
        await r.queue.publish([message(b"%d" % n, key=f"{n}") for n in range(4)])
        await blocked()
        it.feed.unsubscribe()
        await r.queue.publish([message(b"more")])
        await blocked()
        assert (len(it.bodies), it.feed.held) == (4, 4)
        assert (await it.ack(*it.receipts)).lost == []
        assert it.feed.held == 0


async def test_a_paused_one_gets_nothing_and_goes_on_with_its_credit() -> None:
    async with rig(shards=2) as r:
        it = await subscribe(r.dispatcher, credit=3)
        it.feed.pause(True)
        await r.queue.publish([message(b"%d" % n, key=f"{n}") for n in range(8)])
        await blocked()
        assert it.bodies == []
        it.feed.pause(False)
        await blocked()
        assert len(it.bodies) == 3
        it.feed.set_credit(5)
        await blocked()
        assert len(it.bodies) == 5


async def test_what_is_sent_again_to_a_client_that_resumed_is_no_turn() -> None:
    """A body that must be read again comes after its shard said that it is hungry."""
    async with rig(shards=2) as r:
        it = await subscribe(r.dispatcher, credit=1)
        await r.queue.publish([message(b"%d" % n, key=f"{n}") for n in range(20)])
        await blocked()
        [part] = [part for part in it.feed._parts if part.held]
        subscription = runners_of(r.queue)[part.number]._shard.consumers.subscriptions[part.prefix]
        [entry] = subscription.held.values()
        it.feed._shares._first = 1 - part.number
        it.feed.detach(30_000)
        it.feed.resume([], (), lambda _: None)
        await blocked()
        part.deliver(make_runs([entry], entry.deadline), True, 1, 0)
        while it.receipts:
            assert (await it.ack(it.receipts.pop())).error is None
            await blocked()
        assert stats_now(r.queue).acked == 20
