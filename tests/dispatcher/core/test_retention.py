"""Retention: what nobody took for too long ends, but for what somebody holds."""

from typing import Any

import msgspec

from pushlane_dispatcher.core.bounds import Bounds
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
    rig.configure(retention_ms=HOUR)
    consumer = rig.subscribe(credit=1, lease_ms=HOUR)
    head, blocked = fill(rig, "a", "b", key="k")
    (near,) = fill(rig, "near", not_before=rig.wall + KEPT_MS + 500)
    (far,) = fill(rig, "far", not_before=rig.wall + HOUR)
    assert rig.shard.window.delays.far
    rig.configure(retention_ms=KEPT_MS)
    rig.wait(KEPT_MS + 100)
    assert [state(rig, seq) for seq in (head, blocked, near, far)] == ["leased", *["expired"] * 3]
    assert rig.shard.window.delays.far == 0
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


def test_a_blocked_message_keeps_its_place_until_its_end_is_durable() -> None:
    rig = make_rig()
    consumer = rig.subscribe(lease_ms=HOUR)
    fill(rig, "a", "b", key="k")
    rig.wait(KEPT_MS // 2)
    rig.publish("c", key="k")
    rig.hold = {Settle}
    consumer.ack(1)
    (ack,) = rig.held(Settle)
    rig.wait(KEPT_MS // 2)
    rig.finish(ack)
    assert consumer.bodies == ["a"], "a crash would bring b back"
    rig.hold = set()
    rig.finish()
    assert consumer.bodies == ["a", "c"]


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


# Delays


def test_a_delay_that_is_longer_than_the_retention_is_refused() -> None:
    rig = make_rig()
    ticket = rig.publish("a", not_before=rig.wall + KEPT_MS + 1)
    error = ticket.failed[0]
    assert (error.code, error.limit) == ("bad_request", "retention_ms")
    assert f"delay_ms is {KEPT_MS + 1}" in str(error)
    assert f"retention_ms ({KEPT_MS})" in str(error)
    assert rig.stats.stored == 0
    assert rig.publish("b", not_before=rig.wall + KEPT_MS).failed == {}


def test_its_length_is_that_of_the_configuration_by_now() -> None:
    rig = make_rig()
    rig.configure(retention_ms=HOUR)
    assert rig.publish("a", not_before=rig.wall + HOUR).failed == {}
    rig.configure(retention_ms=KEPT_MS)
    assert 0 in rig.publish("a", not_before=rig.wall + HOUR).failed


# Nothing of it is silent


def test_what_it_ended_is_counted_apart_from_what_expired_by_itself() -> None:
    rig = make_rig()
    rig.dead_letter = None
    rig.configure()
    rig.publish("ttl", expires_at=rig.wall + 1_000)
    fill(rig, "a", "b")
    rig.wait(2_000)
    rig.wait(KEPT_MS)
    assert (rig.stats.expired, rig.stats.retention) == (3, 2)
    assert rig.shard.verdicts.endings == {"expired": 1, "retention": 2}


def test_explain_tells_of_it_also_when_its_rows_are_gone() -> None:
    rig = make_rig(bucket_messages=2)
    rig.configure(dedup_window_ms=0)
    (first, second), (alone,) = rig.publish("a", "b").seqs, rig.publish("c").seqs
    rig.wait(2 * KEPT_MS)
    rig.wait(2 * KEPT_MS)
    assert [bucket.first for bucket in rig.buckets()] == [alone], "it is open"
    for seq in (first, second):
        found = rig.explain(seq)
        assert found.state == "expired"
        assert f"retention_ms ({KEPT_MS})" in found.why


def test_it_remembers_the_last_of_them() -> None:
    rig = make_rig(retention_runs=1, drained_buckets=0)
    rig.configure(dedup_window_ms=0)
    seqs = [rig.publish(body, lane=lane).seqs[0] for lane, body in ((5, "a"), (6, "b"), (5, "c"))]
    rig.wait(KEPT_MS)
    rig.wait(KEPT_MS)
    assert rig.shard.retention.find(5, seqs[0]) is None
    assert rig.shard.retention.find(5, seqs[2]) is False
    assert rig.explain(seqs[0], 5).state == "unknown"


# Dead letters


def burying(**bounds: int) -> Rig:
    rig = make_rig(**bounds)
    rig.configure(retention_end="dead_letter")
    return rig


def test_it_can_be_kept_as_dead_letters() -> None:
    rig = burying(horizon_ms=1_000)
    consumer = rig.subscribe(credit=1)
    rig.configure(retention_ms=HOUR, backoff_base_ms=HOUR, backoff_max_ms=HOUR)
    retried, _ = fill(rig, "retried", "a")
    consumer.nack(1, delay_ms=HOUR, error="boom")
    fill(rig, "b", "c", key="k")
    fill(rig, "near", not_before=rig.wall + 900)
    fill(rig, "far", not_before=rig.wall + HOUR)
    consumer.unsubscribe()
    consumer.ack(2)
    rig.wait(800)
    assert rig.state(retried) == "retrying"
    rig.configure(retention_ms=KEPT_MS)
    rig.wait(KEPT_MS + 1_000)
    rig.wait(KEPT_MS + 1_000)
    moved = [transfer.message for transfer in rig.transfers]
    assert sorted(message.body.decode() for message in moved) == [
        "b",
        "c",
        "far",
        "near",
        "retried",
    ]
    assert {message.dead.cause for message in moved if message.dead} == {"expired"}
    attempts = {m.body.decode(): (m.dead.attempts, m.dead.error) for m in moved if m.dead}
    assert attempts["retried"] == (1, "boom")
    assert (rig.stats.stored, rig.stats.dead, rig.stats.expired, rig.stats.retention) == (
        0,
        5,
        0,
        5,
    )
    assert rig.shard.verdicts.endings == {"retention": 5}
    found = rig.explain(retried)
    assert (found.state, "dead letters" in found.why) == ("dead", True)


def test_attempts_of_what_stood_behind_the_window_go_with_it() -> None:
    rig = burying(bucket_messages=2)
    consumer = rig.subscribe(credit=2)
    rig.publish("a", "b")
    consumer.nack(1, 2, delay_ms=1_000, error="boom")
    rig.publish("c")
    rig.crash()
    rig.configure(retention_end="dead_letter", paused=True)
    rig.wait(2 * KEPT_MS)
    rig.wait(2 * KEPT_MS)
    dead = [transfer.message.dead for transfer in rig.transfers]
    assert [(one.attempts, one.error) for one in dead if one] == [
        (1, "boom"),
        (1, "boom"),
        (0, None),
    ]


def test_a_full_dead_letter_queue_holds_it_up() -> None:
    rig = burying(transfer_retry_ms=1_000)
    rig.refusing = True
    fill(rig, "a", "b")
    rig.wait(KEPT_MS)
    fill(rig, "c")
    rig.wait(KEPT_MS + 500)
    assert rig.stats.stored == 3
    assert rig.stats.leaving == 1, "no more goes while nothing is taken"
    rig.refusing = False
    rig.wait(40_000)
    rig.wait(40_000)
    assert (rig.stats.stored, rig.stats.dead) == (0, 3)


def test_no_more_leave_at_once_than_may() -> None:
    rig = burying(bucket_messages=10, leaving=4)
    rig.publish(*(str(n) for n in range(10)))
    rig.publish("last")
    rig.hold = {Settle}
    rig.now += KEPT_MS
    rig.tick()
    (settle,) = rig.held(Settle)
    assert sum(len(row.leaving) for row in settle.rows) == 4
    rig.hold = set()
    rig.finish()
    rig.wait(10_000)
    assert (rig.stats.dead, rig.stats.stored) == (10, 1)


def test_without_a_dead_letter_queue_it_ends() -> None:
    rig = burying()
    rig.dead_letter = None
    rig.configure(retention_end="dead_letter")
    (seq,) = fill(rig, "a")
    rig.wait(KEPT_MS)
    rig.wait(1_000)
    assert (state(rig, seq), rig.transfers) == ("expired", [])
