"""What a shard does while its clock can't be trusted: nothing that it could not undo."""

from typing import Any

from pushlane_dispatcher.core.bounds import CLOCK_TOLERANCE_MS, Bounds
from pushlane_storage.message import TRANSFER
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.harness import Rig

HOUR = 3_600_000
BUCKETS = Bounds(bucket_ms=1_000)


def doubt(rig: Rig, doubted: bool = True) -> None:
    rig.doubted = doubted
    rig.tick()


def repeats(rig: Rig, **fields: Any) -> bool:
    return bool(rig.publish("again", **fields).duplicates)


# Expiry


def test_what_it_stored_itself_expires_in_its_own_time() -> None:
    rig = Rig(dead_letter=None)
    rig.publish("a", expires_at=rig.wall + 1_000)
    doubt(rig)
    rig.wait(999)
    assert rig.stats.expired == 0
    rig.wait(1)
    assert rig.stats.expired == 1


def test_what_a_predecessor_stored_does_not_expire() -> None:
    rig = Rig(dead_letter=None)
    rig.publish("a", expires_at=rig.wall + 1_000)
    rig.publish("b", expires_at=rig.wall + 2_000)
    rig.crash()
    doubt(rig)
    rig.wait(5_000)
    assert rig.stats.expired == 0
    assert rig.subscribe(1).bodies == ["a"], "and it is delivered"


def test_nor_does_it_when_the_doubt_is_there_from_the_start() -> None:
    rig = Rig(dead_letter=None)
    rig.publish("a", expires_at=rig.wall + 1_000)
    rig.doubted = True
    rig.offset += HOUR
    rig.crash()
    assert rig.shard.clock_suspect
    rig.wait(5_000)
    assert rig.subscribe().bodies == ["a"]


def test_it_expires_when_the_clock_is_trusted_again() -> None:
    rig = Rig(dead_letter=None)
    rig.publish("a", expires_at=rig.wall + 1_000)
    rig.crash()
    doubt(rig)
    rig.publish("b", expires_at=rig.wall + HOUR)
    rig.wait(5_000)
    assert rig.stats.expired == 0
    doubt(rig, doubted=False)
    assert (rig.stats.expired, rig.stats.ready) == (1, 1)


def test_a_promise_to_an_idle_consumer_holds_for_what_does_not_expire() -> None:
    rig = Rig(dead_letter=None)
    rig.publish("a", "b", expires_at=rig.wall + 500)
    rig.crash()
    first = rig.subscribe(2, explicit=True)
    assert first.bodies == ["a", "b"]
    doubt(rig)
    second = rig.subscribe(2, explicit=True)
    rig.wait(2_000)
    assert second.bodies == ["b"]


# Delays


def test_delays_and_retries_are_over_in_time() -> None:
    rig = Rig(dead_letter=None)
    consumer = rig.subscribe()
    rig.publish("a", not_before=rig.wall + 1_000)
    doubt(rig)
    rig.wait(1_000)
    consumer.nack(1, delay_ms=1_000)
    rig.wait(1_000)
    assert consumer.bodies == ["a", "a"]


# Retention and drops


def test_nothing_is_past_its_retention() -> None:
    rig = Rig(QueueConfig(retention_ms=10_000), BUCKETS, dead_letter=None)
    rig.publish("a")
    doubt(rig)
    rig.wait(60_000)
    assert rig.stats.expired == 0
    doubt(rig, doubted=False)
    rig.wait(1_000)
    assert rig.stats.expired == 1


def test_no_bucket_is_dropped() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=5_000), BUCKETS)
    consumer = rig.subscribe()
    rig.publish("a", dedup="d")
    doubt(rig)
    consumer.ack(1)
    rig.wait(60_000)
    assert rig.drops == [], "its id would be forgotten by the next owner"
    doubt(rig, doubted=False)
    assert len(rig.drops) == 1


# Dedup


def test_a_successor_keeps_all_marks() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=300_000), BUCKETS)
    rig.publish("a", dedup="d")
    rig.publish("b", dedup=TRANSFER + "x")
    rig.publish("c", producer="p", producer_seq=7)
    rig.wait(2_000)
    rig.offset += 30 * 24 * HOUR
    rig.doubted = True
    rig.crash()
    assert repeats(rig, dedup="d")
    assert repeats(rig, dedup=TRANSFER + "x")
    assert repeats(rig, producer="p", producer_seq=7)
    rig.wait(299_999)
    assert repeats(rig, dedup="d")
    rig.wait(1)
    assert not repeats(rig, dedup="d"), "its window began anew, and is over"


def test_a_successor_that_trusts_its_clock_does_not() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=300_000), BUCKETS)
    rig.publish("a", dedup="d")
    rig.wait(2_000)
    rig.offset += HOUR
    rig.crash()
    assert not repeats(rig, dedup="d")


# What was stored in the future


def test_a_message_from_the_future_shows_that_a_clock_is_wrong() -> None:
    rig = Rig(QueueConfig(retention_ms=10_000), BUCKETS, dead_letter=None)
    rig.publish("a", expires_at=rig.wall + 1_000)
    rig.offset -= HOUR
    rig.crash()
    assert rig.shard.clock_suspect
    rig.wait(HOUR - CLOCK_TOLERANCE_MS - 1)
    assert rig.shard.clock_suspect
    rig.wait(1)
    rig.wait(2 * CLOCK_TOLERANCE_MS)
    assert rig.stats.expired == 1


def test_so_does_one_that_has_ended() -> None:
    rig = Rig(bounds=BUCKETS)
    consumer = rig.subscribe()
    rig.publish("a", dedup="d")
    consumer.ack(1)
    rig.wait(1_000)
    rig.offset -= HOUR
    rig.crash()
    assert rig.shard.clock_suspect


def test_less_than_a_minute_shows_nothing() -> None:
    rig = Rig()
    rig.publish("a")
    rig.offset -= CLOCK_TOLERANCE_MS
    rig.crash()
    assert not rig.shard.clock_suspect
    rig.offset -= 1
    rig.crash()
    assert rig.shard.clock_suspect


def test_a_lease_of_the_future_is_not_held_for_longer_than_a_lease() -> None:
    rig = Rig(cached=True)
    rig.subscribe(lease_ms=30_000)
    rig.publish("a")
    rig.offset -= HOUR
    rig.crash()
    assert rig.stats.leased == 1
    rig.wait(40_000)
    assert rig.subscribe().bodies == ["a"]
