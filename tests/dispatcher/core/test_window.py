"""The window: memory doesn't grow with the backlog, and nothing in the store is forgotten."""

import pytest

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Append, Fetch, Page
from pushlane_dispatcher.core.life import State
from pushlane_storage.message import size_of
from pushlane_storage.queue import QueueConfig
from pushlane_storage.seq import make_seq
from tests.dispatcher.core.consumer import Consumer
from tests.dispatcher.core.harness import LANE, Rig

SMALL = Bounds(window_messages=4, page_messages=4, segment_messages=2)


def names(count: int) -> list[str]:
    return [f"{number:03}" for number in range(count)]


def drain(rig: Rig, consumer: Consumer) -> list[str]:
    """Ack whatever comes until nothing comes any more."""
    bodies: list[str] = []
    while consumer.inbox:
        inbox, consumer.inbox = consumer.inbox, []
        bodies += [got.body for got in inbox]
        consumer.ack(*[got.n for got in inbox])
    return bodies


# A backlog


def test_memory_is_bounded_and_the_backlog_is_paged_in() -> None:
    rig = Rig(bounds=SMALL)
    rig.publish(*names(50))
    assert rig.shard.window.bodies.resident <= 6
    assert rig.stats.ready == 50
    consumer = rig.subscribe(3)
    assert drain(rig, consumer) == names(50)
    assert rig.stats.stored == 0


def test_bytes_are_bounded_too() -> None:
    rig = Rig(bounds=Bounds(window_bytes=300, segment_messages=1))
    rig.publish(*names(20))
    assert rig.shard.window.bodies.resident_bytes <= 300 + 67
    assert drain(rig, rig.subscribe(1)) == names(20)


def test_what_is_stored_while_a_backlog_stands_before_it_waits_its_turn() -> None:
    rig = Rig(bounds=SMALL)
    rig.publish(*names(10))
    rig.publish("late")
    assert drain(rig, rig.subscribe(1)) == [*names(10), "late"]


def test_what_is_stored_while_a_page_is_read_waits_its_turn() -> None:
    rig = Rig(bounds=SMALL)
    rig.hold = {Page}
    rig.publish(*names(7))
    consumer = rig.subscribe(10)
    assert len(rig.held(Page)) == 1
    rig.publish("late")
    rig.hold = set()
    rig.finish()
    assert drain(rig, consumer) == [*names(7), "late"]


def test_no_more_is_read_while_enough_is_ready() -> None:
    rig = Rig(bounds=Bounds(window_messages=100, page_messages=4, segment_messages=1))
    rig.publish(*names(20))
    rig.crash()
    rig.reads = []
    rig.publish("x")
    assert rig.reads == []
    assert rig.shard.window.lanes[LANE].ready == 8
    rig.subscribe(3)
    assert len(rig.reads) == 1


def test_a_page_that_brings_what_is_not_yet_counted_is_cut_off() -> None:
    rig = Rig(bounds=Bounds(window_messages=4, page_messages=4, segment_messages=1, flushes=9))
    rig.publish(*names(6))
    rig.hold = {Append}
    rig.publish("six", "seven", "eight", "nine")
    first = rig.held(Append)[0]
    later = rig.held(Append)[1:]
    rig.finish(*later)
    consumer = rig.subscribe(20)
    assert sorted(consumer.bodies) == names(6), "behind a hole nothing counts as stored"
    rig.hold = set()
    rig.finish(first)
    assert consumer.bodies[6:] == ["six", "seven", "eight", "nine"]


def test_every_lane_is_paged() -> None:
    rig = Rig(bounds=SMALL)
    rig.publish(*names(10), lane=2)
    rig.publish(*names(10), lane=8)
    bodies = drain(rig, rig.subscribe(2))
    assert sorted(bodies) == sorted(names(10) * 2)


def test_settled_stretches_are_skipped() -> None:
    rig = Rig(bounds=Bounds(segment_messages=1, bucket_messages=2))
    consumer = rig.subscribe(20)
    rig.publish(*names(10))
    consumer.ack(3, 4, 5, 6, 7, 9)
    rig.crash()
    pages = [read for read in rig.reads if isinstance(read, Page)]
    assert drain(rig, rig.subscribe(20)) == ["000", "001", "007", "009"]
    starts = [read.start for read in pages if read.start >= make_seq(1, 2)]
    assert set(starts) <= {make_seq(1, 7), make_seq(1, 9)}


def test_a_lane_whose_rest_is_settled_has_no_backlog() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a", "b")
    consumer.ack(1, 2)
    rig.crash()
    assert rig.reads == []
    rig.publish("c")
    assert rig.subscribe().bodies == ["c"]


