"""Overflow: what a full queue does with a publish."""

import pytest

from pushlane.wire.errors import QueueFull
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Append, PublishTicket, Settle
from pushlane_storage.queue import Overflow as Policy
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.harness import Rig

MAKING_ROOM: list[Policy] = ["drop_oldest", "dead_letter"]


def full(ticket: PublishTicket) -> list[int]:
    """The indexes of those that were refused because the queue is full."""
    assert all(isinstance(error, QueueFull) for error in ticket.failed.values())
    return sorted(ticket.failed)


# Reject


def test_by_default_a_full_queue_refuses() -> None:
    rig = Rig(QueueConfig(max_messages=3))
    ticket = rig.publish(*"abcde")
    assert full(ticket) == [3, 4]
    assert ticket.failed[3].retry_ms
    assert rig.stats.stored == 3


def test_what_waits_to_be_stored_counts() -> None:
    rig = Rig(QueueConfig(max_messages=3))
    rig.hold = {Append}
    rig.publish("a", "b")
    assert full(rig.publish("c", "d")) == [1]


def test_an_acked_message_makes_room() -> None:
    rig = Rig(QueueConfig(max_messages=2))
    consumer = rig.subscribe()
    rig.publish("a", "b")
    assert full(rig.publish("c")) == [0]
    rig.hold = {Settle}
    consumer.ack(1)
    assert full(rig.publish("c")) == []
    assert full(rig.publish("d")) == [0]


def test_what_is_leased_counts() -> None:
    rig = Rig(QueueConfig(max_messages=1))
    rig.subscribe()
    rig.publish("a")
    assert full(rig.publish("b")) == [0]


def test_bytes_are_limited_too() -> None:
    rig = Rig(QueueConfig(max_bytes=200))
    assert full(rig.publish("a", "b", "c", "d")) == [3]
    rig.hold = {Append}
    assert full(rig.publish("e")) == [0]


def test_dedup_is_looked_up_first() -> None:
    rig = Rig(QueueConfig(max_messages=1))
    first = rig.publish("a", dedup="d")
    again = rig.publish("a", dedup="d")
    assert again.failed == {}
    assert again.seqs == first.seqs


def test_the_limit_can_be_changed() -> None:
    rig = Rig(QueueConfig(max_messages=1))
    rig.publish("a")
    rig.configure(max_messages=2)
    assert full(rig.publish("b", "c")) == [1]


# Making room


def test_the_oldest_is_dropped() -> None:
    rig = Rig(QueueConfig(max_messages=3, overflow="drop_oldest"))
    first = rig.publish(*"abc")
    assert full(rig.publish("d", "e")) == []
    assert (rig.stats.dropped, rig.stats.stored) == (2, 3)
    assert rig.state(first.seqs[0]) == "dropped"
    assert rig.transfers == []
    assert rig.subscribe().bodies == ["c", "d", "e"]


def test_or_it_goes_to_the_dead_letters() -> None:
    rig = Rig(QueueConfig(max_messages=3, overflow="dead_letter"))
    rig.publish(*"abc")
    assert full(rig.publish("d", "e")) == []
    assert [transfer.message.body for transfer in rig.transfers] == [b"a", b"b"]
    dead = rig.transfers[0].message.dead
    assert dead is not None
    assert dead.cause == "overflow"
    assert rig.stats.stored == 3


def test_without_dead_letters_it_just_ends() -> None:
    rig = Rig(QueueConfig(max_messages=1, overflow="dead_letter"), dead_letter=None)
    first = rig.publish("a")
    assert full(rig.publish("b")) == []
    assert (rig.stats.dead, rig.state(first.seqs[0])) == (1, "dead")


def test_the_oldest_of_all_lanes_goes() -> None:
    rig = Rig(QueueConfig(max_messages=2, overflow="drop_oldest"))
    rig.publish("old", lane=9)
    rig.wait(1)
    rig.publish("young", lane=1)
    rig.publish("new")
    assert rig.subscribe().bodies == ["new", "young"]


@pytest.mark.parametrize("policy", MAKING_ROOM)
def test_what_is_in_flight_is_not_taken_away(policy: Policy) -> None:
    rig = Rig(QueueConfig(max_messages=2, overflow=policy))
    consumer = rig.subscribe()
    rig.publish("a", "b")
    assert full(rig.publish("c")) == [0]
    assert consumer.ack(1, 2).lost == []


