"""Retention: what nobody took for too long ends, but for what somebody holds."""

from typing import Any

import msgspec

from pushlane_dispatcher.core.bounds import CLOCK_TOLERANCE_MS, Bounds
from pushlane_dispatcher.core.effects import Page, Settle
from pushlane_storage.queue import QueueConfig
from pushlane_storage.settlement import fold
from tests.dispatcher.core.harness import LANE, Rig

KEPT_MS = 60_000
HOUR = 3_600_000


def make_rig(**bounds: int) -> Rig:
    """Each message is a bucket of its own, closed with the next one or the next tick."""
    config = QueueConfig(retention_ms=KEPT_MS, dedup_window_ms=10 * HOUR)
    return Rig(config, Bounds(**{"bucket_messages": 1, "drained_buckets": 100, **bounds}))


def fill(rig: Rig, *bodies: str, **fields: Any) -> list[int]:
    return [rig.publish(body, **fields).seqs[0] for body in bodies]


def state(rig: Rig, seq: int) -> str:
    """Also of what is no longer in memory."""
    found = rig.state(seq)
    for bucket in rig.buckets():
        if found == "unknown" and bucket.first <= seq < bucket.first + bucket.count:
            found = fold(rig.tables.settlements(rig.key, bucket.key)).cause_of(seq) or found
    return found


def test_whole_buckets_expire_when_their_newest_message_is_too_old() -> None:
    rig = make_rig()
    first = rig.publish("a").seqs[0]
    rig.wait(1_000)
    (second,) = fill(rig, "b")
    rig.wait(KEPT_MS - 1_001)
    assert state(rig, first) == "ready"
    rig.wait(1)
    assert (state(rig, first), state(rig, second)) == ("expired", "ready")
    rig.wait(1_000)
    assert state(rig, second) == "expired"
    assert rig.transfers == []
    assert [bucket.drained for bucket in rig.buckets()] == [True, True]
    assert (rig.subscribe().bodies, rig.shard.retention.next_at) == ([], None)


def test_an_open_bucket_is_left_alone() -> None:
    rig = make_rig(bucket_messages=100, bucket_ms=10 * HOUR)
    (seq,) = rig.publish("a").seqs
    rig.wait(HOUR)
    assert state(rig, seq) == "ready"


def test_what_is_in_flight_is_decided_when_it_comes_back() -> None:
    rig = make_rig(retention_sweep_ms=5_000)
    consumer = rig.subscribe(credit=1, lease_ms=HOUR)
    seqs = fill(rig, "a", "b")
    rig.wait(KEPT_MS + 1_000)
    assert [state(rig, seq) for seq in seqs] == ["leased", "expired"]
    consumer.nack(*consumer.numbers, delay_ms=HOUR)
    assert state(rig, seqs[0]) == "retrying"
    rig.wait(5_000)
    assert state(rig, seqs[0]) == "expired"
    rig.wait(HOUR)
    assert state(rig, seqs[0]) == "expired"


def test_what_waits_for_its_time_or_its_key_expires_too() -> None:
    rig = make_rig(horizon_ms=1_000)
    consumer = rig.subscribe(credit=1, lease_ms=HOUR)
    head, blocked = fill(rig, "a", "b", key="k")
    (near,) = fill(rig, "near", not_before=rig.wall + KEPT_MS + 500)
    (far,) = fill(rig, "far", not_before=rig.wall + HOUR)
    assert rig.shard.window.far
    rig.wait(KEPT_MS + 100)
    assert [state(rig, seq) for seq in (head, blocked, near, far)] == ["leased", *["expired"] * 3]
    assert rig.shard.window.far == 0
    (after,) = rig.publish("c", key="k").seqs
    assert state(rig, after) == "blocked"
    consumer.ack(*consumer.numbers)
    assert state(rig, after) in ("ready", "leased")
    rig.wait(2 * HOUR)
    assert "b" not in consumer.bodies


def test_a_backlog_expires_without_being_read() -> None:
    rig = make_rig(bucket_messages=10, window_messages=2, segment_messages=1, page_messages=2)
    rig.publish(*(str(n) for n in range(35)))
    reads = len(rig.reads)
    rig.wait(KEPT_MS)
    assert (rig.stats.expired, rig.stats.stored) == (30, 5)
    assert len(rig.reads) <= reads + 3
    consumer = rig.subscribe(credit=100)
    assert consumer.bodies == [str(n) for n in range(30, 35)]


