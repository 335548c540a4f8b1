"""The window: memory doesn't grow with the backlog, and nothing in the store is forgotten."""

import pytest

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Append, Fetch, Page, Schedule, Settle
from pushlane_dispatcher.core.life import State
from pushlane_storage.message import size_of
from pushlane_storage.queue import QueueConfig
from pushlane_storage.seq import make_seq
from tests.dispatcher.core.harness import LANE, Consumer, Rig

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
    assert rig.shard.window.resident <= 6
    assert rig.stats.ready == 50
    consumer = rig.subscribe(3)
    assert drain(rig, consumer) == names(50)
    assert rig.stats.stored == 0


def test_bytes_are_bounded_too() -> None:
    rig = Rig(bounds=Bounds(window_bytes=300, segment_messages=1))
    rig.publish(*names(20))
    assert rig.shard.window.resident_bytes <= 300 + 67
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
    rig.publish(*names(10))
    rig.crash()
    rig.reads = []
    rig.publish("x")
    assert rig.reads == []
    assert rig.shard.window.lanes[LANE].ready == 4
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


# Bodies


def test_what_waits_gives_its_body_up_when_room_runs_low() -> None:
    rig = Rig(bounds=Bounds(window_messages=4))
    rig.publish(*names(4), key="k")
    window = rig.shard.window
    assert (window.resident, rig.stats.blocked) == (1, 3)
    assert drain(rig, rig.subscribe(2)) == names(4)


def test_what_is_in_flight_gives_its_body_up_when_room_runs_low() -> None:
    rig = Rig(bounds=SMALL)
    rig.publish(*names(20))
    consumer = rig.subscribe(20)
    assert consumer.bodies == names(20), "the window is no bound on what is out"
    assert rig.shard.window.resident <= 4


def test_what_has_given_its_body_up_can_come_back_and_wait() -> None:
    rig = Rig(bounds=Bounds(window_messages=2))
    consumer = rig.subscribe(1)
    (first, *_) = rig.publish("a", "b", "c").seqs
    assert rig.entry(first).message is None
    consumer.credit(0)
    consumer.nack(1, delay_ms=1_000)
    assert (rig.stats.retrying, rig.shard.window.resident) == (1, 2)


def test_a_body_is_read_again_when_its_turn_comes() -> None:
    rig = Rig(QueueConfig(max_attempts=99), SMALL)
    rig.publish(*names(8))
    consumer = rig.subscribe(8)
    consumer.nack(*range(1, 9), delay_ms=1_000)
    assert rig.shard.window.resident <= 4
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
    assert rig.shard.window.resident <= 8
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
    assert rig.shard.window.resident_bytes == size_of(message)


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


# Positions


def test_positions_are_bounded() -> None:
    rig = Rig(bounds=Bounds(positions=5, segment_messages=1, window_messages=1_000))
    rig.publish(*names(20), not_before=rig.wall + 5_000)
    assert rig.shard.life.waiting() == 5
    rig.publish("now")
    assert rig.stats.ready == 16, "it stands in the backlog"
    consumer = rig.subscribe(100)
    rig.wait(5_000)
    assert sorted(consumer.bodies) == [*names(20), "now"]


# Waiting


def test_a_delayed_message_is_granted_at_its_time_and_not_before() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("later", not_before=rig.wall + 1_000)
    rig.publish("now")
    assert consumer.take() == ["now"]
    assert (rig.stats.delayed, rig.shard.window.next_due()) == (1, rig.wall + 1_000)
    rig.wait(999)
    assert consumer.take() == []
    rig.wait(1)
    assert consumer.take() == ["later"]
    assert consumer.sub.held[2].attempts == 1


def test_a_time_that_has_passed_is_no_delay() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a", not_before=rig.wall)
    assert consumer.bodies == ["a"]


def test_delayed_messages_come_in_order_of_their_times() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    for body, delay in (("c", 300), ("a", 100), ("b", 200)):
        rig.publish(body, not_before=rig.wall + delay)
    rig.wait(300)
    assert consumer.bodies == ["a", "b", "c"]


def test_a_wait_outlives_a_crash() -> None:
    rig = Rig(QueueConfig(backoff_base_ms=10_000))
    consumer = rig.subscribe()
    rig.publish("delayed", not_before=rig.wall + 3_000)
    rig.publish("retried")
    consumer.nack(1, error="no luck")
    rig.crash()
    consumer = rig.subscribe()
    assert (rig.stats.delayed, rig.stats.retrying) == (1, 1)
    rig.wait(3_000)
    assert consumer.take() == ["delayed"]
    rig.wait(2_000)
    assert [(got.body, got.attempt) for got in consumer.inbox] == [("retried", 2)]


# The schedule index


