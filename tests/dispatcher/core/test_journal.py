"""The journal: acknowledged means durable, in order of seq, and one flush is one segment."""

import pytest

from pushlane.wire.errors import BadRequest, Throttled, TooLarge, Unavailable
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Append, PublishTicket
from pushlane_storage.message import TRANSFER, Message
from pushlane_storage.queue import QueueConfig
from pushlane_storage.seq import make_seq
from tests.dispatcher.core.harness import LANE, Rig

BIG = "x" * 1_000


def bodies(append: Append) -> list[str]:
    return [message.body.decode() for message in append.segment.messages]


def stored(rig: Rig) -> list[str]:
    return [message.body.decode() for segment in rig.segments() for message in segment.messages]


def codes(ticket: PublishTicket) -> dict[int, str]:
    return {index: error.code for index, error in ticket.failed.items()}


# Acknowledged means durable


def test_a_publish_is_answered_when_it_is_durable() -> None:
    rig = Rig()
    rig.hold = {Append}
    ticket = rig.publish("a", "b")
    assert ticket.seqs == [make_seq(1, 0), make_seq(1, 1)]
    assert rig.published == []
    assert rig.shard.journal.pending_messages == rig.stats.pending == 2
    rig.finish()
    assert rig.published == [ticket]
    assert rig.stats.pending == 0


def test_what_is_not_durable_is_not_delivered() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.hold = {Append}
    rig.publish("a")
    assert consumer.bodies == []
    assert rig.state(make_seq(1, 0)) == "unknown"
    rig.finish()
    assert consumer.bodies == ["a"]


def test_what_was_answered_outlives_a_crash() -> None:
    rig = Rig()
    ticket = rig.publish("a", "b", key="k", headers={"h": "v"}, expires_at=rig.wall + 10**6)
    before = [rig.stored(LANE, seq) for seq in ticket.seqs]
    rig.crash()
    assert [rig.stored(LANE, seq) for seq in ticket.seqs] == before
    assert rig.subscribe().bodies == ["a"]


def test_while_a_flush_is_under_way_the_next_one_gathers() -> None:
    rig = Rig(bounds=Bounds(flushes=1))
    rig.hold = {Append}
    rig.publish("a")
    rig.publish("b")
    rig.publish("c", "d")
    (first,) = rig.held(Append)
    rig.finish(first)
    (second,) = rig.held(Append)
    assert (bodies(first), bodies(second)) == (["a"], ["b", "c", "d"])


def test_lanes_flush_on_their_own() -> None:
    rig = Rig()
    rig.hold = {Append}
    messages = [rig.message("a"), rig.message("b"), rig.message("c")]
    ticket = rig.shard.publish(messages, rig.now, [LANE, 7, LANE])
    rig.run()
    assert ticket.seqs == [make_seq(1, 0), make_seq(1, 0), make_seq(1, 1)]
    high, low = rig.held(Append)
    assert (bodies(high), bodies(low)) == (["b"], ["a", "c"])
    rig.finish(low)
    assert rig.published == []
    rig.finish(high)
    assert rig.published == [ticket]


# Flushes overlap, and count in order


def test_flushes_overlap_but_count_in_order_of_seq() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.hold = {Append}
    one, two, three = rig.publish("a"), rig.publish("b"), rig.publish("c")
    first, second, third = rig.held(Append)
    rig.finish(third)
    rig.finish(second)
    assert rig.published == []
    assert consumer.bodies == []
    rig.finish(first)
    assert rig.published == [one, two, three]
    assert consumer.bodies == ["a", "b", "c"]


def test_what_is_stored_behind_a_gap_does_not_survive() -> None:
    rig = Rig()
    rig.hold = {Append}
    rig.publish("a")
    rig.publish("b")
    rig.publish("c")
    first, _, third = rig.held(Append)
    rig.finish(first)
    rig.finish(third)
    assert len(rig.published) == 1
    rig.hold = set()
    rig.crash()
    assert rig.subscribe().bodies == ["a"]


def test_no_more_flushes_overlap_than_the_bound() -> None:
    rig = Rig(bounds=Bounds(flushes=2))
    rig.hold = {Append}
    for body in "abcd":
        rig.publish(body)
    assert len(rig.held(Append)) == 2


# How much goes into one segment


def test_a_segment_is_bounded_in_messages() -> None:
    rig = Rig(bounds=Bounds(segment_messages=2))
    ticket = rig.publish(*"abcde")
    assert [len(segment.messages) for segment in rig.segments()] == [2, 2, 1]
    assert rig.published == [ticket]


def test_a_segment_is_bounded_in_bytes_but_takes_at_least_one_message() -> None:
    rig = Rig(bounds=Bounds(segment_bytes=1_500))
    rig.publish("a", "b", BIG, BIG, "c", BIG * 3, "d")
    assert [len(segment.messages) for segment in rig.segments()] == [3, 2, 1, 1]
    assert rig.shard.journal.pending_size == 0


