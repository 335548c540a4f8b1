"""The owner's end of a pair of links."""

from __future__ import annotations

from typing import Any

import trio

from pushlane.wire.errors import NotFound, PushlaneError, Throttled, Unavailable
from pushlane_dispatcher.browsing.question import GetStats
from pushlane_dispatcher.cluster import frames
from pushlane_dispatcher.cluster.serving import PIECE_BYTES, Elsewhere
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.core.act import ACK
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.core.effects import PublishTicket
from pushlane_dispatcher.shard.sink import Attach
from pushlane_storage.message import Message
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
from tests.dispatcher.rig import blocked


async def test_what_is_in_line_when_the_shard_stops_is_answered_once(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        owner.congested = True
        answers = Heard()
        for body in b"123":
            shard.publish_soon([msg(bytes([body]))], answers)
        await pair.settle_down()
        owner.refusal = Unavailable("it stops")
        owner.stop(pair.serving)
        owner.roomy.set()
        await pair.settle_down()
        assert [[one.unsent for one in sent] for _, sent in pair.lost] == [[True] * 3]
        assert answers.all == []
        assert (pair.kept, shard.running) == ({}, False)


async def test_a_publish_in_line_may_be_throttled_and_the_next_one_goes_on(
    autojump_clock: Any,
) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        owner.congested = True
        answers = Heard()
        shard.publish_soon([msg(b"1")], answers)
        await pair.settle_down()
        owner.refusal = Throttled("the store is slow", retry_ms=1_000, limit="room_ms")
        owner.roomy.set()
        await pair.settle_down()
        (error,) = answers.all
        assert isinstance(error, Throttled)
        assert error.limit == "room_ms"
        owner.refusal = None
        shard.publish_soon([msg(b"2")], answers)
        await pair.settle_down()
        owner.store(7)
        await pair.settle_down()
        assert answers.all[1].seqs == [7]


async def test_a_line_keeps_its_order_while_room_comes_and_goes(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        owner.congested = True
        for n in range(3):
            shard.publish_soon([msg(b"%d" % n)], Heard())
        for lane, _ in pair.ways:
            pair.arrive(lane)
        owner.congested = False  # and nobody in line has noticed yet
        shard.publish_soon([msg(b"3")], Heard())
        for lane, _ in pair.ways:
            pair.arrive(lane)
        assert owner.bodies == []
        owner.roomy.set()
        await blocked()
        assert owner.bodies == [b"0", b"1", b"2", b"3"]


async def test_what_is_in_line_when_the_links_break_is_not_stored(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        owner.congested = True
        shard.publish_soon([msg(b"1")], Heard())
        await pair.settle_down()
        pair.over()
        owner.roomy.set()
        await blocked()
        assert owner.bodies == []
        assert pair.kept == {}


async def test_who_publishes_far_more_than_agreed_is_cut_off(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner), ClusterSettings(shard_bytes=1_000))
        shard = await pair.open()
        owner.congested = True
        for _ in range(2):
            shard.publish_soon([msg(bytes(900))], Heard())
        await pair.settle_down()
        assert pair.cuts == []
        shard.publish_soon([msg(bytes(900))], Heard())
        await pair.settle_down()
        assert pair.cuts == ["it publishes more than it may"]
        nursery.cancel_scope.cancel()


async def test_a_publish_that_was_taken_has_no_answer_when_its_shard_stops(
    autojump_clock: Any,
) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        answers = Heard()
        shard.publish_soon([msg(b"1")], answers)
        await pair.settle_down()
        owner.stop(pair.serving)
        await pair.settle_down()
        ((lost, (sent,)),) = pair.lost
        assert (lost, sent.unsent, answers.all) == (shard, False, [])
        assert pair.kept == {}


async def test_a_publish_that_the_end_of_its_shard_overtakes_was_not_taken(
    autojump_clock: Any,
) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard, answers = await pair.open(), Heard()
        shard.publish_soon([msg(b"1")], answers)
        await pair.settle_down()
        shard.publish_soon([msg(b"2")], answers)
        owner.stop(pair.serving)
        pair.arrive(pair.told["rest"])
        ((_, sent),) = pair.lost
        assert [one.unsent for one in sent] == [False, True]
        await pair.settle_down()
        assert (answers.all, pair.kept) == ([], {})


async def test_an_opening_that_nobody_waits_for_any_more_leaves_nothing(
    autojump_clock: Any,
) -> None:
    async with trio.open_nursery() as nursery:
        pair = Pair(FakeHost(nursery, FakeShard()))
        with trio.move_on_after(1):
            await pair.asker.open(ROW, 0, 0, ())
        await pair.settle_down()
        assert pair.kept == {}


async def test_a_shard_that_was_opened_twice_is_left_once(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        pair = Pair(FakeHost(nursery, FakeShard()))
        first, second = await pair.open(), await pair.open()
        pair.asker.leave(second)
        pair.asker.leave(second)
        await pair.settle_down()
        assert (first.running, second.running) == (True, False)
        assert pair.kept == {"shards": 1, "served": 1}


async def test_what_comes_for_a_shard_that_has_stopped_fails(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        ear = await attach(pair, shard)
        owner.stop(pair.serving)  # and nobody there knows yet
        answers = Heard()
        shard.attach(Ear(), Attach("t", 1), answers)
        shard.resume("p0", [], ear, lambda *told: answers(*told[1:]))
        shard.settle("p0", 1, ACK, [("p0", 1, 1)], answers)
        shard.credit("p0", ear, 3, lambda: answers("credited"))
        shard.publish_soon([msg(b"1")], answers)
        pair.arrive(pair.asked["rest"])
        pair.arrive(pair.asked["data"])
        await pair.settle_down()
        assert len(answers.all) == 3
        assert all(isinstance(one, Unavailable) for one in answers.all)
        assert isinstance(answers.all[0], Unsent)
        assert ear.said == [("ended", "unavailable", [("p0", 1, 1)])]
        assert pair.kept == {}


async def test_a_shard_that_closes_while_it_is_opened_ends_for_who_opened_it_only(
    autojump_clock: Any,
) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        first = await pair.open()
        answers = Heard()
        first.publish_soon([msg(b"1")], answers)
        await pair.settle_down()
        owner.running = False  # it closes: what it has taken is still stored
        try:
            await pair.open()
        except* Unsent:
            pass
        else:
            raise AssertionError("it is open")
        owner.store(5)
        await pair.settle_down()
        assert answers.all[0].seqs == [5]
        assert first.running


async def test_where_else_to_ask_and_why_not(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        host = FakeHost(nursery, FakeShard())
        pair = Pair(host)
        for fault, told in (
            (Elsewhere("c", 7), frames.Moved(2, "c", 7)),
            (NotFound("there is no queue q"), None),
        ):

            async def opening(fault: Exception = fault) -> None:
                raise fault

            host.opening = opening
            found: list[Any] = []

            async def ask(found: list[Any] = found) -> None:
                try:
                    found.append(await pair.asker.open(ROW, 0, 0, ()))
                except PushlaneError as error:
                    found.append(error)

            nursery.start_soon(ask)
            await pair.settle_down()
            (one,) = found
            if told is not None:
                assert one == told
            else:
                assert isinstance(one, NotFound)
        assert pair.kept == {}


async def test_subscriptions_that_lose_their_links_are_cut_off_and_not_ended(
    autojump_clock: Any,
) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        ear = await attach(pair, shard)
        owner.push("p0", 1, b"1", b"2")
        await pair.settle_down()
        pair.over()
        assert [(name, prefix, ms) for name, prefix, _, ms in owner.calls] == [
            ("cut_off", "p0", 30_000)
        ]
        assert ear.said == [("deliver", b"1", b"2"), ("ended", "unavailable", [("p0", 1, 2)])]
        assert pair.kept == {}


async def test_large_deliveries_go_in_pieces_in_their_order(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        ear = await attach(pair, shard)
        bodies = [bytes([n]) * (PIECE_BYTES // 3) for n in range(7)]
        owner.push("p0", 1, *bodies)
        assert all(len(frame) < 1.1 * PIECE_BYTES for frame in pair.told["data"].frames)
        await pair.settle_down()
        assert [body for said in ear.said for body in said[1:]] == bodies
        assert shard._subs[ear].held() == [("p0", 1, 7)]


async def test_a_question_about_what_is_not_open_fails_and_leaves_nothing(
    autojump_clock: Any,
) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        host = FakeHost(nursery, owner)
        pair = Pair(host)
        host.shards.clear()
        found: list[PushlaneError] = []

        async def look() -> None:
            try:
                await pair.asker.look(owner.key, GetStats())
            except PushlaneError as error:
                found.append(error)

        nursery.start_soon(look)
        await pair.settle_down()
        assert isinstance(found[0], Unsent)
        assert pair.kept == {}


async def test_a_ticket_arrives_as_it_was(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        answers = Heard()
        shard.publish_soon([msg(b"1"), msg(b"2"), msg(b"3")], answers, [4, 5, 4])
        await pair.settle_down()
        fault = Throttled("too much", retry_ms=5, limit="x")
        ticket = PublishTicket([3, 9, 4], [4, 5, 4], None, {0: (4, 1), 2: None}, {1: fault})
        owner.published.pop()[1](ticket, None)
        await pair.settle_down()
        (got,) = answers.all
        assert (got.seqs, got.lanes, got.duplicates) == ([3, 9, 4], [4, 5, 4], ticket.duplicates)
        assert (got.failed[1].code, got.failed[1].limit) == ("throttled", "x")


async def test_another_node_has_a_bounded_number_of_things_under_way(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        pair.serving._settings = ClusterSettings(asks=0)
        faults: list[PushlaneError] = []

        async def ask() -> None:
            try:
                await shard.ask(GetStats())
            except PushlaneError as error:
                faults.append(error)

        nursery.start_soon(ask)
        await pair.settle_down()
        (error,) = faults
        assert isinstance(error, Throttled)
        assert error.limit == "asks"


async def test_what_another_clock_has_stamped_is_stamped_anew(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        pair.asker_wall = pair.wall - 5_000
        at = pair.asker_wall
        shard.publish_soon(
            [Message(b"1", at, not_before=at + 9_000, expires_at=at + 20_000), Message(b"2", at)],
            Heard(),
        )
        await pair.settle_down()
        [(delayed, plain)] = [messages for messages, _ in owner.published]
        assert (delayed.published_at, plain.published_at) == (pair.wall, pair.wall)
        assert (delayed.not_before, delayed.expires_at) == (pair.wall + 9_000, pair.wall + 20_000)
        assert (plain.not_before, plain.expires_at) == (0, 0)


async def test_what_was_on_its_way_for_a_moment_keeps_its_times(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        pair.asker_wall = pair.wall - 300
        shard.publish_soon([Message(b"1", pair.asker_wall)], Heard())
        await pair.settle_down()
        assert owner.published[0][0][0].published_at == pair.asker_wall