FAR = Bounds(horizon_ms=10_000, page_messages=4, segment_messages=3)


def test_what_is_far_ahead_costs_no_memory_and_comes_in_time() -> None:
    rig = Rig(bounds=FAR)
    consumer = rig.subscribe(100)
    rig.publish(*names(10), not_before=rig.wall + 3_600_000)
    assert (rig.shard.window.far, rig.stats.delayed, rig.stats.ready) == (10, 10, 0)
    assert rig.shard.window.lanes[LANE].entries == {}
    rig.wait(3_599_999)
    assert consumer.bodies == []
    assert rig.shard.window.far == 0
    rig.wait(1)
    assert sorted(consumer.bodies) == names(10)


@pytest.mark.parametrize("count", [1, 4, 5, 8, 9, 40])
def test_many_messages_may_be_due_at_the_same_time(count: int) -> None:
    rig = Rig(bounds=FAR)
    due = rig.wall + 60_000
    rig.publish(*names(count), not_before=due)
    rig.publish("after", not_before=due + 1)
    consumer = rig.subscribe(100)
    rig.wait(60_000)
    assert sorted(consumer.bodies) == names(count)
    rig.wait(1)
    assert consumer.bodies[-1] == "after"


def test_times_are_read_in_order_page_by_page() -> None:
    rig = Rig(bounds=FAR)
    for number, name in enumerate(names(20)):
        rig.publish(name, not_before=rig.wall + 60_000 + number * 100)
    consumer = rig.subscribe(100)
    rig.wait(62_000)
    assert consumer.bodies == names(20)


def test_what_is_read_from_the_index_respects_the_bound_on_positions() -> None:
    rig = Rig(bounds=Bounds(horizon_ms=10_000, page_messages=2, positions=6))
    start = rig.wall + 60_000
    for number, name in enumerate(names(30)):
        rig.publish(name, not_before=start + number * 100)
    rig.wait(59_000)
    assert rig.shard.life.waiting() <= 8
    consumer = rig.subscribe(100)
    rig.wait(4_000)
    assert consumer.bodies == names(30)


def test_a_far_message_outlives_a_crash() -> None:
    rig = Rig(bounds=FAR)
    rig.publish("a", not_before=rig.wall + 60_000)
    rig.wait(30_000)
    rig.crash()
    assert rig.stats.delayed == 1
    consumer = rig.subscribe()
    rig.wait(29_999)
    assert consumer.bodies == []
    rig.wait(1)
    assert consumer.bodies == ["a"]


def test_what_is_stored_while_the_index_is_read_comes_once() -> None:
    rig = Rig(bounds=FAR)
    due = rig.wall + 14_000
    rig.publish("a", not_before=due)
    rig.hold = {Schedule}
    rig.wait(9_000)
    (read,) = rig.held(Schedule)
    rig.publish("b", not_before=due)
    rig.hold = set()
    rig.finish(read)
    consumer = rig.subscribe()
    rig.wait(5_000)
    assert sorted(consumer.bodies) == ["a", "b"]


def test_what_the_index_names_but_is_behind_the_window_comes_by_itself() -> None:
    rig = Rig(bounds=Bounds(horizon_ms=10_000, window_messages=2, segment_messages=1))
    due = rig.wall + 14_000
    rig.publish("far", not_before=due)
    rig.publish(*names(5))
    rig.publish("behind", not_before=due)
    rig.wait(12_000)
    consumer = rig.subscribe(100)
    rig.wait(2_000)
    assert sorted(consumer.bodies) == [*names(5), "behind", "far"]


def test_a_purge_takes_what_is_far_ahead_too() -> None:
    rig = Rig(bounds=FAR)
    due = rig.wall + 14_000
    old = rig.publish("old", not_before=due)
    rig.hold = {Schedule, Settle}
    rig.wait(9_000)
    (read,) = rig.held(Schedule)
    rig.purge()
    new = rig.publish("new", not_before=due)
    rig.finish(read)
    assert rig.state(old.seqs[0]) == "leaving"
    rig.hold = set()
    rig.finish()
    assert (rig.state(old.seqs[0]), rig.state(new.seqs[0])) == ("purged", "delayed")
    consumer = rig.subscribe()
    rig.wait(5_000)
    assert consumer.bodies == ["new"]


def test_what_ended_is_skipped_in_the_index() -> None:
    rig = Rig(bounds=Bounds(horizon_ms=10_000, bucket_ms=1_000))
    due = rig.wall + 14_000
    consumer = rig.subscribe()
    rig.publish("soon", not_before=rig.wall + 9_000)
    rig.publish("far", not_before=due)
    rig.publish("drained", lane=7, not_before=rig.wall + 8_000)
    rig.wait(9_000)
    consumer.ack(1, 2)
    found = rig.dues()
    assert len(found) == 3
    rig.shard.window.scheduled(Schedule(0, due, 100), found, rig.now)
    rig.wait(5_000)
    assert consumer.bodies == ["drained", "soon", "far"]


