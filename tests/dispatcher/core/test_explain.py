"""Explain says of any message where it stands and why; stats add up."""

import msgspec

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Append, Settle, Transfer
from pushlane_dispatcher.core.explain import Explanation, explain_end
from pushlane_dispatcher.core.ident import make_id
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_storage.queue import QueueConfig
from pushlane_storage.seq import make_seq
from pushlane_storage.settlement import BucketState
from tests.dispatcher.core.harness import LANE, OFFSET, Rig


def test_ready_because_there_is_no_consumer() -> None:
    rig = Rig()
    rig.wait(50)
    (seq,) = rig.publish("a").seqs
    assert rig.explain(seq) == Explanation("ready", "no consumer", OFFSET + 50)
    away = rig.subscribe(1)
    away.detach()
    (other,) = rig.publish("b").seqs
    assert rig.explain(other).why == "no consumer"


def test_ready_because_no_consumer_has_credit() -> None:
    rig = Rig()
    rig.subscribe(1)
    seqs = rig.publish("a", "b").seqs
    assert (rig.state(seqs[1]), rig.explain(seqs[1]).why) == ("ready", "no consumer has credit")


def test_ready_because_the_queue_is_paused() -> None:
    rig = Rig(QueueConfig(paused=True))
    consumer = rig.subscribe()
    (seq,) = rig.publish("a").seqs
    assert (rig.state(seq), rig.explain(seq).why) == ("ready", "the queue is paused")
    rig.configure(paused=False)
    assert consumer.bodies == ["a"]


def test_ready_and_the_next_to_go() -> None:
    rig = Rig()
    (seq,) = rig.publish("a").seqs
    subscription = Subscription("P", "s", 1, 1_000, explicit=False, ack_none=False)
    rig.shard.attach(subscription)
    assert rig.explain(seq).why == "its turn is next"


def test_ready_behind_the_window() -> None:
    rig = Rig(bounds=Bounds(window_messages=1, segment_messages=1))
    seqs = rig.publish("a", "b", "c").seqs
    assert rig.explain(seqs[2]) == Explanation("ready", "others are before it")


def test_reserved_and_leased_say_by_whom_since_when_and_until_when() -> None:
    rig = Rig()
    consumer = rig.subscribe(explicit=True, lease_ms=5_000, session="s-1")
    (seq,) = rig.publish("a").seqs
    found = rig.explain(seq)
    assert (found.state, found.session, found.attempts) == ("reserved", "s-1", 0)
    assert (found.since, found.until) == (OFFSET, OFFSET + 300_000)
    rig.wait(10)
    consumer.start(1)
    found = rig.explain(seq)
    assert (found.state, found.session, found.attempts) == ("leased", "s-1", 1)
    assert (found.since, found.until) == (OFFSET + 10, OFFSET + 5_010)


def test_delayed_says_until_when() -> None:
    rig = Rig(bounds=Bounds(horizon_ms=60_000))
    (seq,) = rig.publish("a", not_before=rig.wall + 700).seqs
    assert rig.explain(seq) == Explanation("delayed", "its delay is not over", OFFSET, OFFSET + 700)
    (far,) = rig.publish("b", not_before=rig.wall + 10**7).seqs
    far_until = OFFSET + 10**7
    assert rig.explain(far) == Explanation("delayed", "its time is far ahead", until=far_until)


def test_retrying_says_until_when_and_what_went_wrong() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    (seq,) = rig.publish("a").seqs
    consumer.nack(1, error="boom")
    found = rig.explain(seq)
    assert (found.state, found.attempts, found.error) == ("retrying", 1, "boom")
    assert (found.until, found.session) == (OFFSET + 500, None)


def test_blocked_says_by_which_message() -> None:
    rig = Rig()
    rig.subscribe()
    seqs = rig.publish("a", "b", key="k").seqs
    found = rig.explain(seqs[1])
    assert found.state == "blocked"
    assert found.blocked_by == make_id("q1", 0, LANE, seqs[0])


