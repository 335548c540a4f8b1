"""Shards on another node, as a gateway sees them: lanes overtake each other, links break."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from pushlane.wire.errors import NotFound, Unavailable
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.core.act import ACK
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.core.effects import SettleTicket
from pushlane_dispatcher.core.subscription import ANYBODY
from pushlane_dispatcher.shard.sink import Attach
from tests.dispatcher.cluster.pair import (
    ROW,
    Ear,
    FakeHost,
    FakeShard,
    Heard,
    Pair,
    attach,
    msg,
)
from tests.dispatcher.rig import Rig, blocked, rig


async def test_a_delivery_may_come_before_the_answer_that_it_is_for(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        ear, answers = Ear(), Heard()
        shard.attach(ear, Attach("s", 10), answers)
        pair.arrive(pair.asked["rest"])
        owner.push("p0", 1, b"1")
        pair.arrive(pair.told["data"])
        assert ear.said == []
        pair.arrive(pair.told["rest"])
        assert (len(answers.all), ear.said) == (1, [("deliver", b"1")])


async def test_what_is_said_behind_an_early_delivery_waits_with_it(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        ear = await attach(pair, shard)
        shard.detach("p0", ear, 1_000)
        shard.resume("p0", [], ear, Heard())
        pair.arrive(pair.asked["rest"])
        owner.push("p0", 1, b"1", again=True)
        owner.sinks["p0"].holds(0, 0)
        pair.arrive(pair.told["data"])
        assert ear.said == []
        pair.arrive(pair.told["rest"])
        assert ear.said == [("again", b"1"), ("holds", 0)]


async def test_nothing_is_delivered_to_who_is_away_or_asks_to_be_back(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        ear = await attach(pair, shard)
        owner.push("p0", 1, b"1")
        shard.detach("p0", ear, 1_000)
        pair.arrive(pair.told["data"])
        owner.push("p0", 2, b"2")
        shard.resume("p0", [], ear, Heard())
        pair.arrive(pair.told["data"])
        assert ear.said == []
        await pair.settle_down()
        assert shard._subs[ear].held() == []


async def test_of_two_resumes_under_way_the_last_one_counts(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        ear, answers = await attach(pair, shard), Heard()
        for _ in range(2):
            shard.detach("p0", ear, 1_000)
            shard.resume("p0", [], ear, lambda *told: answers(told[0]))
            pair.asked["rest"], waiting = pair.asked["rest"], list(pair.asked["rest"].frames)
            pair.asked["rest"].frames.clear()
            for frame in waiting:
                pair.serving.take(frame)
            owner.push("p0", 1, b"1", again=True)
        # The answer to the first one, and all that was delivered.
        pair.asker.take(pair.told["rest"].frames.popleft())
        pair.arrive(pair.told["data"])
        assert (answers.all, ear.said) == ([2], [])
        pair.arrive(pair.told["rest"])
        assert (answers.all, ear.said) == ([2, 3], [("again", b"1")])


async def test_a_settle_of_somebody_else_that_is_refused_takes_nothing(
    autojump_clock: Any,
) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        ear, answers = await attach(pair, shard), Heard()
        owner.push("p0", 1, b"1", b"2")
        await pair.settle_down()
        for generation in (ANYBODY, 1):
            shard.settle("p0", generation, ACK, [("p0", 1, 1)], answers)
        await pair.settle_down()
        owner.settled.pop(0)[2](SettleTicket(lost=[("p0", 1, 1)]), None)
        await pair.settle_down()
        assert shard._subs[ear].held() == [("p0", 1, 2)]
        owner.durable()
        await pair.settle_down()
        assert shard._subs[ear].held() == [("p0", 2, 2)]


async def test_who_went_away_while_it_resumed_hears_nothing_but_the_end(
    autojump_clock: Any,
) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        ear = await attach(pair, shard)
        shard.detach("p0", ear, 1_000)
        shard.resume("p0", [], ear, Heard())
        pair.arrive(pair.asked["rest"])
        owner.push("p0", 1, b"1")
        shard.detach("p0", ear, 1_000)
        owner.sinks["p0"].ended("not_found", "deleted", [])
        pair.arrive(pair.told["data"])
        pair.arrive(pair.told["rest"])
        assert ear.said == [("ended", "not_found", [])]


async def test_a_resume_that_nobody_knows_leaves_nothing(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        ear, answers = await attach(pair, shard), Heard()
        owner.known = False
        shard.resume("p0", [], ear, lambda *told: answers(None, told[2]))
        await pair.settle_down()
        assert isinstance(answers.all[0], NotFound)
        assert pair.kept == {"shards": 1, "served": 1}
        assert (shard._subs, shard._prefixes) == ({}, {})


async def test_a_credit_confirmed_after_the_end_is_for_nobody(autojump_clock: Any) -> None:
    """Its shard may have been attached again meanwhile, where nothing was confirmed."""
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        ear, answers = await attach(pair, shard), Heard()
        shard.credit("p0", ear, 3, lambda: answers("credited"))
        pair.arrive(pair.asked["rest"])
        owner.stop(pair.serving)
        pair.arrive(pair.told["rest"])  # the end, which overtakes
        await pair.settle_down()
        assert answers.all == []
        assert pair.kept == {}


async def test_what_was_never_taken_up_is_ended_once_when_the_links_break(
    autojump_clock: Any,
) -> None:
    async with trio.open_nursery() as nursery:
        pair = Pair(FakeHost(nursery, FakeShard()))
        shard = await pair.open()
        ear, attached, told = Ear(), Heard(), Heard()
        shard.attach(ear, Attach("s", 10), attached)
        shard.settle("p9", 1, ACK, [("p9", 1, 1)], told)
        shard.publish_soon([msg(b"1")], told)
        pair.over()
        assert [type(one) for one in attached.all] == [Unavailable]
        assert [type(one) for one in told.all] == [Unavailable]
        ((lost, (sent,)),) = pair.lost
        assert (lost, sent.unsent, ear.said) == (shard, False, [])
        assert pair.kept == {}
        with pytest.raises(Unsent):
            shard.publish_soon([msg()], told)
        with pytest.raises(Unsent):
            await shard.room()


async def test_an_opening_that_nobody_waits_for_any_more(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        with trio.move_on_after(1):
            await pair.asker.open(ROW, 0, 0, ())
        await pair.settle_down()
        assert "opening" not in pair.kept


async def test_an_answer_to_nothing_is_no_fault(autojump_clock: Any) -> None:
    from pushlane_dispatcher.cluster import frames

    async with trio.open_nursery() as nursery:
        pair = Pair(FakeHost(nursery))
        fault = frames.Fault("unavailable", "")
        for told in (
            frames.Failed(99, fault), frames.Published(99, [1]), frames.Credited(99),
            frames.Gone(99, "unavailable", ""), frames.Opened(99), frames.Holds(99, 1, 1),
        ):  # fmt: skip
            pair.asker.take(frames.encode(told))
        assert pair.kept == {}


async def test_who_has_no_receipts_holds_nothing(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        ear = await attach(pair, shard, ack_none=True)
        owner.push("p0", 0, b"1", b"2")
        await pair.settle_down()
        pair.over()
        assert ear.said == [("deliver", b"1", b"2"), ("ended", "unavailable", [])]


async def test_publishers_wait_for_answers_and_then_go_on(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner), ClusterSettings(shard_bytes=100))
        shard = await pair.open()
        shard.publish_soon([msg(bytes(100))], Heard())
        assert shard.congested
        waits: list[str] = []

        async def wait() -> None:
            await shard.room()
            waits.append("room")

        nursery.start_soon(wait)
        await pair.settle_down()
        assert waits == []
        owner.store()
        await pair.settle_down()
        assert waits == ["room"]
        assert not shard.congested


async def test_a_publish_that_its_shard_did_not_take_is_answered_by_the_next_one(
    autojump_clock: Any,
) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard, answers = await pair.open(), Heard()
        for body in (b"1", b"2"):
            shard.publish_soon([msg(body)], answers)
        pair.over()
        ((_, sent),) = pair.lost
        next_owner = FakeShard()
        other = Pair(FakeHost(nursery, next_owner))
        following = await other.open()
        for one in sent:
            following.repeat(one)
        await other.settle_down()
        assert next_owner.bodies == [b"1", b"2"]
        next_owner.store(5)
        next_owner.store(6)
        await other.settle_down()
        assert [ticket.seqs for ticket in answers.all] == [[5], [6]]


# Against a real shard


class Consumer:
    """Of a shard that is far away: it acks now and then, goes away, comes back."""

    def __init__(self, shard: Any, rng: Random, credit: int) -> None:
        self.shard = shard
        self.rng = rng
        self.prefix, self.generation = "", 0
        self.has: dict[int, bytes] = {}
        """What its client has, by receipt number."""
        self.done: list[bytes] = []
        self.asked: dict[int, bytes] = {}
        """Being acked."""
        self.faults: list[Any] = []
        self.away = False
        self.resuming = 0
        self.is_back = False
        shard.attach(self, Attach("s", credit, lease_ms=3_600_000), self.attached)

    def attached(self, attached: Any, error: Any) -> None:
        assert error is None
        self.prefix, self.generation = attached.prefix, attached.generation
        self.is_back = True

    def deliver(self, runs: Any, again: bool, held: int, waiting: int) -> None:
        assert not self.away, "it is away"
        for each in runs:
            for n, message in enumerate(each.messages, each.n):
                if n in self.has or n in self.asked or message.body in self.done:
                    self.faults.append((n, message.body, again))
                self.has[n] = message.body

    def lost(self, receipts: Any, held: int, waiting: int) -> None:
        self.faults.append(("lost", receipts))

    def hungry(self, hungry: bool, held: int, waiting: int) -> None:
        pass

    def holds(self, held: int, waiting: int) -> None:
        pass

    def ended(self, code: str, message: str, held: Any) -> None:
        self.faults.append(("ended", code))

    def ack(self) -> None:
        n = self.rng.choice(sorted(self.has))
        self.asked[n] = self.has.pop(n)

        def answer(ticket: Any, error: Any) -> None:
            body = self.asked.pop(n)
            if error is None and not ticket.lost:
                self.done.append(body)
            else:
                self.faults.append(("ack", n, ticket.lost, error))

        self.shard.settle(self.prefix, self.generation, ACK, [(self.prefix, n, n)], answer)

    def leave(self) -> None:
        self.away, self.is_back = True, False
        self.shard.detach(self.prefix, self, 3_600_000)

    def come_back(self) -> None:
        """It forgot some of what it has."""
        self.away = False
        self.resuming += 1
        turn = self.resuming
        for n in [n for n in self.has if self.rng.random() < 0.5]:
            del self.has[n]
        kept = [(self.prefix, n, n) for n in sorted({*self.has, *self.asked})]

        def answer(generation: int, lost: Any, error: Any) -> None:
            assert error is None
            if turn == self.resuming:
                self.generation, self.is_back = generation, not self.away
            if lost:  # what was being acked
                assert {n for _, n, _ in lost}.isdisjoint(self.has)

        self.shard.resume(self.prefix, kept, self, answer)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 30))
def test_lanes_may_overtake_each_other_in_any_way(seed: int) -> None:
    trio.run(interleave, seed, clock=MockClock(autojump_threshold=0))


async def interleave(seed: int) -> None:
    rng, total, steps = Random(seed), 25, 0
    async with rig() as r, trio.open_nursery() as nursery:
        pair = Pair(FakeHost(nursery, r.runner))
        shard = await pair.open(r.queue.row)
        it = Consumer(shard, rng, rng.choice([1, 3, 8]))
        published: list[bytes] = []

        def stored(ticket: Any, error: Any) -> None:
            assert error is None

        while len(it.done) < total or pair.ways:
            await step(pair, shard, it, published, total, stored, rng, r)
            steps += 1
            assert steps < 5_000, f"it does not go on: {vars(it)}"
            assert it.faults == [], it.faults
        assert len(published) == total
        assert sorted(it.done) == sorted(published)
        assert r.runner.stats().acked == total
        (sub,) = shard._subs.values()
        assert sub.held() == []
        shard.end(it.prefix, it)
        await pair.settle_down()
        assert pair.kept == {"shards": 1, "served": 1}
        nursery.cancel_scope.cancel()


async def step(
    pair: Pair, shard: Any, it: Consumer, published: list[bytes], total: int, stored: Any,
    rng: Random, r: Rig,
) -> None:  # fmt: skip
    chance, ways = rng.random(), pair.ways
    if chance < 0.15 and len(published) < total:
        body = b"%d" % len(published)
        published.append(body)
        shard.publish_soon([msg(body)], stored)
    elif chance < 0.3 and it.has and it.is_back:
        it.ack()
    elif chance < 0.36 and it.is_back and not it.asked and it.resuming < 12:
        it.leave()
    elif chance < 0.5 and it.away:
        it.come_back()
    elif ways:
        lane, take = rng.choice(ways)
        take(lane.frames.popleft())
        await blocked()
    else:
        await blocked()
