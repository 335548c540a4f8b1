"""Restore: a new owner honours what is out, and never more than the log allows."""

import pytest

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Page, Settle
from pushlane_dispatcher.core.subscription import ANYBODY, FIRST
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.consumer import Consumer, flat
from tests.dispatcher.core.harness import Rig

PROMPT = QueueConfig(backoff_base_ms=1, consumer_backoff_base_ms=1)


def back(rig: Rig, consumer: Consumer) -> Consumer:
    """The same client with the new owner, before it resumed."""
    return rig.adopt(rig.shard.consumers.subscriptions[consumer.sub.prefix])


# Leases in the cache


def test_what_is_out_is_not_sent_again_too_early() -> None:
    rig = Rig(PROMPT, cached=True)
    consumer = rig.subscribe(lease_ms=10_000)
    ticket = rig.publish("a")
    rig.publish("b")
    rig.wait(4_000)
    rig.crash()
    other = rig.subscribe()
    assert other.bodies == []
    explained = rig.explain(ticket.seqs[0])
    assert (explained.state, explained.session) == ("leased", consumer.sub.session)
    assert explained.until == rig.wall + 6_000
    rig.wait(5_999)
    assert other.bodies == []
    rig.wait(2)
    assert [(got.attempt, got.deliveries) for got in other.inbox] == [(2, 0), (2, 0)]


def test_its_receipts_are_honoured() -> None:
    rig = Rig(cached=True)
    consumer = rig.subscribe()
    rig.publish("a", "b", key="k")
    rig.publish("c")
    rig.crash()
    again = back(rig, consumer)
    assert again.resume(1, 2) == []
    assert again.ack(1, 2).lost == []
    assert rig.subscribe().bodies == ["b"]


def test_whoever_has_its_receipts_may_settle_until_its_session_resumes() -> None:
    rig = Rig(cached=True)
    consumer = rig.subscribe()
    rig.publish("a", "b", "c")
    rig.crash()
    again = back(rig, consumer)
    assert again.ack(1, generation=FIRST).lost == again.runs([1]), "nobody was told that"
    assert again.ack(1, generation=ANYBODY).lost == []
    again.resume(2, 3)
    assert again.ack(2, generation=ANYBODY).lost == again.runs([2])
    assert rig.stats.leased == 2
    assert again.ack(2, 3).lost == []


def test_what_somebody_else_settled_is_lost_to_the_session_that_resumes() -> None:
    """Else its client would hold it beside what it gets for its permit."""
    rig = Rig(cached=True)
    consumer = rig.subscribe()
    rig.publish("a", "b", "c")
    rig.crash()
    again = back(rig, consumer)
    assert again.ack(1, 2, generation=ANYBODY).lost == []
    assert flat(again.ack(1, 2, generation=ANYBODY).duplicate) == [1, 2]
    assert flat(again.resume(1, 2, 3)) == [1, 2]
    assert flat(again.ack(1, 3).duplicate) == [1], "it is settled all the same"


def test_a_session_that_resumes_goes_on_with_its_credit() -> None:
    rig = Rig(cached=True)
    consumer = rig.subscribe(2)
    rig.publish("a")
    rig.crash()
    again = back(rig, consumer)
    rig.publish("b", "c", "d")
    assert again.bodies == []
    again.resume(1)
    again.credit(2)
    assert again.bodies == ["b"]
    again.ack(*again.numbers)
    assert again.bodies == ["b", "c"]


def test_receipt_numbers_are_never_used_again() -> None:
    rig = Rig(cached=True)
    consumer = rig.subscribe(5)
    rig.publish("a", "b", "c")
    del rig.cache[consumer.sub.prefix, 3]
    seen = set(consumer.numbers)
    for _ in range(3):
        rig.crash()
        consumer = back(rig, consumer)
        consumer.resume(1)
        consumer.credit(5)
        assert consumer.inbox
        assert not seen & {got.n for got in consumer.inbox if not got.again}
        seen |= set(consumer.numbers)
        assert consumer.inbox[-1].n < 1 << 53, "the wire's greatest number"