def test_while_it_is_being_written_it_is_what_users_call_it() -> None:
    rig = Rig()
    consumer = rig.subscribe(explicit=True)
    seqs = rig.publish("a", "b", "c", "d", "e").seqs
    consumer.start(1, 2)
    rig.hold = {Settle}
    rig.publish("expiring", expires_at=1)
    consumer.ack(1)
    consumer.nack(2)
    consumer.nack(3, dead=True)
    states = [rig.explain(seq) for seq in seqs[:3]]
    assert [found.state for found in states] == ["leased", "retrying", "leaving"]
    assert [found.why for found in states] == [
        "its ack is being stored",
        "its return is being stored",
        "it leaves: rejected",
    ]
    assert states[0].until is None, "nobody can lose it any more"
    assert (rig.stats.leased, rig.stats.retrying, rig.stats.reserved) == (1, 1, 2)


def test_leaving_and_moved() -> None:
    rig = Rig()
    rig.hold = {Transfer}
    consumer = rig.subscribe()
    (seq,) = rig.publish("a").seqs
    consumer.nack(1, dead=True)
    assert rig.state(seq) == "leaving"
    rig.hold = {Settle}
    rig.finish(*rig.held(Transfer))
    assert (rig.state(seq), rig.stats.leaving) == ("leaving", 1)


def test_what_is_being_purged_leaves_wherever_it_stands() -> None:
    rig = Rig(bounds=Bounds(window_messages=2, segment_messages=1))
    seqs = rig.publish("a", "b", "c", "d").seqs
    rig.hold = {Settle}
    rig.purge()
    assert [rig.explain(seq).why for seq in seqs] == ["it leaves: purged"] * 4
    rig.hold = set()
    rig.finish()
    assert {rig.state(seq) for seq in seqs} == {"purged"}


def test_every_end_is_known_while_its_bucket_is() -> None:
    rig = Rig(QueueConfig(max_messages=3, overflow="drop_oldest"), dead_letter=None)
    dropped, expired, acked = rig.publish("a", "b", "c").seqs
    rig.publish("d", expires_at=rig.wall + 10)
    consumer = rig.subscribe(2)
    consumer.nack(1, dead=True)
    consumer.ack(2)
    consumer.credit(0)
    found = [rig.explain(seq) for seq in (dropped, expired, acked)]
    assert [(one.state, one.why) for one in found] == [
        ("dropped", "it was dropped"),
        ("dead", "it went to the dead letters: rejected"),
        ("acked", "it was acked"),
    ]


def test_what_was_never_stored_is_unknown() -> None:
    rig = Rig()
    assert rig.explain(make_seq(1, 0)) == Explanation("unknown", "it is not stored")
    rig.hold = {Append}
    (seq,) = rig.publish("a").seqs
    assert rig.state(seq) == "unknown"
    rig.finish()
    assert rig.state(seq + 1) == "unknown"
    assert rig.state(make_seq(9, 0)) == "unknown"
    assert rig.state(seq, lane=7) == "unknown"


def test_what_was_cleared_away_is_unknown() -> None:
    rig = Rig(bounds=Bounds(bucket_ms=10))
    consumer = rig.subscribe()
    (seq,) = rig.publish("a").seqs
    consumer.ack(1)
    assert rig.state(seq) == "acked"
    rig.wait(10)
    assert rig.state(seq) == "unknown"


def test_an_end_by_its_buckets_state_alone() -> None:
    state = BucketState()
    state.end("expired", 1, 1)
    state.end("dead:max_attempts", 2, 2)
    state.end("redriven", 3, 3)
    found = [explain_end(state, seq) for seq in range(1, 5)]
    assert [one.state if one is not None else None for one in found] == [
        "expired", "dead", "acked", None,
    ]  # fmt: skip


# Statistics


