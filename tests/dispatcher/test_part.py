"""A part: what one shard of a queue has to do with one feed."""

from __future__ import annotations

from typing import Any

import pytest

from pushlane.wire.errors import NotFound, Unavailable
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.callers.feed import Feed, Spec
from pushlane_dispatcher.callers.part import Part
from pushlane_dispatcher.core.act import START
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.shard.sink import Attached
from pushlane_dispatcher.shard.stop import Stop
from pushlane_leases.memory import MemoryLeases
from tests.dispatcher.rig import Rig, blocked, message, rig
from tests.dispatcher.subscriber import Subscriber, subscribe


async def part_of(r: Rig, **options: Any) -> tuple[Subscriber, Part]:
    it = await subscribe(r.dispatcher, **options)
    (part,) = it.feed._parts
    return it, part


async def test_what_was_held_counts_while_its_shard_is_down() -> None:
    async with rig() as r:
        it, part = await part_of(r, credit=3)
        await r.publish(b"1", b"2", b"3", b"4")
        await blocked()
        assert (part.used, part.held, part.up) == (3, 3, True)
        await r.runner.close()
        assert (part.used, part.held, part.up) == (3, 0, False)
        found = await it.ack(*it.receipts)
        assert isinstance(found.error, Unavailable)
        assert found.lost == []


@pytest.mark.parametrize("leases", [None, MemoryLeases])
async def test_it_goes_on_with_the_shards_next_opening(leases: Any) -> None:
    async with rig(leases=leases and leases()) as r:
        it, part = await part_of(r, credit=2)
        await r.publish(b"1", b"2")
        await blocked()
        held = [(it.receipts[0][0], 1, 2)]
        first = part.prefix
        await r.runner.close()
        await r.dispatcher.open("default", "q")
        while not part.up:
            await blocked()
        if leases:
            assert (part.prefix, it.gone) == (first, [])
            assert (await it.ack(*held)).lost == []
        else:
            assert part.prefix != first
            assert it.gone == held
            assert (await it.ack(*held)).lost == held


async def test_it_tells_how_its_messages_and_receipts_begin() -> None:
    async with rig(shards=3) as r:
        it = await subscribe(r.dispatcher, credit=3)
        for number, part in enumerate(it.feed._parts):
            assert part.place.endswith(f"-{number:x}-")
            assert part.prefix.endswith(f"~{number:x}")


async def test_nothing_of_a_part_that_has_ended_counts() -> None:
    async with rig() as r:
        it, part = await part_of(r)
        await r.publish(b"1")
        await blocked()
        part.end()
        part.end()
        part.deliver([], False, 0, 0)
        part.lost([("p", 1, 1)], 0, 0)
        part.hungry(True, 0, 0)
        part.ended("unavailable", "", [])
        part.say_credit(3)
        part.detach(1)
        part.unsubscribe()
        assert (it.gone, it.end, r.runner.stats().subscriptions) == ([], None, 0)


async def test_a_client_that_comes_back_to_a_shard_that_is_down() -> None:
    async with rig() as r:
        it, part = await part_of(r)
        await r.queue.publish([message(b"1")])
        await blocked()
        it.feed.detach(30_000)
        await r.runner.close()
        answers: list[list[ReceiptRun]] = []
        it.feed.resume(it.receipts, (), answers.append)
        assert answers == [[]], "told when the shard is there again"
        while not part.up:
            await blocked()
        assert it.gone == it.receipts[:1]


async def test_what_it_had_counts_though_its_client_lists_less() -> None:
    """What it has started comes again."""
    async with rig(leases=MemoryLeases()) as r:
        it, part = await part_of(r, credit=3, explicit=True)
        await r.publish(b"1", b"2", b"3")
        await blocked()
        await it.settle(START, *it.receipts[:2])
        it.feed.detach(30_000)
        await r.runner.close()
        assert part.used == 3
        it.feed.resume(it.receipts[:1], (), lambda _: None)
        assert part.used == 3
        while not part.up:
            await blocked()
        await blocked()
        assert it.again == it.receipts[1:2]
        assert len(it.receipts) == 4, "the third one went back, and comes anew"
        assert part.used == 3


