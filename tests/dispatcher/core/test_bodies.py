"""Room in the window: a higher lane always finds some; the windows of all shards share a budget."""

from __future__ import annotations

import pytest

from pushlane_dispatcher.core.bodies import Budget
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Fetch, Settle
from pushlane_storage.message import size_of
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.harness import LANE, Rig

SMALL = Bounds(window_messages=300, page_messages=50, segment_messages=20)
TINY = Bounds(window_bytes=10_000, segment_messages=2)
BODY = "x" * 400


def names(count: int, first: str = "") -> list[str]:
    return [f"{first}{number:04}" for number in range(count)]


def test_a_higher_lane_is_next_although_the_window_is_full() -> None:
    rig = Rig(bounds=SMALL)
    rig.publish(*names(500))
    assert rig.shard.window.bodies.full
    rig.publish("urgent", lane=9)
    consumer = rig.subscribe(1)
    assert consumer.take() == ["urgent"]


def test_however_many_come_memory_is_bounded_and_nothing_is_lost() -> None:
    rig = Rig(bounds=SMALL)
    rig.publish(*names(500))
    rig.publish(*names(500, "high"), lane=7)
    rig.publish(*names(500, "top"), lane=9)
    assert rig.shard.window.bodies.resident <= 300 + 20
    assert rig.shard.window.lanes[LANE].ready == 0, "they made room"
    consumer = rig.subscribe(10)
    got = []
    while consumer.inbox:
        got += consumer.take()
        consumer.ack(*consumer.sub.held)
        assert rig.shard.window.bodies.resident <= 300 + 20 + 50
    assert got == [*names(500, "top"), *names(500, "high"), *names(500)]


def test_also_what_came_back_makes_room() -> None:
    rig = Rig(QueueConfig(max_attempts=99), Bounds(window_messages=10, segment_messages=2))
    rig.publish(*names(10))
    consumer = rig.subscribe(4)
    consumer.credit(0)
    consumer.nack(1, 2, 3, 4, delay_ms=0)
    rig.publish(*names(12, "top"), lane=9)
    assert rig.shard.window.bodies.resident <= 12
    consumer.inbox = []
    consumer.credit(1)
    got = []
    while consumer.inbox:
        got += consumer.take()
        consumer.ack(*consumer.sub.held)
    assert got == [*names(12, "top"), *names(10)]


def test_a_backlog_of_a_higher_lane_is_read_although_the_window_is_full() -> None:
    rig = Rig(bounds=SMALL)
    rig.publish(*names(40, "top"), lane=9)
    rig.publish(*names(500))
    rig.crash()
    rig.publish(*names(500))
    assert rig.shard.window.lanes[9].ready == 40


def test_bytes_count_too() -> None:
    rig = Rig(bounds=Bounds(window_bytes=1_000, segment_messages=1))
    rig.publish(*["x" * 150] * 10)
    rig.publish("urgent", lane=9)
    assert rig.subscribe(1).take() == ["urgent"]
    assert rig.shard.window.bodies.resident_bytes <= 1_250


def test_lower_lanes_get_their_bodies_back_only_when_higher_ones_have_no_backlog() -> None:
    rig = Rig(bounds=SMALL)
    rig.publish(*names(300))
    rig.publish(*names(600, "top"), lane=9)
    consumer = rig.subscribe(10)
    while rig.shard.window.lanes[9].backlogged:
        assert not [read for read in rig.reads if isinstance(read, Fetch)]
        consumer.ack(*consumer.sub.held)
    while rig.shard.window.lanes[9].ready:
        consumer.ack(*consumer.sub.held)
    assert [read for read in rig.reads if isinstance(read, Fetch)]


@pytest.mark.parametrize("lane", [0, 4])
def test_a_lower_lane_or_the_same_takes_no_room_away(lane: int) -> None:
    rig = Rig(bounds=SMALL)
    rig.publish(*names(300))
    rig.publish("more", lane=lane)
    assert rig.shard.window.lanes[LANE].ready == 300
    assert rig.shard.window.bodies.bare == 0


def test_single_messages_of_a_higher_lane_cost_no_reads_while_a_lower_one_has_plenty() -> None:
    rig = Rig(bounds=SMALL)
    rig.publish(*names(300))
    for name in names(50, "top"):
        rig.publish(name, lane=9)
    assert rig.shard.window.bodies.bare, "they made room"
    assert rig.reads == []
    consumer = rig.subscribe(10)
    got = []
    while consumer.inbox:
        got += consumer.take()
        consumer.ack(*consumer.sub.held)
    assert got == [*names(50, "top"), *names(300)]
    fetched = sum(len(read.entries) for read in rig.reads if isinstance(read, Fetch))
    assert fetched == 100, "each body once"