def test_stats_count_by_state() -> None:
    rig = Rig()
    consumer = rig.subscribe(4, explicit=True)
    rig.publish(*"abcd")
    consumer.start(1, 2)
    consumer.nack(2)
    rig.publish("delayed", not_before=rig.wall + 10)
    rig.publish("head", "blocked", key="k")
    consumer.credit(0)
    consumer.ack(3)
    stats = msgspec.structs.asdict(rig.stats)
    assert {name: number for name, number in stats.items() if number} == {
        "ready": 1,
        "reserved": 1,
        "leased": 1,
        "retrying": 1,
        "delayed": 1,
        "blocked": 1,
        "stored": 6,
        "bytes": stats["bytes"],
        "subscriptions": 1,
        "oldest_at": OFFSET,
        "acked": 1,
    }


def test_the_oldest_ready_message_of_all_lanes_is_named() -> None:
    rig = Rig(bounds=Bounds(window_messages=2, horizon_ms=1_000))
    found = [rig.stats.oldest_at]
    rig.publish("far", not_before=rig.wall + 5_000)
    rig.wait(100)
    consumer = rig.subscribe(1)
    rig.publish("leased", "ready")
    rig.wait(100)
    rig.publish("high", lane=9)
    found.append(rig.stats.oldest_at)
    consumer.credit(3)
    found.append(rig.stats.oldest_at)
    assert found == [None, OFFSET + 100, None]


def test_a_purge_under_way_leaves_no_number_negative() -> None:
    rig = Rig(bounds=Bounds(window_messages=2, segment_messages=1, horizon_ms=1_000))
    rig.publish("far", not_before=rig.wall + 10**6)
    rig.publish(*"abcdef")
    rig.hold = {Settle}
    rig.purge()
    assert rig.stats.stored == 7
    rig.hold = set()
    rig.finish()
    assert rig.stats.stored == 0


def test_why_a_delivery_counted() -> None:
    rig = Rig()
    (seq,) = rig.publish("a").seqs
    consumer = rig.subscribe(explicit=True)
    consumer.detach(1_000)
    rig.wait(1_000)
    found = rig.explain(seq)
    counted = "1 of 20 deliveries: connections broke before it was started"
    assert found.why == f"no consumer; {counted}"
    assert (found.deliveries, found.error) == (1, "connection lost before it was started")
    rig.subscribe().nack(1, delay_ms=500, error="no")
    assert rig.explain(seq).why == f"it waits for its next attempt; {counted}"


def test_what_stands_in_the_backlog_says_until_when_it_waits() -> None:
    rig = Rig(bounds=Bounds(window_messages=1, page_messages=1, segment_messages=1))
    rig.publish("a", "b", "c")
    due = rig.wall + 3_600_000
    (late,) = rig.publish("late", not_before=due).seqs
    (plain,) = rig.publish("d").seqs
    found = rig.explain(late)
    assert (found.state, found.until) == ("delayed", due)
    assert (rig.state(plain), rig.explain(plain).why) == ("ready", "others are before it")


def test_a_retry_in_the_backlog_says_what_its_last_delivery_left() -> None:
    rig = Rig(bounds=Bounds(window_messages=1, page_messages=1, segment_messages=1))
    consumer = rig.subscribe(credit=1)
    rig.publish("x")
    consumer.unsubscribe()
    (seq,) = rig.publish("a", lane=5).seqs
    other = rig.subscribe(credit=1)
    other.nack(1, delay_ms=50_000, error="boom")
    until = rig.wall + 50_000
    rig.crash()
    bucket = rig.shard.window.lanes[5].bucket_of(seq)
    assert bucket is not None
    rig.shard.window.lanes[5].cursor = seq
    rig.shard.window.lanes[5].entries.pop(seq, None)
    found = rig.explain(seq, 5)
    assert (found.state, found.until, found.attempts, found.error) == ("retrying", until, 1, "boom")
    rig.now += 60_000
    assert rig.state(seq, 5) == "ready"


def test_who_has_it_is_told_by_name() -> None:
    rig = Rig()
    rig.subscribe(1, client="invoices 2", session="ref")
    rig.subscribe(1)
    seqs = rig.publish("a", "b").seqs
    found = {rig.explain(seq).client for seq in seqs}
    assert found == {"invoices 2", None}
    assert [one.client for one in rig.shard.roster()] == ["invoices 2", ""]