def test_a_clock_that_steps_forward_makes_due_what_is_far() -> None:
    rig = Rig(bounds=FAR)
    consumer = rig.subscribe()
    rig.publish("a", not_before=rig.wall + 3_600_000)
    rig.offset += 3_600_000
    rig.tick()
    rig.wait(0)
    assert consumer.bodies == ["a"]


# Expiry


def test_what_expired_is_not_granted() -> None:
    rig = Rig(dead_letter=None)
    ticket = rig.publish("a", expires_at=rig.wall + 1_000)
    rig.publish("b", expires_at=rig.wall + 5_000)
    rig.now += 1_000
    assert rig.subscribe().bodies == ["b"]
    assert rig.stats.expired == 1
    assert rig.state(ticket.seqs[0]) == "expired"


def test_it_goes_to_the_dead_letters_where_there_are_some() -> None:
    rig = Rig()
    rig.publish("a", expires_at=rig.wall + 1_000)
    rig.wait(1_000)
    (transfer,) = rig.transfers
    assert transfer.message.dead is not None
    assert transfer.message.dead.cause == "expired"
    assert (rig.stats.dead, rig.stats.stored) == (1, 0)


def test_messages_expire_also_when_nobody_consumes_them() -> None:
    rig = Rig(dead_letter=None, bounds=Bounds(expiry_sweep_ms=1_000))
    for delay in (1_000, 1_100, 5_000):
        rig.publish("x", expires_at=rig.wall + delay)
    rig.publish("for ever")
    rig.wait(999)
    assert rig.stats.expired == 0
    rig.wait(1)
    assert rig.stats.expired == 1
    rig.wait(1_000)
    assert rig.stats.expired == 2, "not more often than once a second"
    rig.wait(3_000)
    assert (rig.stats.expired, rig.stats.ready) == (3, 1)
    assert rig.shard.window.next_expiry is None


def test_a_leased_message_does_not_expire_and_is_decided_when_it_comes_back() -> None:
    rig = Rig(dead_letter=None)
    consumer = rig.subscribe()
    rig.publish("a", "b", expires_at=rig.wall + 1_000)
    rig.wait(2_000)
    assert consumer.ack(1).lost == []
    consumer.nack(2, delay_ms=0)
    assert (rig.stats.acked, rig.stats.expired) == (1, 1)
    assert consumer.bodies == ["a", "b"]


def test_what_waits_expires_when_its_turn_comes() -> None:
    rig = Rig(dead_letter=None)
    consumer = rig.subscribe()
    rig.publish("delayed", not_before=rig.wall + 2_000, expires_at=rig.wall + 1_000)
    rig.publish("head", key="k")
    rig.publish("blocked", key="k", expires_at=rig.wall + 1_000)
    rig.wait(2_000)
    assert rig.stats.expired == 1
    consumer.ack(1)
    assert rig.stats.expired == 2
    assert consumer.bodies == ["head"]


def test_what_has_to_be_read_again_first_expires_then() -> None:
    rig = Rig(dead_letter=None, bounds=Bounds(window_messages=2))
    consumer = rig.subscribe()
    rig.publish("a", "b", "c", key="k", expires_at=rig.wall + 1_000)
    rig.hold = {Fetch}
    consumer.ack(1)
    rig.wait(2_000)
    rig.hold = set()
    rig.finish()
    rig.wait(2_000)
    assert (consumer.bodies, rig.stats.expired) == (["a"], 2)


def test_a_suspect_clock_pauses_expiry() -> None:
    rig = Rig(dead_letter=None)
    rig.publish("a", expires_at=rig.wall + 3_600_000)
    rig.publish("b", expires_at=rig.wall + 9_000_000)
    rig.offset += 3_600_000
    rig.tick()
    assert rig.shard.clock_suspect
    assert rig.stats.expired == 0
    consumer = rig.subscribe(1)
    assert consumer.bodies == ["a"]
    rig.wait(10_000)
    assert rig.stats.expired == 0
    rig.offset -= 3_600_000
    rig.tick()
    assert not rig.shard.clock_suspect


def test_a_small_step_of_the_clock_is_no_reason_to_doubt_it() -> None:
    rig = Rig(dead_letter=None)
    rig.publish("a", expires_at=rig.wall + 10_000)
    rig.offset += 60_000
    rig.tick()
    assert not rig.shard.clock_suspect
    assert rig.stats.expired == 1
    rig.offset += 1
    rig.tick()
    assert rig.shard.clock_suspect


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