def test_a_page_of_a_bucket_that_was_drained_meanwhile_is_let_go() -> None:
    rig = Rig(bounds=Bounds(bucket_messages=1, segment_messages=1))
    rig.hold = {Page}
    rig.publish("a")
    rig.crash()
    (page,) = rig.held(Page)
    rig.purge()
    assert rig.stats.stored == 0
    rig.waiting.remove(page)
    segments = rig.tables.segments(rig.key, page.bucket, page.start, page.limit)
    rig.answer(page, segments)
    rig.hold = set()
    rig.publish("b")
    assert rig.subscribe().bodies == ["b"]


def test_a_page_that_comes_after_a_purge_brings_nothing_back() -> None:
    rig = Rig(bounds=SMALL)
    rig.hold = {Page}
    rig.publish(*names(10))
    consumer = rig.subscribe(10)
    (page,) = rig.held(Page)
    rig.purge()
    rig.publish("new")
    rig.hold = set()
    rig.finish(page)
    assert consumer.bodies[-1] == "new"
    assert len(consumer.bodies) + rig.stats.purged <= 11
    assert rig.stats.ready == 0


# Damage


@pytest.mark.parametrize("gone", [[0], [1], [2], [0, 1, 2]])
def test_what_the_store_has_lost_dies_as_damaged_and_the_rest_lives(gone: list[int]) -> None:
    rig = Rig(bounds=Bounds(segment_messages=2))
    rig.hold = {Page}
    rig.publish(*"ab")
    rig.publish(*"cd")
    rig.publish(*"ef")
    rig.crash()
    (page,) = rig.held(Page)
    segments = rig.tables.segments(rig.key, page.bucket, page.start, page.limit)
    assert len(segments) == 3
    rig.waiting.remove(page)
    rig.answer(page, [kept for index, kept in enumerate(segments) if index not in gone])
    rig.run()
    assert rig.stats.dead == 2 * len(gone)
    if len(gone) < 3:  # else the whole bucket is drained, and nobody knows any more
        assert rig.state(segments[gone[0]].first) == "dead"
    consumer = rig.subscribe()
    left = [
        body for index, pair in enumerate(("ab", "cd", "ef")) if index not in gone for body in pair
    ]
    assert consumer.bodies == left


def test_a_lost_segment_takes_only_what_is_unsettled_and_unknown() -> None:
    rig = Rig(cached=True)
    consumer = rig.subscribe()
    rig.publish(*"abcd")
    consumer.ack(1)
    consumer.nack(2, delay_ms=60_000)
    rig.hold = {Page}
    rig.crash()
    (page,) = rig.held(Page)
    rig.waiting.remove(page)
    rig.answer(page, [])
    rig.run()
    assert (rig.stats.dead, rig.stats.leased, rig.stats.stored) == (1, 2, 2)


# Bodies


def test_what_waits_gives_its_body_up_when_room_runs_low() -> None:
    rig = Rig(bounds=Bounds(window_messages=4))
    rig.publish(*names(4), key="k")
    window = rig.shard.window
    assert (window.bodies.resident, rig.stats.blocked) == (1, 3)
    assert drain(rig, rig.subscribe(2)) == names(4)


def test_what_is_in_flight_gives_its_body_up_when_room_runs_low() -> None:
    rig = Rig(bounds=SMALL)
    rig.publish(*names(20))
    consumer = rig.subscribe(20)
    assert consumer.bodies == names(20), "the window is no bound on what is out"
    assert rig.shard.window.bodies.resident <= 4


def test_what_has_given_its_body_up_can_come_back_and_wait() -> None:
    rig = Rig(bounds=Bounds(window_messages=2))
    consumer = rig.subscribe(1)
    (first, *_) = rig.publish("a", "b", "c").seqs
    assert rig.entry(first).message is None
    consumer.credit(0)
    consumer.nack(1, delay_ms=1_000)
    assert (rig.stats.retrying, rig.shard.window.bodies.resident) == (1, 2)


def test_a_body_is_read_again_when_its_turn_comes() -> None:
    rig = Rig(QueueConfig(max_attempts=99), SMALL)
    rig.publish(*names(8))
    consumer = rig.subscribe(8)
    consumer.nack(*range(1, 9), delay_ms=1_000)
    assert rig.shard.window.bodies.resident <= 4
    consumer.inbox = []
    rig.wait(1_000)
    assert sorted(drain(rig, consumer)) == names(8)
    assert any(isinstance(read, Fetch) for read in rig.reads)


def test_bodies_of_ready_messages_are_read_again_only_as_far_as_there_is_room() -> None:
    rig = Rig(QueueConfig(max_attempts=99), Bounds(window_messages=4, fetch_messages=1))
    rig.publish(*names(30))
    consumer = rig.subscribe(30)
    consumer.nack(*range(1, 31), delay_ms=1_000)
    consumer.credit(0)
    rig.wait(1_000)
    assert rig.stats.ready == 30
    assert rig.shard.window.bodies.resident <= 8
    consumer.inbox = []
    consumer.credit(1)
    assert sorted(drain(rig, consumer)) == names(30)