def test_what_the_cache_did_not_know_is_lost_to_who_has_it() -> None:
    rig = Rig(cached=True)
    consumer = rig.subscribe(5)
    rig.publish("a", "b", "c")
    del rig.cache[consumer.sub.prefix, 2]
    del rig.cache[consumer.sub.prefix, 3]
    rig.crash()
    again = back(rig, consumer)
    assert flat(again.resume(1, 2, 3)) == [2, 3]


def test_what_it_does_not_list_comes_again_under_the_same_receipt() -> None:
    rig = Rig(cached=True)
    consumer = rig.subscribe(explicit=True)
    rig.publish("a")
    rig.crash()
    again = back(rig, consumer)
    again.resume()
    (got,) = again.inbox
    assert (got.body, got.n, got.attempt, got.again) == ("a", 1, 1, True)
    assert again.start(1).lost == []


def test_a_reservation_is_restored_as_one() -> None:
    rig = Rig(cached=True)
    consumer = rig.subscribe(explicit=True, lease_ms=1_000)
    rig.publish("a", "b")
    consumer.start(1)
    rig.crash()
    assert (rig.stats.leased, rig.stats.reserved) == (1, 1)
    again = back(rig, consumer)
    again.resume(1, 2)
    again.start(2)
    entries = again.sub.held
    assert [entry.attempts for entry in entries.values()] == [1, 1]
    assert {entry.deadline for entry in entries.values()} == {1_000}


def test_a_reservation_does_not_wait_long_for_a_session_that_is_gone() -> None:
    rig = Rig(PROMPT, cached=True)
    consumer = rig.subscribe(explicit=True, lease_ms=20_000)
    rig.publish("a", "b", "c")
    consumer.start(1)
    rig.crash()
    other = rig.subscribe()
    rig.wait(rig.shard.bounds.adopt_ms - 1)
    assert other.bodies == []
    rig.wait(2)
    assert [(got.body, got.attempt, got.deliveries) for got in other.inbox] == [
        ("b", 1, 0),
        ("c", 1, 0),
    ], "its owner died, not its client"
    rig.wait(10_000)
    assert rig.stats.leased == 3, "what was begun has its whole lease"


def test_a_reservation_that_ends_before_anybody_could_come_does_not_count_either() -> None:
    rig = Rig(QueueConfig(reserve_ms=2_000, max_deliveries=1), cached=True)
    rig.subscribe(explicit=True)
    rig.publish("a")
    rig.crash()
    other = rig.subscribe()
    rig.wait(2_001)
    assert [(got.body, got.deliveries) for got in other.inbox] == [("a", 0)]
    assert rig.stats.subscriptions == 1


def test_a_session_that_came_back_and_broke_is_a_connection_lost() -> None:
    rig = Rig(cached=True)
    consumer = rig.subscribe(explicit=True)
    rig.publish("a")
    rig.crash()
    again = back(rig, consumer)
    again.resume(1)
    again.detach(1_000)
    other = rig.subscribe()
    rig.wait(1_000)
    assert [(got.body, got.deliveries) for got in other.inbox] == [("a", 1)]


def test_a_session_that_comes_keeps_its_reservations() -> None:
    rig = Rig(PROMPT, cached=True)
    consumer = rig.subscribe(explicit=True)
    rig.publish("a", "b")
    rig.crash()
    again = back(rig, consumer)
    assert again.resume(1, 2) == []
    other = rig.subscribe(1)
    other.credit(0)  # idle consumers may take what is reserved
    rig.wait(60_000)
    assert (rig.lost, rig.stats.reserved) == ([], 2)


