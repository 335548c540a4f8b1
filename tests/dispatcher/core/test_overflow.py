"""Overflow: what a full queue does with a publish."""

from collections import Counter
from typing import Any

import pytest

from pushlane.wire.errors import NotFound, QueueFull
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Append, Page, PublishTicket, Settle, Transfer
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import Lane
from pushlane_dispatcher.core.life import State
from pushlane_storage.queue import Overflow as Policy
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.harness import LANE, Rig

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


def test_what_can_not_leave_counts_against_the_limits() -> None:
    rig = Rig(QueueConfig(max_messages=3))
    rig.refusing = True
    consumer = rig.subscribe(10)
    rig.publish(*"abc")
    consumer.nack(*consumer.numbers, dead=True)
    assert rig.stats.leaving == 3
    assert full(rig.publish("d")) == [0]
    rig.refusing = False
    rig.wait(1_000)
    assert full(rig.publish("d")) == []


def test_an_overflowing_queue_refuses_when_its_dead_letters_are_stuck() -> None:
    rig = Rig(QueueConfig(max_messages=3, overflow="dead_letter"))
    rig.refusing = True
    rig.publish(*"abc")
    assert full(rig.publish("d")) == [], "nobody knows yet"
    assert full(rig.publish("e")) == [0]
    rig.refusing = False
    rig.wait(1_000)
    assert full(rig.publish(*"efg")) == []
    assert (rig.stats.dead, rig.stats.stored) == (4, 3)


def test_what_comes_back_makes_others_go() -> None:
    rig = Rig(QueueConfig(max_messages=3, overflow="dead_letter"))
    seqs = rig.publish(*"abc").seqs
    rig.hold = {Transfer}
    assert rig.shard.redrive(LANE, dict.fromkeys(seqs[:2], "other"), rig.now) == 2
    rig.run()
    assert full(rig.publish("d", "e")) == []
    rig.refusal = lambda message: None if message.dead else NotFound("there is no queue other")
    rig.hold = set()
    rig.finish()
    assert (rig.stats.ready, rig.stats.dead) == (3, 2)


def test_those_that_leave_do_not_stop_dropping() -> None:
    rig = Rig(QueueConfig(max_messages=2, overflow="drop_oldest"), Bounds(leaving=1))
    rig.refusing = True
    consumer = rig.subscribe(1)
    rig.publish("dead")
    consumer.nack(1, dead=True)
    consumer.credit(0)
    rig.publish("a", "b")
    assert full(rig.publish("c")) == []
    assert (rig.stats.dropped, rig.stats.leaving) == (2, 1), "what can't leave takes room"


# A limit that was lowered, a burst, a share


def names(count: int) -> list[str]:
    return [f"{number:04}" for number in range(count)]


SMALL = Bounds(
    window_messages=20, page_messages=10, segment_messages=5, dropped_messages=10,
    bucket_messages=30,
)  # fmt: skip


@pytest.mark.parametrize("policy", MAKING_ROOM)
def test_a_lowered_limit_is_kept_also_where_most_of_it_is_backlog(policy: Policy) -> None:
    rig = Rig(QueueConfig(max_messages=1_000, overflow=policy), SMALL)
    rig.publish(*names(200))
    rig.configure(max_messages=10)
    assert full(rig.publish("new")) == []
    assert rig.stats.stored == 10
    assert rig.subscribe(100).bodies == [*names(200)[-9:], "new"]


def test_each_publish_drops_a_few_and_no_more() -> None:
    rig = Rig(QueueConfig(max_messages=1_000, overflow="drop_oldest"), SMALL)
    rig.publish(*names(200))
    rig.configure(max_messages=10)
    rig.hold = {Settle, Page}
    before = rig.shard.life.counts[State.ENDING]
    rig.shard.publish([rig.message("new")], rig.now)
    assert rig.shard.life.counts[State.ENDING] - before == SMALL.dropped_messages


class Walked(dict[int, Entry]):
    """The messages of a lane; counts those that somebody goes through."""

    count = 0

    def values(self) -> Any:
        self.count += len(self)
        return super().values()


