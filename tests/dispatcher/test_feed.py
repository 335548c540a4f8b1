"""A feed: one subscription, over all shards of its queue."""

from __future__ import annotations

from typing import Any

from pushlane.wire.errors import NotFound, PushlaneError
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.callers.feed import Feed, Kept, Spec
from pushlane_dispatcher.core.act import ACK, START, Act
from pushlane_dispatcher.core.effects import Run, SettleTicket
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


# Credit over several owners


def run_of(n: int, count: int = 1) -> Run:
    return Run(4, n, n, True, 1, 0, 1, 1_000, [message(b"%d" % (n + i)) for i in range(count)])


class Sharing(Halves):
    """The same, with shards that go by each credit at once, unless they are slow."""

    def __init__(self, r: Rig, *listed: ReceiptRun) -> None:
        super().__init__(r)
        self.slow: set[int] = set()
        self.resume(*listed)
        self.attach(0)
        self.attach(1)
        self.feed._rebalance()
        self.go_by()

    def go_by(self) -> None:
        while any(self.shards[number].credited for number in {0, 1} - self.slow):
            for number in {0, 1} - self.slow:
                credited, self.shards[number].credited = self.shards[number].credited, []
                for answer in credited:
                    answer()

    def holds(self, number: int, held: int, waiting: int = 0) -> None:
        self.parts[number].holds(held, waiting)
        self.go_by()

    def again(self, number: int, run: Run, held: int) -> None:
        self.parts[number].deliver([run], True, held, 0)
        self.go_by()

    @property
    def numbers(self) -> list[int]:
        """Of what was sent again."""
        return [low for _, low, _ in self.it.again]

    @property
    def credits(self) -> list[int]:
        return [part.credit for part in self.parts]


async def test_no_share_is_raised_beside_one_that_was_not_given_back() -> None:
    async with rig() as r:
        it = Sharing(r)
        assert it.credits == [2, 2]
        it.slow = {0}
        it.holds(1, 0, 4)  # permits that are in backoff there: that is told late
        assert it.credits == [0, 2], "it may use two until it says that it does not"
        it.slow = set()
        it.go_by()
        assert it.credits == [0, 4]


async def test_what_comes_again_waits_for_a_permit_that_is_in_use_elsewhere() -> None:
    async with rig() as r:
        it = Sharing(r)
        it.parts[0].deliver([run_of(1, 2)], False, 2, 0)
        it.go_by()
        it.again(1, run_of(1, 3), 3)
        assert (it.numbers, it.credits) == ([1, 2], [0, 0]), "its client holds 4 of 4"
        it.holds(0, 1)
        assert (it.numbers, it.credits) == ([1, 2, 3], [1, 3])
        it.holds(1, 2)
        it.again(1, run_of(7), 3)
        assert it.numbers[3:] == [7], "nobody knows more than what was held"


async def test_what_waits_for_a_permit_and_is_over_is_not_pushed() -> None:
    async with rig() as r:
        it = Sharing(r, ("p~0", 1, 4))
        for n in (1, 2, 3):
            it.again(1, run_of(n), n)
        it.feed.settle(ACK, [("p~0", 9, 9), ("p~1", 1, 1)], lambda _: None)
        it.parts[1].lost([("p~1", 3, 3)], 1, 0)
        assert it.it.gone == [("p~1", 3, 3)]
        it.holds(0, 0)
        assert it.numbers == [2]


async def test_what_waits_for_a_permit_is_none_of_what_its_client_has() -> None:
    """The next owner of the shard is to send it again, and so is this one to who resumes."""
    async with rig() as r:
        it = Sharing(r, ("p~0", 1, 4))
        it.again(1, run_of(1), 1)
        it.feed.detach(1_000)
        it.holds(0, 0)
        assert it.numbers == []
        it.resume(("p~0", 1, 4))
        it.holds(0, 4)
        it.again(1, run_of(1), 1)
        part = it.parts[1]
        part.ended("unavailable", "", [("p~1", 1, 2)])
        assert (part.orphans, part.used) == ([("p~1", 2, 2)], 1)
        it.holds(0, 0)
        assert it.numbers == []


async def test_a_closed_one_gets_what_is_its_own_at_once() -> None:
    async with rig() as r:
        it = Sharing(r, ("p~0", 1, 4))
        it.feed.closed = True
        it.again(1, run_of(1), 1)
        assert it.numbers == [1]


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


async def test_a_queue_that_is_deleted_while_not_all_shards_have_answered() -> None:
    """Whoever subscribes has no feed yet that could end."""
    async with rig() as r:
        it = Subscriber()
        told: list[tuple[Feed | None, PushlaneError | None]] = []
        feed = Feed(r.dispatcher, "Q", 2, Spec(TENANT, "q", "s"), it, ())
        shards = SlowShard(), SlowShard()
        ports: Any = shards
        feed.attach(ports, lambda found, error: told.append((found, error)))
        shards[0].attached([])
        feed._parts[0].ended("not_found", "the queue was deleted", [])
        assert (it.end, told) == (None, [])
        shards[1].attached([])
        [(found, error)] = told
        assert (it.end, found, type(error)) == (None, None, NotFound)
        assert shards[1].calls[-1] == ("end",)


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