def test_a_publish_over_several_segments_is_answered_after_the_last() -> None:
    rig = Rig(bounds=Bounds(segment_messages=1))
    rig.hold = {Append}
    both = rig.publish("a", "b")
    third = rig.publish("c")
    first, second, last = rig.held(Append)
    rig.finish(first)
    assert rig.published == []
    rig.finish(last)
    rig.finish(second)
    assert rig.published == [both, third]


# Refused before it is stored


def test_a_body_over_the_limit_is_too_large_and_the_others_go_on() -> None:
    rig = Rig(QueueConfig(max_message_bytes=999))
    ticket = rig.publish("a", BIG, "b")
    assert codes(ticket) == {1: TooLarge.code}
    assert ticket.seqs[1] == -1
    assert stored(rig) == ["a", "b"]


@pytest.mark.parametrize(("lane", "not_before"), [(5, 0), (None, 10**15), (LANE, 10**15)])
def test_a_key_goes_with_neither_priority_nor_delay(lane: int | None, not_before: int) -> None:
    rig = Rig()
    ticket = rig.publish("a", lane=lane, key="k", not_before=not_before)
    assert codes(ticket) == {0: BadRequest.code}
    assert rig.published == [ticket]


def test_a_key_may_name_the_default_priority() -> None:
    rig = Rig()
    assert rig.publish("a", lane=LANE, key="k").failed == {}


def test_too_much_that_waits_to_be_stored_is_throttled() -> None:
    rig = Rig(bounds=Bounds(pending_messages=3))
    rig.hold = {Append}
    congested = [rig.shard.journal.congested]
    assert codes(rig.publish("a", "b")) == {}
    congested.append(rig.shard.journal.congested)
    ticket = rig.publish("c", "d")
    assert codes(ticket) == {1: Throttled.code}
    assert ticket.failed[1].retry_ms
    rig.hold = set()
    rig.finish()
    assert stored(rig) == ["a", "b", "c"]
    assert [*congested, rig.shard.journal.congested] == [False, True, False]


def test_too_many_bytes_that_wait_to_be_stored_are_throttled() -> None:
    rig = Rig(bounds=Bounds(pending_bytes=2_500))
    rig.hold = {Append}
    ticket = rig.publish(BIG, BIG, BIG)
    assert codes(ticket) == {2: Throttled.code}
    assert rig.shard.journal.congested


# Refused by the store


def test_a_refused_flush_is_undone() -> None:
    rig = Rig()
    rig.hold = {Append}
    ticket = rig.publish("a", "b")
    assert rig.refuse(rig.held(Append)[0])
    assert codes(ticket) == {0: Unavailable.code, 1: Unavailable.code}
    assert ticket.seqs == [-1, -1]
    assert rig.published == [ticket]
    assert rig.shard.journal.pending_messages == rig.shard.journal.pending_size == 0
    rig.hold = set()
    again = rig.publish("c")
    assert again.seqs == [make_seq(1, 0)], "no hole"
    rig.crash()
    assert rig.subscribe().bodies == ["c"]


def test_what_waits_behind_a_refused_flush_fails_with_it() -> None:
    rig = Rig(bounds=Bounds(flushes=1))
    rig.hold = {Append}
    first = rig.publish("a")
    behind = rig.publish("b", dedup="d")
    waits = rig.publish("b", dedup="d")
    assert rig.refuse(rig.held(Append)[0])
    for ticket in (first, behind, waits):
        assert codes(ticket) == {0: Unavailable.code}
    assert len(rig.published) == 3
    assert stored(rig) == []


def test_a_flush_that_is_not_the_newest_must_be_repeated() -> None:
    rig = Rig()
    rig.hold = {Append}
    rig.publish("a")
    rig.publish("b")
    first, second = rig.held(Append)
    assert not rig.refuse(first)
    rig.finish(first, second)
    assert stored(rig) == ["a", "b"]


def test_only_what_was_refused_of_a_publish_fails() -> None:
    rig = Rig(bounds=Bounds(segment_messages=1))
    rig.hold = {Append}
    messages = [rig.message("a"), rig.message("b"), rig.message("c", dedup="d")]
    rig.publish("zero", dedup="z")
    ticket = rig.shard.publish(
        [*messages, rig.message("z", dedup="z"), rig.message("high")],
        rig.now,
        [LANE, LANE, LANE, LANE, 9],
    )
    rig.run()
    high, zero, first, second, third = rig.held(Append)
    rig.finish(zero, first, high)
    rig.refuse(third)
    assert ticket not in rig.published, "a part of it is still under way"
    rig.refuse(second)
    assert codes(ticket) == {1: Unavailable.code, 2: Unavailable.code}
    assert ticket.seqs == [make_seq(1, 1), -1, -1, make_seq(1, 0), make_seq(1, 0)]
    assert ticket.duplicates == {3: (LANE, make_seq(1, 0))}
    assert rig.published[-1] is ticket


