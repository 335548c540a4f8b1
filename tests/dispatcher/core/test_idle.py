"""Idle consumers: what another one only reserved goes to who has nothing to do."""

import pytest

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Settle
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.consumer import flat
from tests.dispatcher.core.harness import Rig


def test_an_idle_consumer_gets_what_another_one_only_reserved() -> None:
    rig = Rig()
    greedy = rig.subscribe(explicit=True)
    rig.publish(*"abcd")
    greedy.start(1)
    idle = rig.subscribe(explicit=True)
    rig.wait(999)
    assert idle.bodies == []
    rig.wait(1)
    assert len(idle.inbox) == 2, "half of what is only reserved"
    assert rig.lost == [(greedy.sub.prefix, 3, 4)]
    assert idle.bodies == ["c", "d"], "the last ones: those are the farthest from being started"
    assert [got.deliveries for got in idle.inbox] == [0, 0]
    assert flat(greedy.ack(1, 2, 3).lost) == [3]


def test_also_when_the_other_one_has_more_free_permits() -> None:
    rig = Rig()
    greedy = rig.subscribe(1_000, explicit=True)
    rig.publish(*"abcd")
    idle = rig.subscribe(2)
    rig.wait(1_000)
    assert len(idle.inbox) == 2
    rig.wait(60_000)
    assert len(greedy.sub.held) == 2
    assert rig.stats.dead == 0


def test_what_was_taken_back_does_not_wait() -> None:
    rig = Rig()
    greedy = rig.subscribe(1, explicit=True)
    rig.publish("a")
    greedy.start(1)
    greedy.nack(1, delay_ms=0)
    assert greedy.inbox[-1].attempt == 2
    idle = rig.subscribe(explicit=True)
    rig.wait(1_000)
    assert idle.bodies == ["a"]


def test_nobody_is_robbed_by_a_consumer_that_has_work() -> None:
    rig = Rig()
    one = rig.subscribe(2, explicit=True)
    rig.publish("a", "b")
    busy = rig.subscribe(5, explicit=True)
    rig.publish("c")
    busy.start(1)
    rig.wait(60_000 // 4)
    assert (one.bodies, busy.bodies) == (["a", "b"], ["c"])


def test_nobody_robs_itself() -> None:
    rig = Rig()
    alone = rig.subscribe(explicit=True)
    rig.publish("a")
    rig.wait(10_000)
    assert alone.bodies == ["a"]


def test_nothing_is_taken_from_who_is_away() -> None:
    rig = Rig()
    away = rig.subscribe(explicit=True)
    rig.publish("a")
    away.detach(30_000)
    idle = rig.subscribe()
    rig.wait(20_000)
    assert idle.bodies == []
    assert away.resume(1) == []


def test_what_is_started_is_not_taken() -> None:
    rig = Rig()
    working = rig.subscribe(explicit=True)
    rig.publish("a")
    working.start(1)
    idle = rig.subscribe()
    rig.wait(20_000)
    assert idle.bodies == []


def test_who_got_something_lately_is_not_idle() -> None:
    rig = Rig()
    greedy = rig.subscribe(2, explicit=True)
    rig.publish("a", "b")
    quick = rig.subscribe(5)
    for number in range(1, 5):
        rig.wait(700)
        rig.publish("x")
        quick.ack(number)
    assert quick.bodies == ["x"] * 4
    assert greedy.bodies == ["a", "b"]
    rig.wait(1_000)
    assert quick.bodies == ["x"] * 4 + ["b"]


def test_nothing_is_taken_back_in_a_paused_queue() -> None:
    rig = Rig()
    greedy = rig.subscribe(explicit=True)
    rig.publish("a")
    rig.subscribe()
    rig.configure(paused=True)
    rig.wait(20_000)
    assert (rig.lost, rig.stats.reserved) == ([], 1)
    assert greedy.ack(1).lost == []


def test_an_idle_consumer_without_acks_gets_it_too() -> None:
    rig = Rig()
    rig.subscribe(explicit=True)
    rig.publish("a")
    idle = rig.subscribe(ack_none=True)
    rig.wait(1_000)
    assert idle.bodies == ["a"]


def test_an_idle_consumer_that_went_leaves_it_to_the_others() -> None:
    rig = Rig()
    greedy = rig.subscribe(explicit=True)
    rig.publish("a")
    idle = rig.subscribe()
    rig.hold = {Settle}
    rig.wait(1_000)
    idle.end()
    rig.hold = set()
    rig.finish()
    assert (greedy.bodies, idle.bodies) == (["a", "a"], [])


# The corners


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
    assert small.bodies == ["a"], "then the next one's turn comes"


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
    greedy = rig.subscribe(explicit=True)
    rig.publish("a", "b", key="k")
    idle = rig.subscribe()
    rig.wait(1_000)
    assert (greedy.take(), idle.take()) == (["a"], ["a"])
    idle.ack(1)
    assert greedy.bodies + idle.bodies == ["b"]


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
    assert rig.shard.window.bodies.resident == 0
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


def test_an_idle_one_that_lowered_its_credit_meanwhile_gets_nothing() -> None:
    rig = Rig()
    greedy = rig.subscribe(4, explicit=True)
    rig.publish(*"abcd")
    idle = rig.subscribe(3)
    rig.hold = {Settle}
    rig.wait(1_000)
    rig.publish("new")
    greedy.credit(0)
    idle.credit(0)
    assert idle.bodies == ["new"]
    rig.hold = set()
    rig.finish()
    assert (idle.bodies, rig.stats.ready) == (["new"], 2)


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


# Who lets things lie


def test_two_that_never_start_do_not_pass_a_message_back_and_forth() -> None:
    rig = Rig(QueueConfig(max_deliveries=1))
    one = rig.subscribe(explicit=True)
    rig.publish("a")
    two = rig.subscribe(explicit=True)
    rig.wait(200_000)
    assert (one.bodies, two.bodies) == (["a"], ["a"])
    worker = rig.subscribe(explicit=True)
    rig.wait(1_000)
    assert worker.bodies == ["a"], "somebody who may take it up gets it"
    rig.wait(298_000)
    assert (one.bodies, two.bodies) == (["a"], ["a"])
    rig.wait(10_000)
    assert len(rig.lost) == 3, "then its time is over"
    assert rig.stats.dead == 0


@pytest.mark.parametrize("act", ["start", "ack"])
def test_who_starts_or_settles_something_gets_what_others_reserved_again(act: str) -> None:
    rig = Rig(QueueConfig(backoff_base_ms=100_000))
    lazy = rig.subscribe(1, explicit=True, lease_ms=2_000)
    rig.publish("a")
    hoarder = rig.subscribe(8, explicit=True)
    rig.wait(1_000)
    assert (lazy.take(), hoarder.take()) == (["a"], ["a"])
    hoarder.credit(0)
    rig.publish("b")
    assert lazy.take() == ["b"]
    if act == "start":
        lazy.start(2)  # and its lease runs out
        rig.wait(4_000)
    else:
        lazy.ack(2)
        rig.wait(1_000)
    assert lazy.take() == ["a"]