def test_no_more_than_so_many_at_once() -> None:
    rig = make_rig(bucket_messages=10, retention_messages=4)
    rig.hold = {Settle}
    rig.publish(*(str(n) for n in range(11)))
    rig.publish("last")
    rig.now += KEPT_MS
    ends = []
    for _ in range(3):
        rig.tick()
        rig.tick()
        (settle,) = rig.held(Settle)
        ends.append(sum(gone.high - gone.low + 1 for row in settle.rows for gone in row.gone))
        rig.finish(settle)
    assert ends == [4, 4, 3]


def test_nothing_comes_in_before_the_end_is_durable() -> None:
    """Else the second of a key could go out, and a crash bring the first one back behind it."""
    rig = make_rig(window_messages=1, page_messages=1, segment_messages=1)
    rig.publish("x")
    rig.publish("a", key="k")
    rig.wait(KEPT_MS // 2)
    rig.publish("b", key="k")
    rig.hold = {Settle}
    rig.wait(KEPT_MS // 2)
    consumer = rig.subscribe()
    assert (consumer.bodies, rig.held(Page)) == ([], [])
    rig.finish()
    assert consumer.bodies == ["b"]


def test_a_page_under_way_comes_first() -> None:
    rig = make_rig(window_messages=1, page_messages=1, segment_messages=1)
    rig.hold = {Page}
    fill(rig, "a", "b", "c")
    consumer = rig.subscribe(credit=1)
    consumer.ack(*consumer.numbers)
    (page,) = rig.held(Page)
    consumer.credit(0)
    rig.wait(KEPT_MS)
    assert rig.stats.expired == 0
    rig.hold = set()
    rig.finish(page)
    rig.wait(1)
    assert rig.stats.expired == 2


def test_a_crash_before_it_was_durable_brings_it_back_and_it_expires_again() -> None:
    rig = make_rig()
    (seq,) = fill(rig, "a")
    rig.hold = {Settle}
    rig.wait(KEPT_MS)
    rig.hold = set()
    rig.crash()
    assert state(rig, seq) == "ready"
    rig.wait(0)
    assert state(rig, seq) == "expired"
    rig.crash()
    assert rig.stats.stored == 0


def test_a_purge_of_the_same_messages() -> None:
    rig = make_rig()
    fill(rig, "a", "b")
    rig.hold = {Settle}
    rig.purge()
    rig.wait(KEPT_MS)
    rig.hold = set()
    rig.finish()
    assert (rig.stats.purged, rig.stats.expired, rig.stats.stored) == (2, 0, 0)


def test_clocks_that_disagree_end_nothing() -> None:
    rig = make_rig()
    (seq,) = fill(rig, "a")
    rig.offset += HOUR
    rig.wait(CLOCK_TOLERANCE_MS - 1_000)
    assert state(rig, seq) == "ready"
    rig.offset -= HOUR
    rig.wait(1_000)
    assert state(rig, seq) == "expired"


def test_another_retention() -> None:
    rig = make_rig()
    (seq,) = fill(rig, "a")
    rig.configure(retention_ms=HOUR)
    rig.wait(KEPT_MS)
    assert state(rig, seq) == "ready"
    rig.configure(retention_ms=KEPT_MS)
    rig.wait(0)
    assert state(rig, seq) == "expired"
    assert rig.shard.retention.next_at is None or rig.shard.retention.next_at > rig.wall


def test_messages_of_all_lanes() -> None:
    rig = make_rig()
    for lane in (2, LANE, 9):
        rig.publish("a", lane=lane)
    rig.wait(KEPT_MS)
    rig.wait(1)
    assert rig.stats.expired == 3


def test_drained_buckets_wait_for_the_archive() -> None:
    rig = make_rig(drained_buckets=0)
    rig.configure(archive="parquet", dedup_window_ms=0)
    fill(rig, "a", "b")
    rig.wait(10 * HOUR)
    assert rig.drops == []
    assert [bucket.drained for bucket in rig.buckets()] == [True, True]
    rig.crash()
    assert rig.drops == []
    rig.config = msgspec.structs.replace(rig.config, archive="none")
    rig.crash()
    assert len(rig.drops) == 2


def test_what_was_to_be_dropped_waits_when_an_archive_is_wanted() -> None:
    rig = make_rig()
    rig.configure(dedup_window_ms=HOUR)
    fill(rig, "a")
    rig.wait(KEPT_MS)
    rig.configure(archive="parquet")
    rig.wait(10 * HOUR)
    assert rig.drops == []