def looks(rig: Rig, publishes: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Publish one by one: at how many messages the shard looks, to find those that can go."""
    calls: Counter[str] = Counter()

    def counted(name: str) -> Any:
        real = getattr(Lane, name)

        def count(*args: Any) -> Any:
            calls[name] += 1
            return real(*args)

        return count

    lane = rig.shard.window.lanes[LANE]
    entries = lane.entries = Walked(lane.entries)
    with monkeypatch.context() as patch:
        for name in ("head", "take", "put_back"):
            patch.setattr(Lane, name, counted(name))
        for number in range(publishes):
            rig.shard.publish([rig.message(f"new {number:04}")], rig.now)
            rig.turn()
    return entries.count + calls.total()


WIDE = Bounds(window_messages=200, page_messages=100, segment_messages=50)


def test_a_lowered_limit_does_not_make_each_publish_look_at_the_whole_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(QueueConfig(max_messages=1_000, overflow="drop_oldest"), WIDE)
    rig.publish(*names(1_000))
    rig.configure(max_messages=10)
    rig.hold = {Settle, Page, Append}
    assert looks(rig, 100, monkeypatch) <= 2 * WIDE.window_messages + 10 * 100
    at_hand = rig.shard.life.counts[State.ENDING]
    assert at_hand == WIDE.window_messages, "the rest goes as it comes in"
    rig.hold = set()
    rig.finish()
    assert rig.subscribe(100).bodies == [f"new {number:04}" for number in range(90, 100)]


@pytest.mark.parametrize(("limit", "refused", "dropped"), [(10, 100, 0), (1_050, 0, 50)])
def test_a_window_full_of_leased_messages_is_not_searched_for_each_publish(
    monkeypatch: pytest.MonkeyPatch, limit: int, refused: int, dropped: int
) -> None:
    rig = Rig(QueueConfig(max_messages=2_000, overflow="drop_oldest"), WIDE)
    rig.subscribe(1_000)
    rig.publish(*names(1_000))
    assert (rig.stats.leased, rig.stats.ready) == (1_000, 0)
    rig.configure(max_messages=limit)
    rig.hold = {Append}
    assert looks(rig, 100, monkeypatch) <= 10 * 100
    rig.hold = set()
    rig.finish()
    assert sum(len(full(ticket)) for ticket in rig.published) == refused
    assert (rig.stats.leased, rig.stats.dropped) == (1_000, dropped)


def test_a_full_queue_takes_a_burst_that_is_longer_than_its_window() -> None:
    rig = Rig(QueueConfig(max_messages=100, overflow="drop_oldest"), SMALL)
    rig.publish(*names(100))
    rig.hold = {Settle, Page, Append}
    assert full(rig.publish(*[f"new {name}" for name in names(100)])) == []
    rig.hold = set()
    rig.finish()
    assert rig.stats.stored == 100
    got = rig.subscribe(1_000).bodies
    assert got == [f"new {name}" for name in names(100)]


def test_a_burst_of_more_than_the_limit_is_taken_and_its_own_first_ones_go() -> None:
    rig = Rig(QueueConfig(max_messages=10, overflow="drop_oldest"))
    assert full(rig.publish(*names(50))) == []
    assert rig.stats.stored == 10
    assert rig.subscribe(100).bodies == names(50)[-10:]


def test_what_waits_is_not_taken_away() -> None:
    rig = Rig(QueueConfig(max_messages=4, overflow="drop_oldest"))
    rig.subscribe(1)
    rig.publish("leased", "blocked", key="k")
    rig.publish("delayed", not_before=rig.wall + 1_000)
    rig.publish("far", not_before=rig.wall + 10**7)
    assert full(rig.publish("new")) == [0]
    rig.configure(max_messages=5)
    assert full(rig.publish("new")) == []
    assert full(rig.publish("newer")) == []
    assert (rig.stats.dropped, rig.stats.stored) == (1, 5)


def test_a_queue_that_rejects_drops_nothing_although_its_limit_was_lowered() -> None:
    rig = Rig(QueueConfig(max_messages=10))
    rig.publish(*names(10))
    rig.shard.allot(5, None, rig.now)
    rig.run()
    assert full(rig.publish("new")) == [0]
    assert (rig.stats.stored, rig.shard.overflow.owing) == (10, False)


def test_who_rejects_again_owes_nothing() -> None:
    rig = Rig(QueueConfig(max_messages=2, overflow="drop_oldest"))
    rig.hold = {Append}
    rig.publish("a", "b", "c")
    assert rig.shard.overflow.owing
    rig.configure(overflow="reject")
    rig.hold = set()
    rig.finish()
    assert (rig.stats.dropped, rig.shard.overflow.owing) == (0, False)


def test_a_shard_has_an_equal_part_until_it_gets_its_share() -> None:
    rig = Rig(QueueConfig(max_messages=100, max_bytes=1_000, shards=4))
    overflow = rig.shard.overflow
    assert (overflow.limit, overflow.limit_bytes) == (25, 250)
    rig.shard.allot(70, 600, rig.now)
    assert (overflow.limit, overflow.limit_bytes) == (70, 600)


@pytest.mark.parametrize("config", [{"shards": 4}, {"auto_expand": True}])
def test_nothing_goes_before_a_shard_knows_its_share(config: dict[str, Any]) -> None:
    """A limit that may be greater than what it knows is no reason to drop anything."""
    rig = Rig(QueueConfig(max_messages=10, overflow="drop_oldest", **config))
    rig.shard.allot(20, None, rig.now)
    rig.publish("dead", *names(12))
    rig.refusing = True
    rig.crash()
    rig.publish("late")
    consumer = rig.subscribe(1)
    consumer.credit(0)
    consumer.nack(1, dead=True)
    assert (rig.stats.leaving, rig.stats.ready, rig.stats.dropped) == (1, 13, 0)
    rig.shard.allot(5, None, rig.now)
    rig.run()
    assert (rig.stats.leaving, rig.stats.ready, rig.stats.dropped) == (1, 4, 9)


def test_a_shard_that_is_being_closed_keeps_its_share() -> None:
    rig = Rig(QueueConfig(max_messages=10, shards=4, overflow="drop_oldest"))
    rig.shard.allot(9, None, rig.now)
    rig.refusing = True
    rig.publish("dead", *names(7))
    consumer = rig.subscribe(1)
    consumer.credit(0)
    rig.hold = {Transfer}
    consumer.nack(1, dead=True)
    rig.shard.granting = False
    rig.hold = set()
    rig.finish()
    assert (rig.stats.leaving, rig.stats.ready, rig.stats.dropped) == (1, 7, 0)
    consumer.credit(5)
    assert consumer.bodies == ["dead"]


def test_a_smaller_share_makes_the_oldest_go() -> None:
    rig = Rig(QueueConfig(max_messages=10, overflow="drop_oldest"))
    rig.publish(*names(10))
    rig.shard.allot(4, None, rig.now)
    rig.run()
    assert rig.subscribe(100).bodies == names(10)[-4:]


def test_use_says_what_can_not_go() -> None:
    rig = Rig()
    rig.subscribe(1)
    rig.publish("a", "b", "c")
    assert rig.shard.overflow.use == (3, 195, 1, 65)


def test_one_that_may_not_leave_now_leaves_later() -> None:
    rig = Rig(QueueConfig(max_messages=4, overflow="dead_letter"), Bounds(leaving=2))
    rig.publish(*names(4))
    rig.refusing = True
    rig.shard.allot(1, None, rig.now)
    rig.run()
    assert (rig.stats.leaving, rig.shard.overflow.owing) == (2, True)
    assert not rig.shard.allot(1, None, rig.now), "it is the same share"
    rig.refusing = False
    rig.wait(1_000)
    assert (rig.stats.stored, rig.shard.overflow.owing) == (1, False)


def test_the_error_names_the_limit() -> None:
    rig = Rig(QueueConfig(max_messages=2, max_bytes=200))
    assert [error.limit for error in rig.publish("a", "b", "c").failed.values()] == ["max_messages"]
    rig.configure(max_messages=100)
    assert [error.limit for error in rig.publish("x" * 99).failed.values()] == ["max_bytes"]


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
