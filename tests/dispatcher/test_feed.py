"""A feed: one subscription, over all shards of its queue."""

from __future__ import annotations

from typing import Any

from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.callers.feed import Feed, Kept, Spec
from pushlane_dispatcher.core.act import ACK, START, Act
from pushlane_dispatcher.core.effects import SettleTicket
from pushlane_dispatcher.core.runs import make_runs
from pushlane_dispatcher.waiter import Waiter
from tests.dispatcher.rig import TENANT, Consumer, Rig, blocked, message, rig
from tests.dispatcher.subscriber import Subscriber, subscribe
from tests.dispatcher.test_part import SlowShard
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


# What a client lists and has no longer


class Halves:
    """Two shards of a feed that another gateway had: they answer when they are told to."""

    def __init__(self, r: Rig) -> None:
        self.it = Subscriber()
        kept = Kept("q", "Q", 4, None, False, False, False, ["p~0", "p~1"])
        spec = Spec(TENANT, "q", "s", credit=4)
        self.feed = Feed.of_kept(r.dispatcher, kept, spec, self.it, ())
        self.parts = self.feed._parts
        for part in self.parts:
            part.returning = True  # by hand, here
        self.shards = SlowShard(), SlowShard()
        self.answers: list[list[ReceiptRun]] = []

    def resume(self, *listed: ReceiptRun) -> None:
        self.feed.resume([*listed], (), self.answers.append)

    def attach(self, number: int, *lost: ReceiptRun) -> None:
        shard: Any = self.shards[number]
        part = self.parts[number]
        part.attach(shard, 0, lambda _: None)
        self.shards[number].attached([*lost], part.prefix)
        self.feed._is_back()


async def test_who_resumes_is_answered_when_all_shards_are_back() -> None:
    async with rig() as r:
        halves = Halves(r)
        halves.resume(("p~0", 1, 2), ("p~1", 1, 2))
        halves.attach(0, ("p~0", 2, 2))
        assert halves.answers == []
        halves.attach(1, ("p~1", 1, 1))
        assert (halves.answers, halves.it.gone) == ([[("p~0", 2, 2), ("p~1", 1, 1)]], [])


async def test_who_waits_no_longer_hears_what_is_lost_before_its_permits_are_used() -> None:
    """And of the shards that come back later, at once."""
    async with rig() as r:
        halves = Halves(r)
        halves.resume(("p~0", 1, 2), ("p~1", 1, 2))
        halves.attach(0, ("p~0", 2, 2))
        halves.feed.answer_now()
        assert halves.answers == [[("p~0", 2, 2)]]
        halves.attach(1, ("p~1", 1, 1))
        assert halves.it.gone == [("p~1", 1, 1)]
        halves.feed.answer_now()
        assert len(halves.answers) == 1


async def test_a_shard_that_is_slow_to_answer_keeps_nothing_of_the_others_back() -> None:
    async with rig() as r:
        halves = Halves(r)
        halves.resume()
        halves.attach(0)
        halves.attach(1)
        halves.feed.detach(30_000)
        halves.resume(("p~0", 1, 2), ("p~1", 1, 2))
        halves.shards[0].answers.pop()(2, [("p~0", 2, 2)], None)
        assert halves.answers == [[]], "of the first time"
        halves.feed.answer_now()
        assert halves.answers == [[], [("p~0", 2, 2)]]
        halves.shards[1].answers.pop()(2, [("p~1", 1, 1)], None)
        assert halves.it.gone == [("p~1", 1, 1)]


async def test_only_the_last_resume_is_answered() -> None:
    async with rig() as r:
        halves = Halves(r)
        halves.resume()
        halves.attach(0)
        halves.attach(1)
        for _ in range(2):
            halves.feed.detach(30_000)
            halves.resume(("p~0", 1, 2))
        for number in (0, 1):
            for answer in halves.shards[number].answers:
                answer(2, [("p~0", 1, 1)][number:], None)
        assert (halves.answers, halves.it.gone) == ([[], [("p~0", 1, 1)]], [])


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