def test_a_refused_flush_of_a_bucket_in_use_leaves_the_bucket() -> None:
    rig = Rig()
    rig.publish("a")
    rig.hold = {Append}
    rig.publish("b")
    rig.refuse(rig.held(Append)[0])
    rig.hold = set()
    rig.publish("c")
    assert len(rig.buckets()) == 1
    assert stored(rig) == ["a", "c"]


# Buckets


@pytest.mark.parametrize(
    "bounds",
    [Bounds(bucket_messages=2), Bounds(bucket_bytes=100), Bounds(bucket_ms=2_000)],
    ids=["messages", "bytes", "age"],
)
def test_a_bucket_rolls_by_messages_bytes_or_age(bounds: Bounds) -> None:
    rig = Rig(bounds=bounds)
    for body in "abcde":
        rig.publish(body)
        rig.wait(1_000)
    buckets = rig.buckets()
    assert [bucket.closed for bucket in buckets[:2]] == [True, True]
    assert [bucket.count for bucket in buckets[:2]] == [2, 2]
    assert [bucket.size for bucket in buckets[:2]] == [130, 130]
    assert buckets[0].last_at == rig.wall - 4_000


def test_a_bucket_is_begun_only_when_the_one_before_is_whole() -> None:
    rig = Rig(bounds=Bounds(bucket_messages=1))
    rig.hold = {Append}
    rig.publish("a")
    rig.publish("b")
    (first,) = rig.held(Append)
    rig.finish(first)
    (second,) = rig.held(Append)
    assert first.opens is not None
    assert second.opens is not None
    assert first.opens.key != second.opens.key


def test_also_when_it_rolls_by_its_age() -> None:
    rig = Rig(bounds=Bounds(bucket_ms=1_000))
    rig.hold = {Append}
    rig.publish("a")
    rig.wait(1_000)
    rig.publish("b")
    assert len(rig.held(Append)) == 1, "its row would say that nothing before it is missing"
    rig.hold = set()
    rig.finish()
    assert [bucket.closed for bucket in rig.buckets()] == [True, False]


def test_a_bucket_that_is_due_to_roll_closes_also_after_a_refusal() -> None:
    rig = Rig(bounds=Bounds(bucket_ms=1_000))
    rig.publish("a")
    rig.hold = {Append}
    rig.publish("b")
    rig.wait(1_000)
    assert rig.refuse(rig.held(Append)[0])
    rig.wait(1)
    assert [bucket.closed for bucket in rig.buckets()] == [True]


def test_buckets_have_times_of_their_own_whatever_the_clock_says() -> None:
    rig = Rig(bounds=Bounds(bucket_messages=1))
    rig.publish("a")
    rig.offset -= 30_000
    rig.tick()
    rig.publish("b")
    rig.publish("c")
    starts = [bucket.key.start for bucket in rig.buckets()]
    assert starts == sorted(set(starts))


def test_a_bucket_knows_when_its_newest_message_was_published() -> None:
    rig = Rig()
    newer = Message(b"a", rig.wall + 500, dedup="d")
    rig.send([newer, rig.message("b", dedup="e")])
    bucket = rig.shard.window.lanes[LANE].buckets[0]
    assert bucket.last_at == rig.wall + 500


# What comes from another shard


def transfers(rig: Rig, *bodies: str) -> list[Message]:
    return [rig.message(body, dedup=f"{TRANSFER}{body}") for body in bodies]


def test_what_comes_from_another_shard_comes_in_order() -> None:
    rig = Rig(QueueConfig(max_bytes=1_000))
    ticket = rig.send(transfers(rig, "a", BIG, "b"))
    assert codes(ticket) == {1: "queue_full", 2: "throttled"}
    assert stored(rig) == ["a"]


def test_all_that_are_refused_for_good_are_told_at_once() -> None:
    rig = Rig(QueueConfig(max_message_bytes=500))
    ticket = rig.send(transfers(rig, "a", BIG, "b", BIG + "x"))
    assert codes(ticket) == {1: "too_large", 2: "throttled", 3: "too_large"}
    assert stored(rig) == ["a"]


def test_a_repeat_is_one_whatever_the_limits_are_by_now() -> None:
    rig = Rig()
    first = rig.publish(BIG, dedup="d")
    rig.configure(max_message_bytes=500, max_messages=1)
    repeat = rig.publish(BIG, dedup="d")
    assert repeat.duplicates == {0: (LANE, first.seqs[0])}
