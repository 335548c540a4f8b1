"""A shard as a whole: pausing, configuring, buckets, purges, and when it wants to be woken."""

import gc

import pytest

from pushlane_dispatcher.core.bounds import TRANSFER_WINDOW_MS, Bounds
from pushlane_dispatcher.core.effects import Append, Settle, Transfer
from pushlane_dispatcher.core.lane import Lane
from pushlane_dispatcher.core.recovered import Recovered
from pushlane_dispatcher.core.shard import Moment, Setup, Shard
from pushlane_storage.bucket import CONTROL
from pushlane_storage.message import TRANSFER
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.harness import OFFSET, Rig

QUIET = Bounds(bucket_ms=10**9)
"""No bucket asks to be rolled."""


def test_effects_are_handed_over_once() -> None:
    rig = Rig()
    rig.shard.publish([rig.message("a")], rig.now)
    (append,) = rig.shard.effects(rig.now)
    assert isinstance(append, Append)
    assert rig.shard.effects(rig.now) == []


def test_a_shard_has_bounds_of_its_own() -> None:
    rig = Rig()
    shard = Shard(
        Setup(rig.key, "q", QueueConfig(), None, 1, lambda: 0.5), Recovered(), Moment(0, OFFSET)
    )
    assert shard.bounds == Bounds()


# Pause


def test_a_paused_queue_grants_nothing_and_does_all_else() -> None:
    rig = Rig()
    consumer = rig.subscribe(lease_ms=1_000)
    rig.publish("a", "b")
    rig.configure(paused=True)
    rig.publish("c")
    assert consumer.take() == ["a", "b"]
    assert consumer.ack(1).lost == []
    rig.wait(10_000)
    assert rig.stats.ready == 2
    rig.configure(paused=False)
    assert sorted(consumer.take()) == ["b", "c"]


def test_a_paused_queue_sends_again_what_a_resuming_client_did_not_get() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    rig.configure(paused=True)
    consumer.detach()
    consumer.resume()
    assert consumer.bodies == ["a", "a"]


# Purge


def test_a_purge_spares_what_is_in_flight() -> None:
    rig = Rig(QueueConfig(max_attempts=99))
    consumer = rig.subscribe(4, explicit=True)
    ticket = rig.publish(*"abcdef")
    consumer.start(1, 2, 3)
    consumer.credit(0)
    consumer.nack(3, delay_ms=60_000)
    rig.publish("later", not_before=rig.wall + 5_000)
    rig.publish("head", "blocked", key="k")
    done = rig.purge()
    assert done in rig.done
    assert (rig.stats.leased, rig.stats.reserved, rig.stats.stored) == (2, 1, 3)
    assert rig.stats.purged == 6
    assert rig.state(ticket.seqs[2]) == "purged"
    assert consumer.ack(1, 2, 4).lost == []
    rig.wait(100_000)
    assert rig.stats.stored == 0


def test_a_purge_is_answered_when_it_is_durable() -> None:
    rig = Rig()
    rig.publish("a")
    rig.hold = {Settle}
    ticket = rig.purge()
    assert rig.done == []
    rig.finish()
    assert rig.done == [ticket]


def test_what_is_published_after_a_purge_stays() -> None:
    rig = Rig()
    rig.publish("a")
    rig.hold = {Append}
    rig.publish("under way")
    rig.hold = {Append, Settle}
    rig.purge()
    rig.publish("b")
    rig.hold = set()
    rig.finish()
    assert rig.subscribe().bodies == ["under way", "b"]


def test_a_spared_message_that_comes_back_is_delivered_again() -> None:
    rig = Rig()
    consumer = rig.subscribe(1)
    rig.publish("a", "b")
    rig.purge()
    consumer.nack(1, delay_ms=0)
    assert consumer.bodies == ["a", "a"]


def test_a_purge_does_not_stop_what_leaves() -> None:
    rig = Rig()
    rig.hold = {Transfer}
    consumer = rig.subscribe()
    rig.publish("a")
    consumer.nack(1, dead=True)
    rig.purge()
    rig.hold = set()
    rig.finish()
    assert [transfer.message.body for transfer in rig.transfers] == [b"a"]
    assert (rig.stats.dead, rig.stats.purged) == (1, 0)


def test_a_purge_drains_buckets() -> None:
    rig = Rig(bounds=Bounds(bucket_messages=2))
    for body in "abcde":
        rig.publish(body)
    rig.purge()
    assert [bucket.drained for bucket in rig.buckets()] == [True, True, False]


# Buckets


def test_a_drained_bucket_is_dropped_when_nobody_needs_its_marks() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=5_000), Bounds(bucket_ms=1_000))
    consumer = rig.subscribe()
    rig.publish("a", dedup="d")
    consumer.ack(1)
    rig.wait(999)
    assert rig.marks == []
    rig.wait(1)
    assert [(mark.closed, mark.drained) for mark in rig.marks] == [(True, False), (True, True)]
    rig.wait(3_999)
    assert rig.drops == []
    rig.wait(1)
    assert rig.buckets() == []


def test_a_bucket_that_drains_late_is_dropped_at_once() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=5_000), Bounds(bucket_ms=1_000))
    consumer = rig.subscribe(lease_ms=10**6)
    rig.publish("a", dedup="d")
    rig.wait(8_000)
    consumer.ack(1)
    rig.wait(0)
    assert len(rig.drops) == 1


