"""Snapshots: consumers go on with the next owner as if nothing had happened."""

from __future__ import annotations

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.snapshot import take_snapshot
from pushlane_dispatcher.core.subscription import ANYBODY, REQUEST
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.consumer import Consumer, flat
from tests.dispatcher.core.harness import Rig

PROMPT = QueueConfig(backoff_base_ms=1, consumer_backoff_base_ms=1)


def back(rig: Rig, consumer: Consumer) -> Consumer:
    """The same client with the new owner, before it resumed."""
    return rig.adopt(rig.shard.consumers.subscriptions[consumer.sub.prefix])


def test_what_is_held_stays_held_under_the_same_receipts() -> None:
    rig = Rig(PROMPT)
    consumer = rig.subscribe(explicit=True, lease_ms=10_000)
    rig.publish("a", "b", "c", key="k")
    rig.publish("d", "e")
    consumer.start(1, 3)
    rig.hand_over()
    other = rig.subscribe()
    assert other.bodies == []
    assert (rig.stats.leased, rig.stats.reserved, rig.stats.blocked) == (2, 1, 2)
    again = back(rig, consumer)
    assert again.resume(1, 2, 3) == []
    assert again.start(2).lost == []
    assert again.ack(1, 2).lost == []
    assert again.bodies == []
    assert other.bodies == ["b"], "its key is free"
    assert [entry.attempts for entry in again.sub.held.values()] == [1]


def test_leases_go_on_for_as_long_as_they_had_left() -> None:
    rig = Rig(PROMPT)
    consumer = rig.subscribe(explicit=True, lease_ms=10_000)
    rig.publish("a", "b")
    consumer.start(1)
    rig.wait(4_000)
    consumer.start(2)
    rig.hand_over(1_000)
    again = back(rig, consumer)
    assert again.resume(1, 2) == []
    assert [entry.deadline - rig.now for entry in again.sub.held.values()] == [5_000, 9_000]
    rig.wait(5_001)
    assert flat(rig.lost) == [1]


def test_the_wall_clocks_of_owners_need_not_agree() -> None:
    rig = Rig(PROMPT)
    consumer = rig.subscribe(lease_ms=10_000)
    rig.publish("a")
    snapshot = take_snapshot(rig.shard, rig.now)
    rig.offset += 3_600_000
    rig.snapshot = snapshot._replace(since=rig.wall)  # when it arrived
    rig.crash()
    again = back(rig, consumer)
    assert [entry.deadline - rig.now for entry in again.sub.held.values()] == [10_000]


def test_only_the_next_owner_takes_it() -> None:
    rig = Rig(PROMPT)
    consumer = rig.subscribe()
    rig.publish("a")
    rig.snapshot = take_snapshot(rig.shard, rig.now)
    snapshot, rig.snapshot = rig.snapshot, None
    rig.crash()  # somebody served in between …
    other = rig.subscribe()
    assert other.bodies == ["a"]
    rig.snapshot = snapshot
    rig.crash(wipe=True)
    assert consumer.sub.prefix not in rig.shard.consumers.subscriptions
    assert rig.stats.ready == 1


def test_it_says_more_than_a_lease_cache() -> None:
    rig = Rig(PROMPT, cached=True)
    consumer = rig.subscribe()
    rig.publish("a")
    rig.snapshot = take_snapshot(rig.shard, rig.now)
    del rig.cache[consumer.sub.prefix, 1]
    rig.crash()
    assert rig.stats.leased == 1
    assert (consumer.sub.prefix, 1) in rig.cache, "the cache is told again"


def test_what_was_acked_is_a_duplicate_there_too() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a", "b")
    consumer.ack(1)
    rig.hand_over()
    again = back(rig, consumer)
    assert again.resume(1, 2) == [], "it may not have heard that it acked it"
    assert flat(again.ack(1).duplicate) == [1]


def test_what_somebody_else_acked_is_lost_there_too() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a", "b", "c")
    consumer.ack(1)
    rig.hand_over()
    back(rig, consumer).ack(2, generation=ANYBODY)
    rig.hand_over()
    again = back(rig, consumer)
    assert flat(again.resume(1, 2, 3)) == [2]