def test_one_that_came_back_without_its_body_is_read_though_its_lane_has_plenty() -> None:
    rig = Rig(QueueConfig(max_attempts=99), SMALL)
    rig.publish(*names(310))
    consumer = rig.subscribe(1)
    consumer.credit(0)
    rig.shard.window.bodies.thin(rig.entry(consumer.inbox[0].seq))
    consumer.nack(1, delay_ms=0)
    (fetch,) = [read for read in rig.reads if isinstance(read, Fetch)]
    assert len(fetch.entries) == 1
    consumer.inbox = []
    consumer.credit(1)
    assert consumer.take() == ["0000"]


def share(budget: Budget, *rigs: Rig) -> None:
    for rig in rigs:
        rig.shard.window.bodies.join(budget)


def test_half_is_for_whoever_comes_first_and_half_is_dealt_out() -> None:
    budget = Budget(8_000, shards=4, window=3_000)
    assert (budget.least, budget.spent) == (1_000, False)
    budget.used = 3_999
    assert not budget.spent
    budget.used = 4_000
    assert budget.spent


def test_where_all_windows_fit_nobody_is_squeezed() -> None:
    budget = Budget(8_000, shards=4, window=2_000)
    budget.used = 7_999
    assert not budget.spent


def test_what_comes_and_goes_is_counted() -> None:
    budget = Budget(100_000, 2)
    rig = Rig(bounds=TINY)
    rig.publish(BODY)
    share(budget, rig)
    rig.publish(BODY)
    bodies = rig.shard.window.bodies
    assert budget.used == bodies.resident_bytes > 800
    consumer = rig.subscribe(2)
    consumer.take()
    consumer.ack(1, 2)
    assert budget.used == bodies.resident_bytes == 0
    rig.publish(BODY)
    budget.refused.add(bodies)
    bodies.join(Budget())
    assert (budget.used, budget.refused) == (0, set())


def test_together_they_keep_to_it_and_all_are_served() -> None:
    budget = Budget(12_000, shards=6, window=TINY.window_bytes)
    rigs = [Rig(bounds=TINY) for _ in range(6)]
    share(budget, *rigs)
    names = [f"{n:03}{BODY}" for n in range(40)]
    for rig in rigs:
        rig.publish(*names)
    one = size_of(rigs[0].message(BODY + "000"))
    most = 12_000 + 6 * one
    assert budget.used <= most, "one message of each may go beyond its part"
    assert budget.refused <= {rig.shard.window.bodies for rig in rigs}
    assert rigs[-1].shard.window.bodies in budget.refused
    for rig in rigs:
        consumer = rig.subscribe(3)
        got: list[str] = []
        while consumer.inbox:
            got += consumer.take()
            consumer.ack(*consumer.sub.held)
            assert budget.used <= most
        assert got == names
    assert budget.used == 0


def test_what_is_in_flight_gives_its_bodies_up() -> None:
    """Else a shard whose consumers hold much would get nothing new."""
    budget = Budget(12_000, shards=6, window=TINY.window_bytes)
    rig = Rig(bounds=TINY)
    share(budget, rig)
    rig.publish(*[BODY] * 10)
    slow = rig.subscribe(6)
    slow.take()
    held = rig.shard.window.bodies.resident_bytes
    assert held > 2 * budget.least
    budget.used += 12_000  # others
    rig.publish(*[BODY] * 10)
    fast = rig.subscribe(4)
    got = 0
    while fast.inbox:
        got += len(fast.take())
        fast.ack(*fast.sub.held)
    assert got == 14
    assert budget.squeezes >= 1
    slow.ack(*slow.sub.held)
    assert budget.used == 12_000


def test_it_is_large_again_when_there_is_room() -> None:
    budget = Budget(12_000, shards=6, window=TINY.window_bytes)
    rig = Rig(bounds=TINY)
    share(budget, rig)
    budget.used += 6_000
    rig.publish(*[BODY] * 30)
    bodies = rig.shard.window.bodies
    assert bodies.resident_bytes < 3_000
    assert bodies.most_bytes == 1_000
    budget.used -= 6_000
    assert bodies.most_bytes == 10_000
    rig.shard.window.read()
    rig.run()
    assert bodies.resident_bytes > 3_000


def test_they_give_them_up_again_and_again() -> None:
    """What was granted while there was room is in the way when there is none."""
    budget = Budget(12_000, shards=6, window=TINY.window_bytes)
    rig = Rig(bounds=TINY)
    share(budget, rig)
    slow = rig.subscribe(100)
    for n in range(5):
        for others in (0, 12_000):
            budget.used += others
            rig.publish(*[BODY] * 4)
            assert len(slow.take()) == 4, n
            budget.used -= others
    assert budget.squeezes == 5


def test_what_is_on_its_way_out_keeps_its_body() -> None:
    budget = Budget(12_000, shards=6, window=TINY.window_bytes)
    rig = Rig(bounds=TINY)
    share(budget, rig)
    rig.publish(*[BODY] * 4)
    consumer = rig.subscribe(4)
    consumer.take()
    rig.hold = {Settle}
    consumer.ack(1, 2, 3, 4)
    budget.used += 12_000
    rig.publish(*[BODY] * 4)
    assert budget.squeezes == 0
    rig.finish(*rig.held(Settle))
    assert len(consumer.take()) == 4