def test_also_by_bytes() -> None:
    rig = Rig(QueueConfig(max_attempts=99), Bounds(window_bytes=300, fetch_messages=1))
    rig.publish(*names(30))
    consumer = rig.subscribe(30)
    consumer.nack(*range(1, 31), delay_ms=1_000)
    consumer.credit(0)
    rig.wait(1_000)
    assert rig.stats.ready == 30
    assert rig.shard.window.bodies.resident_bytes <= 300 + 4 * 67
    consumer.inbox = []
    consumer.credit(1)
    assert sorted(drain(rig, consumer)) == names(30)


def test_a_backlog_does_not_starve_what_waits_for_its_body() -> None:
    rig = Rig(QueueConfig(max_attempts=99), SMALL)
    rig.publish(*names(4))
    consumer = rig.subscribe(4)
    consumer.nack(1, 2, 3, 4, delay_ms=1_000)
    consumer.credit(0)
    rig.publish(*[f"later {name}" for name in names(50)])
    rig.wait(1_000)
    consumer.inbox = []
    consumer.credit(1)
    bodies = drain(rig, consumer)
    assert len(bodies) == 54
    assert set(bodies[:12]) >= set(names(4))


def test_a_body_counts_for_its_real_size() -> None:
    rig = Rig(bounds=Bounds(horizon_ms=1_000))
    big = "x" * 5_000
    ticket = rig.publish(big, not_before=rig.wall + 10_000, headers={"name": "value"})
    rig.wait(10_000)
    message = rig.entry(ticket.seqs[0]).message
    assert message is not None
    assert rig.shard.window.bodies.resident_bytes == size_of(message)


def test_a_body_that_the_store_has_lost_ends_its_message() -> None:
    rig = Rig(bounds=Bounds(window_messages=2))
    ticket = rig.publish("a", "b", key="k")
    rig.damaged = {ticket.seqs[1]}
    consumer = rig.subscribe()
    consumer.ack(1)
    assert consumer.bodies == ["a"]
    explained = rig.explain(ticket.seqs[1])
    assert (explained.state, "damaged" in explained.why) == ("dead", True)
    assert (rig.stats.dead, rig.stats.stored) == (1, 0)


def test_a_lost_body_of_a_message_in_flight_ends_it_when_it_comes_back() -> None:
    rig = Rig(QueueConfig(backoff_base_ms=1), Bounds(window_messages=2))
    ticket = rig.publish("a", "b")
    consumer = rig.subscribe(lease_ms=1_000)
    assert rig.entry(ticket.seqs[1]).message is None
    rig.damaged = {ticket.seqs[0], ticket.seqs[1]}
    consumer.detach()
    consumer.resume(1)
    assert rig.stats.leased == 2
    consumer.nack(2, delay_ms=0)
    assert rig.stats.dead == 1
    assert rig.shard.consumers._resend == {}


def test_a_body_may_be_wanted_for_two_reasons() -> None:
    rig = Rig(bounds=Bounds(window_messages=2))
    ticket = rig.publish("a", "b")
    consumer = rig.subscribe()
    consumer.inbox = []
    rig.hold = {Fetch}
    consumer.detach()
    consumer.resume()
    consumer.nack(1, delay_ms=0)
    consumer.nack(2, dead=True)
    rig.hold = set()
    rig.finish()
    assert consumer.bodies == ["a"]
    assert [transfer.message.body for transfer in rig.transfers] == [b"b"]
    assert rig.state(ticket.seqs[0]) == "leased"


# Lanes


def test_a_lane_exists_from_its_first_message_on() -> None:
    rig = Rig()
    assert rig.shard.window.order == []
    rig.publish("a", lane=3)
    rig.publish("b", lane=8)
    assert [lane.number for lane in rig.shard.window.order] == [8, 3]


def test_the_oldest_ready_message_of_all_lanes() -> None:
    rig = Rig()
    assert rig.shard.window.oldest_ready() is None
    rig.publish("low", lane=1)
    rig.wait(10)
    rig.publish("high", lane=9)
    oldest = rig.shard.window.oldest_ready()
    assert oldest is not None
    assert (oldest.lane.number, oldest.state) == (1, State.READY)


def test_numbers_say_what_waits_and_what_was_left_to_the_store() -> None:
    rig = Rig(bounds=Bounds(key_positions=1, retrying=1))
    consumer = rig.subscribe(1)
    rig.publish("a", "b", "c", key="k")
    rig.publish("soon", not_before=rig.wall + 1_000)
    rig.publish("far", not_before=rig.wall + 10**7)
    assert rig.shard.window.numbers() == {
        "blocked": 1, "blocked_stored": 1, "delayed": 1, "delayed_stored": 1, "retrying": 0,
        "retrying_full": False,
    }  # fmt: skip
    consumer.nack(1, delay_ms=1_000)
    numbers = rig.shard.window.numbers()
    assert (numbers["retrying"], numbers["retrying_full"]) == (1, True)