def test_who_holds_nothing_is_still_known_by_what_it_acked() -> None:
    rig = Rig()
    consumer, idle = rig.subscribe(), rig.subscribe(2)
    rig.publish("a")
    consumer.ack(1)
    rig.hand_over()
    assert idle.sub.prefix not in rig.shard.consumers.subscriptions, "there is nothing to know"
    again = back(rig, consumer)
    assert again.resume() == []
    again.credit(5)
    rig.publish("b")
    assert again.bodies == ["b"]
    assert again.numbers[0] > 1 << 32, "no number is used twice"


def test_nobody_is_waited_for_for_ever() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    consumer.ack(1)
    rig.hand_over()
    rig.wait(rig.shard.bounds.adopt_ms - 1)
    assert rig.stats.subscriptions == 1
    rig.wait(1)
    assert rig.stats.subscriptions == 0


def test_permits_in_backoff_stay_there() -> None:
    rig = Rig(QueueConfig(consumer_backoff_base_ms=8_000, backoff_base_ms=1))
    consumer = rig.subscribe(1)
    rig.publish("a")
    consumer.nack(1)
    rig.hand_over(1_000)
    again = back(rig, consumer)
    assert (again.sub.failures, again.sub.waiting) == (1, 1)
    again.resume()
    again.credit(1)
    rig.wait(2_999)
    assert again.bodies == []
    rig.wait(1)
    assert again.bodies == ["a"]


def test_a_session_that_was_away_may_come_for_as_long_as_before() -> None:
    rig = Rig(PROMPT)
    consumer = rig.subscribe(explicit=True, lease_ms=60_000)
    rig.publish("a", "b")
    consumer.start(1)
    consumer.detach(30_000)
    rig.wait(10_000)
    rig.hand_over(1_000)
    other = rig.subscribe()
    rig.wait(18_999)
    assert other.bodies == []
    rig.wait(1)
    assert {got.body: (got.attempt, got.deliveries) for got in other.inbox} == {
        "a": (2, 0),
        "b": (1, 1),
    }, "its connection broke, and it did not come back"


def test_a_session_that_came_back_while_there_was_no_owner_goes_on() -> None:
    rig = Rig(PROMPT)
    consumer = rig.subscribe(explicit=True, lease_ms=60_000)
    rig.publish("a", "b")
    consumer.start(1)
    consumer.detach(2_000)
    rig.hand_over(3_000)
    other = rig.subscribe()
    rig.wait(rig.shard.bounds.adopt_ms - 1)
    assert other.bodies == []
    again = back(rig, consumer)
    assert again.resume(1, 2) == []
    assert again.ack(1, 2).lost == []
    rig.wait(10_000)
    assert other.bodies == []


def test_a_session_that_did_not_come_since_the_last_move_may_still_come() -> None:
    rig = Rig(PROMPT)
    rig.subscribe(explicit=True)
    rig.publish("a")
    rig.hand_over()
    rig.wait(3_000)
    rig.hand_over()
    other = rig.subscribe()
    rig.wait(rig.shard.bounds.adopt_ms - 1)
    assert other.bodies == []
    rig.wait(1)
    assert [(got.body, got.deliveries) for got in other.inbox] == [("a", 0)]


def test_an_older_gateway_has_no_say_there() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    consumer.sub.term = 3
    rig.publish("a")
    rig.hand_over()
    assert back(rig, consumer).sub.term == 3


def test_what_a_request_received_can_be_settled_there() -> None:
    rig = Rig()
    consumer = rig.subscribe(session=REQUEST + "somebody", explicit=True)
    rig.publish("a", "b")
    consumer.start(1)
    consumer.unsubscribe()
    rig.hand_over()
    again = back(rig, consumer)
    assert again.sub.closed
    assert again.ack(1).lost == []
    assert consumer.sub.prefix not in rig.shard.consumers.subscriptions


def test_where_there_is_no_place_for_more_subscriptions_the_shard_opens_all_the_same() -> None:
    rig = Rig(bounds=Bounds(subscriptions=2))
    consumers = [rig.subscribe(1), rig.subscribe(1)]
    rig.publish("a", "b")
    for consumer in consumers:
        consumer.ack(1)
    rig.bounds = Bounds(subscriptions=1)
    rig.hand_over()
    assert list(rig.shard.consumers.subscriptions) == [consumers[0].sub.prefix]


def test_the_log_has_the_last_word() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a", "b")
    snapshot = take_snapshot(rig.shard, rig.now)
    consumer.ack(1)
    rig.snapshot = snapshot
    rig.crash()
    again = back(rig, consumer)
    assert list(again.sub.held) == [2]