class SlowShard:
    """One whose answers take a while."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers: list[Any] = []
        self.credited: list[Any] = []
        """Answers to credits, that are to be given."""

    def attach(self, sink: Any, wish: Any, answer: Any) -> None:
        self.calls.append(("attach", wish.held))
        self.answers.append(answer)

    def resume(self, prefix: str, held: Any, sink: Any, answer: Any) -> None:
        self.calls.append(("resume", held))
        self.answers.append(answer)

    def detach(self, prefix: str, sink: Any, resume_ms: int) -> None:
        self.calls.append(("detach", resume_ms))

    def end(self, prefix: str, sink: Any) -> None:
        self.calls.append(("end",))

    def credit(self, prefix: str, sink: Any, credit: int, answer: Any = None) -> None:
        self.calls.append(("credit", credit))
        self.credited.append(answer)

    def settle(self, prefix: str, *args: Any, silently: bool) -> None:
        self.calls.append(("settle", prefix))

    def attached(self, lost: list[ReceiptRun], prefix: str = "p") -> None:
        self.answers.pop(0)(Attached(prefix, 1, 1_000, lost), None)


HELD: list[ReceiptRun] = [("p", 1, 3)]


def down(r: Rig) -> tuple[Subscriber, Feed, Part, SlowShard, list[Any]]:
    """A part that is being attached again, and what is answered to that."""
    it = Subscriber()
    told: list[Any] = []
    feed = Feed(r.dispatcher, "Q", 1, Spec("default", "q", "s"), it, ())
    (part,) = feed._parts
    part.prefix, part.orphans, shard = "p", HELD, SlowShard()
    far: Any = shard
    part.attach(far, 1, told.append)
    return it, feed, part, shard, told


async def test_its_client_comes_back_while_it_is_attached_again() -> None:
    async with rig() as r:
        it, feed, part, shard, told = down(r)
        feed.detach(5_000)
        answers: list[list[ReceiptRun]] = []
        listed: list[ReceiptRun] = [("p", 2, 2)]
        part.returning = True
        feed.resume(listed, (), answers.append)
        assert answers == [[]]
        shard.attached([("p", 3, 3)])
        assert (part.up, told) == (False, [])
        assert shard.calls == [("attach", HELD), ("resume", listed)]
        shard.answers.pop()(7, [], None)
        assert (part.up, part.generation, told, it.gone) == (True, 7, [None], [])


async def test_its_client_comes_back_twice_meanwhile() -> None:
    async with rig() as r:
        _, feed, part, shard, told = down(r)
        part.returning = True
        for n in (1, 2):
            feed.detach(5_000)
            feed.resume([("p", n, n)], (), lambda _: None)
            if n == 1:
                shard.attached([])
        shard.answers.pop()(7, [], None)
        assert (part.up, told) == (False, [])
        shard.answers.pop()(8, [("p", 2, 2)], None)
        assert (part.up, part.generation, told) == (True, 8, [None])
        assert shard.calls[1:] == [("resume", [("p", 1, 1)]), ("resume", [("p", 2, 2)])]


async def test_its_client_goes_away_while_it_is_attached_again() -> None:
    async with rig() as r:
        _, feed, part, shard, told = down(r)
        feed.detach(5_000)
        shard.attached([])
        assert (part.up, told) == (True, [None])
        assert shard.calls == [("attach", HELD), ("detach", 5_000)]


async def test_it_is_attached_once_more_when_the_shard_stops_again_meanwhile() -> None:
    async with rig() as r:
        _, feed, part, shard, told = down(r)
        part.returning = True
        feed.detach(5_000)
        feed.resume([("p", 2, 2)], (), lambda _: None)
        shard.attached([])
        shard.answers.pop()(0, [], NotFound("nobody knows it"))
        assert (part.up, part.orphans) == (False, [("p", 2, 2)])
        (error,) = told
        assert isinstance(error, Unavailable), "the queue is still there"
        again: Any = SlowShard()
        part.attach(again, 1, told.append)
        again.attached([])
        assert (part.up, again.calls) == (True, [("attach", [("p", 2, 2)])])


async def test_what_it_kept_counts_before_the_shard_says_what_is_held() -> None:
    """Else its credit would be given to other shards."""
    async with rig() as r:
        _, _, part, shard, _ = down(r)
        assert part.used == 3
        shard.attached([("p", 3, 3)])
        assert (part.up, part.used) == (True, 2)
        part.holds(1, 0)
        assert part.used == 1


@pytest.mark.parametrize("leases", [None, MemoryLeases])
async def test_its_shard_is_told_later_what_its_client_began_meanwhile(leases: Any) -> None:
    async with rig(leases=leases and leases()) as r:
        it, part = await part_of(r, credit=3, explicit=True)
        await r.publish(b"1", b"2", b"3")
        await blocked()
        r.runner.stop(Stop.CLOSED)
        start(it, 1)  # nobody has told it yet
        assert is_up(part)
        await r.runner._engine.stopped.wait()
        assert not is_up(part)
        start(it, 2)
        start(it, 2)
        found: list[Any] = []
        it.feed.settle(START, [it.receipts[2]], found.append)
        assert isinstance(found[0].error, Unavailable), "who wants an answer gets it"
        await r.reopen()
        while not part.up:
            await blocked()
        if leases:
            held = r.runner._shard.consumers.subscriptions[part.prefix].held
            assert [entry.state for entry in held.values()] == [
                State.LEASED, State.LEASED, State.RESERVED,
            ]  # fmt: skip
            assert it.gone == []
        assert part._started == set()


async def test_what_it_began_with_and_lost_meanwhile_is_told() -> None:
    async with rig(leases=MemoryLeases()) as r:
        it, part = await part_of(r, credit=3, explicit=True)
        await r.publish(b"1")
        await blocked()
        await r.runner.close()
        prefix = it.receipts[0][0]
        it.feed.settle(START, [(prefix, 1, 1), (prefix, 7, 8)], lambda _: None, silently=True)
        await r.reopen()
        while not part.up:
            await blocked()
        assert it.gone == [(prefix, 7, 8)]


def is_up(part: Part) -> bool:
    return part.up


def start(it: Subscriber, n: int) -> None:
    """As the SDKs do: nobody waits for the answer."""
    found: list[Any] = []
    it.feed.settle(START, [it.receipts[n - 1]], found.append, silently=True)
    assert (found[0].error, found[0].lost) == (None, [])