@pytest.mark.parametrize("policy", MAKING_ROOM)
def test_a_publish_that_is_refused_anyway_drops_nothing(policy: Policy) -> None:
    rig = Rig(QueueConfig(max_bytes=300, overflow=policy))
    rig.publish("a", "b", "c")
    assert full(rig.publish("x" * 300)) == [0]
    assert (rig.stats.ready, rig.stats.dropped, rig.stats.leaving) == (3, 0, 0)
    assert rig.subscribe().bodies == ["a", "b", "c"]


def test_not_more_is_dropped_than_must_be() -> None:
    rig = Rig(QueueConfig(max_bytes=10 * 65, overflow="drop_oldest"))
    rig.publish(*"abcdefghij")
    rig.hold = {Settle, Append}
    for body in "klmno":
        rig.publish(body)
    rig.hold = set()
    rig.finish()
    assert rig.stats.dropped == 5
    assert rig.subscribe(20).bodies == list("fghijklmno")


def test_by_bytes_as_many_go_as_the_new_one_needs() -> None:
    rig = Rig(QueueConfig(max_bytes=10 * 65, overflow="drop_oldest"))
    rig.publish(*"abcdefghij")
    rig.publish("x" * 131)
    assert rig.stats.dropped == 3


def test_a_dropped_head_lets_its_key_go_on() -> None:
    rig = Rig(QueueConfig(max_messages=2, overflow="drop_oldest"))
    rig.publish("a", "b", key="k")
    rig.publish("c", key="k")
    assert rig.subscribe().bodies == ["b"]


def test_too_many_that_leave_make_an_overflowing_queue_refuse() -> None:
    config = QueueConfig(max_messages=3, overflow="dead_letter")
    rig = Rig(config, Bounds(leaving=2))
    rig.refusing = True
    rig.publish(*"abc")
    assert full(rig.publish(*"defg")) == [2, 3]
    assert rig.stats.leaving == 2
    rig.refusing = False
    rig.wait(1_000)
    assert full(rig.publish("h")) == []


def test_those_that_leave_do_not_stop_dropping() -> None:
    rig = Rig(QueueConfig(max_messages=2, overflow="drop_oldest"), Bounds(leaving=1))
    rig.refusing = True
    consumer = rig.subscribe(1)
    rig.publish("dead")
    consumer.nack(1, dead=True)
    consumer.credit(0)
    rig.publish("a", "b")
    assert full(rig.publish("c")) == []
    assert (rig.stats.dropped, rig.stats.leaving) == (1, 1)


# Automatic expansion


def test_the_limit_doubles_at_eighty_percent_up_to_the_quota() -> None:
    rig = Rig(QueueConfig(max_messages=10, auto_expand=True), Bounds(max_limit=35))
    overflow = rig.shard.overflow
    rig.publish(*["x"] * 8)
    assert overflow.limit == 10
    rig.publish("x")
    assert overflow.limit == 20
    rig.publish(*["x"] * 20)
    assert overflow.limit == 35
    assert full(rig.publish(*["x"] * 10)) == [6, 7, 8, 9]
    assert rig.stats.stored == 35


def test_it_shrinks_again() -> None:
    rig = Rig(QueueConfig(max_messages=10, auto_expand=True))
    consumer = rig.subscribe(100)
    rig.publish(*["x"] * 70)
    assert rig.shard.overflow.limit >= 80
    consumer.ack(*consumer.numbers)
    rig.publish("x")
    assert rig.shard.overflow.limit == 10


def test_a_quota_below_the_limit_does_not_lower_it() -> None:
    rig = Rig(QueueConfig(max_messages=10, auto_expand=True), Bounds(max_limit=5))
    assert full(rig.publish(*["x"] * 11)) == [10]


def test_a_limit_of_nothing_expands_too() -> None:
    rig = Rig(QueueConfig(max_messages=0, auto_expand=True))
    assert full(rig.publish("x")) == []


def test_a_new_owner_counts_what_it_finds() -> None:
    rig = Rig(QueueConfig(max_messages=3))
    consumer = rig.subscribe()
    rig.publish(*"abc")
    consumer.ack(1)
    used = rig.stats.bytes
    rig.crash()
    assert (rig.stats.stored, rig.stats.bytes) == (2, used)
    assert full(rig.publish("d", "e")) == [1]


def test_sizes_of_all_kinds_do_not_make_the_count_wrong() -> None:
    rig = Rig(bounds=Bounds(bucket_messages=4))
    consumer = rig.subscribe(100)
    for number in range(1, 40):
        rig.publish("x" * (number * 37 % 500))
        consumer.ack(number)
        assert (rig.stats.stored, rig.stats.bytes) == (0, 0)
