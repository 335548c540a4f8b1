"""Idle consumers: see test_consumers for the contract; here are the corners."""

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Settle
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.harness import Rig


def test_the_longest_prefetch_is_halved() -> None:
    rig = Rig()
    short = rig.subscribe(2, explicit=True)
    rig.publish("a", "b")
    long = rig.subscribe(4, explicit=True)
    rig.publish("c", "d", "e", "f")
    idle = rig.subscribe()
    rig.wait(1_000)
    assert idle.bodies == ["e", "f"]
    assert (len(short.sub.held), len(long.sub.held)) == (2, 2)


def test_an_idle_one_gets_no_more_than_its_credit() -> None:
    rig = Rig()
    rig.subscribe(10, explicit=True)
    rig.publish(*"abcdef")
    idle = rig.subscribe(1)
    rig.wait(1_000)
    assert idle.bodies == ["f"]


def test_of_several_idle_ones_that_with_the_most_credit_gets_it() -> None:
    rig = Rig()
    rig.subscribe(4, explicit=True)
    rig.publish("a", "b")
    small, large = rig.subscribe(1, explicit=True), rig.subscribe(3, explicit=True)
    rig.wait(1_000)
    assert (small.bodies, large.bodies) == ([], ["b"])
    rig.wait(1_000)
    assert small.bodies == ["b"] or small.bodies == ["a"], "then the next one's turn comes"


def test_without_anything_reserved_nobody_is_woken() -> None:
    rig = Rig(bounds=Bounds(bucket_ms=10**9))
    rig.subscribe()
    assert rig.shard.wake_at() is None
    rig.wait(5_000)


def test_when_all_are_busy_nobody_is_robbed() -> None:
    rig = Rig()
    one = rig.subscribe(1, explicit=True)
    rig.publish("a")
    rig.wait(10_000)
    assert (one.bodies, rig.shard.consumers.idle.since) == (["a"], None)


def test_a_key_stays_in_order_when_its_head_is_taken_back() -> None:
    rig = Rig()
    rig.subscribe(explicit=True)
    rig.publish("a", "b", key="k")
    idle = rig.subscribe()
    rig.wait(1_000)
    assert idle.bodies == ["a"]
    idle.ack(1)
    assert idle.sub.held == {} or idle.bodies == ["a", "b"]


def test_what_expired_meanwhile_is_not_granted() -> None:
    rig = Rig(dead_letter=None)
    rig.subscribe(explicit=True)
    rig.publish("a", expires_at=rig.wall + 500)
    idle = rig.subscribe()
    rig.wait(1_000)
    assert (idle.bodies, rig.stats.expired) == ([], 1)


def test_what_has_to_be_read_again_goes_by_credit() -> None:
    rig = Rig(bounds=Bounds(window_messages=1))
    greedy = rig.subscribe(1, explicit=True)
    rig.publish("a")
    assert rig.shard.window.resident == 0
    idle = rig.subscribe(1)
    rig.wait(1_000)
    assert greedy.bodies + idle.bodies == ["a", "a"]


def test_an_idle_one_that_got_work_meanwhile_gets_only_what_fits() -> None:
    rig = Rig()
    greedy = rig.subscribe(2, explicit=True)
    rig.publish("a", "b")
    idle = rig.subscribe(1)
    rig.hold = {Settle}
    rig.wait(1_000)
    greedy.credit(0)
    rig.publish("new")
    assert idle.bodies == ["new"]
    rig.hold = set()
    rig.finish()
    assert idle.bodies == ["new"]
    assert rig.stats.ready == 1


def test_several_lanes_may_be_taken_back_together() -> None:
    rig = Rig()
    greedy = rig.subscribe(10, explicit=True)
    rig.publish("a", lane=9)
    rig.publish("b", lane=1)
    rig.publish("c", lane=1)
    idle = rig.subscribe(10)
    rig.wait(1_000)
    assert sorted(idle.bodies) == ["b", "c"]
    assert len(greedy.sub.held) == 1


def test_taking_back_counts_as_a_delivery_and_so_has_an_end() -> None:
    rig = Rig(QueueConfig(max_deliveries=1))
    rig.subscribe(explicit=True)
    rig.publish("a")
    idle = rig.subscribe()
    rig.wait(1_000)
    assert idle.bodies == []
    assert rig.stats.dead == 1