def test_a_bucket_with_transfers_is_kept_for_a_day() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=5_000), Bounds(bucket_ms=1_000))
    consumer = rig.subscribe()
    rig.publish("a", dedup=TRANSFER + "x")
    consumer.ack(1)
    rig.wait(TRANSFER_WINDOW_MS - 1)
    assert rig.drops == []
    rig.wait(1)
    assert len(rig.drops) == 1


def test_buckets_are_dropped_in_the_order_of_their_times() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=10_000), Bounds(bucket_ms=1_000, bucket_messages=1))
    consumer = rig.subscribe(lease_ms=10**6)
    rig.publish("a", dedup=TRANSFER + "x")
    rig.publish("b")
    rig.wait(1_000)
    consumer.ack(1, 2)
    rig.wait(10_000)
    assert [drop.key.start for drop in rig.drops] == [OFFSET + 1]


def test_an_empty_bucket_does_not_roll_before_it_is_used() -> None:
    rig = Rig(bounds=Bounds(bucket_ms=1_000))
    rig.wait(10_000)
    assert rig.buckets() == []


# When to wake


def test_an_idle_shard_sleeps() -> None:
    rig = Rig(bounds=QUIET)
    assert rig.shard.wake_at() is None
    consumer = rig.subscribe()
    assert rig.shard.wake_at() is None
    rig.publish("a")
    consumer.ack(1)
    assert rig.shard.wake_at() in (30_000, QUIET.bucket_ms)


@pytest.mark.parametrize("lane", [None, 9])
def test_it_wakes_for_whatever_runs_out(lane: int | None) -> None:
    rig = Rig(bounds=QUIET)
    rig.publish("expires", lane=lane, expires_at=rig.wall + 900_000)
    assert rig.shard.wake_at() == 900_000
    rig.publish("delayed", lane=lane, not_before=rig.wall + 50_000)
    assert rig.shard.wake_at() == 50_000
    consumer = rig.subscribe(1, explicit=True, lease_ms=40_000)
    assert rig.shard.wake_at() == 50_000
    consumer.start(1)
    assert rig.shard.wake_at() == 40_000
    consumer.detach(30_000)
    assert rig.shard.wake_at() == 30_000
    rig.refusing = True
    consumer.resume(1)
    rig.tick()
    consumer.nack(1, dead=True)
    assert rig.shard.wake_at() == 1_000


def test_it_wakes_for_a_bucket_to_roll_and_one_to_drop() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=9_000), Bounds(bucket_ms=5_000))
    consumer = rig.subscribe(lease_ms=10**6)
    rig.publish("a")
    consumer.ack(1)
    assert rig.shard.wake_at() == 5_000
    rig.now = 5_000
    rig.tick()
    assert rig.shard.wake_at() == 9_000


def test_it_does_not_ask_to_roll_a_bucket_with_a_flush_under_way() -> None:
    rig = Rig(bounds=Bounds(bucket_ms=5_000))
    rig.hold = {Append}
    rig.publish("a")
    assert rig.shard.wake_at() is None
    rig.wait(6_000)
    rig.hold = set()
    rig.finish()
    assert rig.shard.wake_at() == 5_000


def test_it_wakes_for_the_schedule_index() -> None:
    rig = Rig(bounds=Bounds(bucket_ms=10**9, horizon_ms=10_000))
    rig.publish("far", not_before=rig.wall + 50_000)
    assert rig.shard.wake_at() == 5_000


def test_wall_time_that_goes_faster_moves_the_waking() -> None:
    rig = Rig(bounds=QUIET)
    rig.publish("a", not_before=rig.wall + 50_000)
    rig.offset += 20_000
    rig.tick()
    assert rig.shard.wake_at() == 30_000


# The end


def test_a_shard_that_is_over_leaves_nothing_in_memory() -> None:
    def live() -> int:
        gc.collect()
        return sum(type(found) is Lane for found in gc.get_objects())

    before = live()
    rig = Rig()
    consumer = rig.subscribe(2)
    rig.publish(*"abcd")
    consumer.nack(1, delay_ms=0)
    rig.publish("later", not_before=rig.wall + 5_000)
    assert live() > before
    rig.shard.dispose()
    del rig, consumer
    assert live() == before


# Purges


def test_only_the_last_purge_is_kept() -> None:
    rig = Rig()
    consumer = rig.subscribe(1)
    rig.publish("held")
    for _ in range(5):
        rig.publish("a", "b")
        rig.purge()
    assert len(rig.tables.settlements(rig.key, CONTROL)) == 1
    rig.crash(wipe=True)
    rig.publish("c")
    rig.purge()
    (row,) = rig.tables.settlements(rig.key, CONTROL)
    assert row.owner == rig.epoch
    assert rig.stats.stored == 0
    assert consumer.bodies == ["held"]
    rig.crash(wipe=True)
    assert rig.subscribe(9).bodies == []


def test_a_purge_that_was_not_written_lets_the_others_be() -> None:
    rig = Rig()
    rig.publish("a")
    rig.purge()
    rig.publish("b")
    rig.hold = {Settle}
    rig.purge()
    rig.hold = set()
    rig.crash()
    assert len(rig.tables.settlements(rig.key, CONTROL)) == 1
    assert rig.subscribe(9).bodies == ["b"]


def test_an_owner_that_may_not_grant_does_everything_else() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    rig.shard.granting = False
    rig.publish("b")
    rig.shard.configure(rig.config, None)
    rig.wait(20_000)
    assert consumer.ack(1).lost == []
    assert (consumer.bodies, rig.stats.ready) == (["a"], 1)
    rig.shard.granting = True
    rig.run()
    assert consumer.bodies == ["a", "b"]