def test_a_lease_that_ran_out_meanwhile_comes_back_at_once() -> None:
    rig = Rig(PROMPT, cached=True)
    rig.subscribe(lease_ms=1_000)
    rig.publish("a")
    rig.now += 5_000
    rig.crash()
    other = rig.subscribe()
    rig.wait(1)
    assert [(got.attempt, got.deliveries) for got in other.inbox] == [(2, 0)]
    assert rig.stats.subscriptions == 1


def test_leases_run_out_one_by_one() -> None:
    rig = Rig(PROMPT, cached=True)
    consumer = rig.subscribe(lease_ms=1_000)
    rig.publish("a", "b")
    consumer.extend(5_000, 2)
    rig.crash()
    other = rig.subscribe()
    rig.wait(1_001)
    assert other.bodies == ["a"]
    rig.wait(4_000)
    assert other.bodies == ["a", "b"]


def test_the_fence_of_the_next_grant_is_greater() -> None:
    rig = Rig(PROMPT, cached=True)
    consumer = rig.subscribe(1, lease_ms=1_000)
    rig.publish("a")
    first = consumer.inbox[0].fence
    rig.crash()
    other = rig.subscribe()
    rig.wait(2_000)
    assert other.inbox[0].fence > first


# The cache never overrules the log


def test_a_wiped_cache_costs_an_early_redelivery_and_nothing_else() -> None:
    rig = Rig(cached=True)
    rig.subscribe()
    rig.publish("a", "b")
    rig.crash(wipe=True)
    assert rig.subscribe().bodies == ["a", "b"]


def test_what_was_acked_stays_acked() -> None:
    rig = Rig(cached=True)
    consumer = rig.subscribe()
    rig.publish("a", "b")
    stale = dict(rig.cache)
    consumer.ack(1)
    rig.cache = stale
    rig.crash()
    assert rig.stats.stored == 1
    assert flat(back(rig, consumer).resume(1, 2)) == [1]


def test_also_when_its_bucket_is_drained() -> None:
    rig = Rig(bounds=Bounds(bucket_ms=10), cached=True)
    consumer = rig.subscribe()
    rig.publish("a")
    stale = dict(rig.cache)
    consumer.ack(1)
    rig.wait(10)
    rig.cache = stale
    rig.crash()
    assert (rig.stats.stored, rig.stats.subscriptions) == (0, 0)


def test_a_voided_receipt_is_not_made_valid() -> None:
    rig = Rig(cached=True)
    consumer = rig.subscribe(1)
    rig.publish("a")
    stale = dict(rig.cache)
    consumer.credit(0)
    consumer.nack(1, delay_ms=1_000)
    rig.cache = stale
    rig.crash()
    assert (rig.stats.retrying, rig.stats.leased) == (1, 0)


def test_a_grant_after_the_void_is_honoured() -> None:
    rig = Rig(cached=True)
    consumer = rig.subscribe(1)
    rig.publish("a")
    consumer.nack(1, delay_ms=0)
    rig.crash()
    assert rig.stats.leased == 1
    assert back(rig, consumer).resume(2) == []


def test_what_leaves_is_not_restored_as_leased() -> None:
    rig = Rig(cached=True)
    rig.refusing = True
    consumer = rig.subscribe()
    rig.publish("a")
    stale = dict(rig.cache)
    consumer.nack(1, dead=True)
    rig.cache = stale
    rig.crash()
    assert (rig.stats.leaving, rig.stats.leased) == (1, 0)


def test_only_the_last_owners_word_counts() -> None:
    rig = Rig(PROMPT, cached=True)
    rig.subscribe(lease_ms=100_000)
    rig.publish("a")
    stale = dict(rig.cache)
    rig.crash(wipe=True)
    rig.subscribe(lease_ms=100_000)
    rig.cache = stale
    rig.crash()
    assert (rig.stats.leased, rig.stats.ready) == (0, 1)


def test_more_subscriptions_than_may_be_do_not_keep_a_shard_from_opening() -> None:
    rig = Rig(cached=True)
    for _ in range(3):
        rig.subscribe(1)
    rig.publish("a", "b", "c")
    rig.bounds = Bounds(subscriptions=2)
    rig.crash()
    assert (rig.stats.leased, rig.stats.ready) == (2, 1)


