"""Waiting for `not_before`, near and far, and expiry: what the wall clock does."""

import pytest

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Fetch, Schedule, Settle
from pushlane_dispatcher.core.life import WAITING
from pushlane_storage.interface import Due
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.harness import LANE, Rig


def names(count: int) -> list[str]:
    return [f"{number:03}" for number in range(count)]


def waiting(rig: Rig) -> int:
    """Messages in the window that wait."""
    return sum(rig.shard.life.counts[state] for state in WAITING)


# Waiting


def test_a_delayed_message_is_granted_at_its_time_and_not_before() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("later", not_before=rig.wall + 1_000)
    rig.publish("now")
    assert consumer.take() == ["now"]
    assert (rig.stats.delayed, rig.shard.window.delays.next_due()) == (1, rig.wall + 1_000)
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
    assert (rig.shard.window.delays.far, rig.stats.delayed, rig.stats.ready) == (10, 10, 0)
    assert rig.shard.window.lanes[LANE].entries == {}
    rig.wait(3_599_999)
    assert consumer.bodies == []
    assert rig.shard.window.delays.far == 0
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


def test_what_is_read_from_the_index_respects_its_bound() -> None:
    rig = Rig(bounds=Bounds(horizon_ms=10_000, page_messages=2, delayed=6))
    start = rig.wall + 60_000
    for number, name in enumerate(names(30)):
        rig.publish(name, not_before=start + number * 100)
    rig.wait(59_000)
    assert waiting(rig) <= 6
    assert rig.stats.delayed == 30
    consumer = rig.subscribe(100)
    rig.wait(4_000)
    assert consumer.bodies == names(30)


MANY = Bounds(delayed=10, horizon_ms=10_000, page_messages=4, segment_messages=3)


def test_many_delays_hold_up_nobody() -> None:
    rig = Rig(bounds=MANY)
    consumer = rig.subscribe(100)
    rig.publish(*names(40), not_before=rig.wall + 5_000)
    assert (rig.stats.delayed, waiting(rig) <= 10) == (40, True)
    rig.publish("now")
    assert consumer.bodies == ["now"]
    rig.wait(5_000)
    assert sorted(consumer.bodies) == [*names(40), "now"]


def test_the_earliest_delays_stay_in_memory_whenever_they_come() -> None:
    rig = Rig(bounds=MANY)
    for number, name in reversed(list(enumerate(names(40)))):
        rig.publish(name, not_before=rig.wall + 1_000 + number * 10)
    consumer = rig.subscribe(100)
    for number, name in enumerate(names(40)):
        rig.wait(1_000 if not number else 10)
        assert consumer.bodies[number:] == [name], "in time, and not late by a read"


def test_delays_that_were_left_to_the_index_outlive_a_crash_and_come_once() -> None:
    rig = Rig(bounds=MANY)
    rig.publish(*names(40), not_before=rig.wall + 5_000)
    rig.crash()
    consumer = rig.subscribe(100)
    assert rig.stats.delayed == 40
    rig.wait(5_000)
    assert sorted(consumer.bodies) == names(40)
    consumer.ack(*consumer.numbers)
    assert rig.stats.stored == 0


def test_delays_are_left_to_the_index_while_it_is_being_read() -> None:
    rig = Rig(bounds=MANY)
    rig.publish(*names(3), not_before=rig.wall + 14_000)
    rig.hold = {Schedule}
    rig.wait(9_000)
    assert rig.held(Schedule)
    rig.publish(*[f"more {name}" for name in names(30)], not_before=rig.wall + 2_000)
    rig.hold = set()
    rig.finish()
    assert waiting(rig) <= 10
    consumer = rig.subscribe(100)
    rig.wait(2_000)
    assert len(consumer.bodies) == 30
    rig.wait(3_000)
    assert sorted(consumer.bodies[30:]) == names(3)


def test_the_index_is_not_read_while_too_many_ready_ones_wait_for_their_bodies() -> None:
    rig = Rig(bounds=Bounds(delayed=10, positions=8, window_messages=2, page_messages=4))
    rig.publish(*names(40), not_before=rig.wall + 5_000)
    rig.wait(6_000)
    assert rig.shard.window.bodies.bare <= 8 + 10
    consumer = rig.subscribe(1)
    for _ in range(40):
        consumer.ack(*consumer.sub.held)
        rig.wait(1)
    assert sorted(consumer.bodies) == names(40)


def test_retries_stay_in_memory_and_have_a_bound_of_their_own() -> None:
    bounds = Bounds(retrying=3, delayed=2, segment_messages=1)
    rig = Rig(QueueConfig(max_attempts=9), bounds)
    rig.publish(*names(3))
    consumer = rig.subscribe(10)
    consumer.nack(1, 2, 3, delay_ms=1_000)
    consumer.take()
    rig.publish("later", not_before=rig.wall + 500)
    rig.publish(*"xyz")
    assert (consumer.take(), rig.stats.retrying, rig.stats.ready) == ([], 3, 4)
    rig.wait(1_000)
    assert sorted(consumer.take()) == [*names(3), "later", "x", "y", "z"]


@pytest.mark.parametrize("key", [None, "k"])
def test_an_entry_of_the_index_may_be_of_a_message_that_was_never_stored(key: str | None) -> None:
    """Its place was taken by another message: one that waits for its key, or for a later time."""
    rig = Rig(bounds=Bounds(key_positions=1, horizon_ms=1_000))
    consumer = rig.subscribe(5)
    rig.publish("far", not_before=rig.wall + 10_000)
    fields = {"key": key} if key else {"not_before": rig.wall + 20_000}
    wrong = rig.publish("a", "b", "c", **fields).seqs[-1]
    bucket = rig.buckets()[0].key
    read = Schedule(rig.wall, rig.wall + 1_000, 100)
    rig.shard.window.delays.read_until = rig.wall + 1_000
    rig.shard.scheduled(read, [Due(rig.wall + 1, LANE, bucket, wrong)], rig.now)
    rig.wait(2)
    assert "c" not in consumer.bodies
    for _ in range(4):
        consumer.ack(*consumer.sub.held)
    assert [body for body in consumer.bodies if body != "far"] == (list("abc") if key else [])
    rig.wait(20_000)
    assert sorted(consumer.bodies) == ["a", "b", "c", "far"]


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


def test_time_that_passed_while_the_machine_slept_makes_due_what_is_far() -> None:
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
    assert rig.shard.window.expiry.next_at is None


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
