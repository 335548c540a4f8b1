"""Room in the window: a higher lane always finds some."""

import pytest

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Fetch
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.harness import LANE, Rig

SMALL = Bounds(window_messages=300, page_messages=50, segment_messages=20)


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