# The rest


def test_ends_deliveries_and_waits_are_those_of_the_log() -> None:
    rig = Rig(QueueConfig(max_attempts=9, backoff_base_ms=60_000))
    consumer = rig.subscribe(100, lease_ms=1_000)
    ticket = rig.publish(*"abcdef")
    consumer.extend(10**6, 1, 2, 3, 4)
    consumer.ack(1)
    consumer.nack(2, delay_ms=50_000, error="later")
    consumer.nack(3, dead=True)
    rig.wait(1_000)
    before = [rig.explain(seq) for seq in ticket.seqs]
    rig.crash()
    after = [rig.explain(seq) for seq in ticket.seqs]
    assert [one.state for one in after] == [
        "acked", "retrying", "dead", "ready", "retrying", "retrying",
    ]  # fmt: skip
    for index in (0, 1, 2, 4, 5):
        one, other = before[index], after[index]
        assert (one.state, one.attempts, one.deliveries) == (
            other.state, other.attempts, other.deliveries,
        )  # fmt: skip
        assert (one.error, one.until) == (other.error, other.until)


def test_a_purge_is_durable() -> None:
    rig = Rig(bounds=Bounds(window_messages=3, segment_messages=1, bucket_messages=4))
    consumer = rig.subscribe(1, explicit=True)
    rig.publish(*"abcdefgh")
    rig.publish("far", not_before=rig.wall + 10**9)
    rig.purge()
    assert (rig.stats.stored, rig.stats.reserved) == (1, 1)
    rig.crash()
    assert rig.subscribe().bodies == ["a"]
    assert consumer.bodies == ["a"]


def test_a_purge_that_was_not_durable_did_not_happen() -> None:
    rig = Rig()
    rig.publish("a", "b")
    rig.hold = {Settle}
    rig.purge()
    assert rig.done == []
    rig.hold = set()
    rig.crash()
    assert rig.subscribe().bodies == ["a", "b"]


def test_nothing_comes_in_before_a_purge_is_durable() -> None:
    """Else a message could go out before an earlier one of its key that a crash brings back."""
    rig = Rig()
    rig.publish("a", key="k")
    rig.hold = {Settle}
    rig.purge()
    rig.publish("b", key="k")
    consumer = rig.subscribe()
    assert consumer.bodies == []
    rig.hold = set()
    rig.finish()
    assert consumer.bodies == ["b"]


def test_nothing_comes_in_before_the_purge_of_what_was_never_read_is_durable() -> None:
    """The same with one behind the window: nobody knows its key."""
    rig = Rig()
    rig.publish("a", key="k")
    rig.hold = {Page}
    rig.crash()
    rig.hold = {Settle}
    rig.purge()
    rig.publish("b", key="k")
    consumer = rig.subscribe()
    assert consumer.bodies == []
    rig.hold = set()
    rig.finish()
    assert consumer.bodies == ["b"]


@pytest.mark.parametrize("crashes", [0, 1])
def test_buckets_go_from_open_to_closed_to_drained_to_dropped(crashes: int) -> None:
    rig = Rig(QueueConfig(dedup_window_ms=5_000), Bounds(bucket_messages=2, segment_messages=1))
    consumer = rig.subscribe(100)
    rig.publish(*"abc")
    rig.wait(1_000)
    assert [bucket.closed for bucket in rig.buckets()] == [True, False]
    consumer.ack(1)
    assert not rig.buckets()[0].drained
    consumer.ack(2)
    assert rig.buckets()[0].drained
    for _ in range(crashes):
        rig.crash()
        assert rig.buckets()[1].closed, "an older owner's bucket is over"
    rig.wait(3_999)
    assert rig.drops == []
    rig.wait(1)
    assert len(rig.drops) == 1
    assert len(rig.buckets()) == 1
