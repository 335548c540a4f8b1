"""Consumers: credit, fairness, two phases, receipts, resume, and what time does."""

import pytest

from pushlane.wire.errors import BadRequest, Throttled
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Fetch, Settle
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.harness import LANE, Consumer, Rig

PROMPT = QueueConfig(backoff_base_ms=1, consumer_backoff_base_ms=1, consumer_backoff_max_ms=1)
"""Backoffs that are over at once."""


def prompt(bounds: Bounds | None = None, *, cached: bool = False) -> Rig:
    return Rig(PROMPT, bounds, cached=cached)


def flat(runs: list[tuple[str, int, int]]) -> list[int]:
    return [n for _, low, high in runs for n in range(low, high + 1)]


# Credit


def test_credit_is_the_most_that_is_unsettled() -> None:
    rig = Rig()
    consumer = rig.subscribe(2)
    rig.publish(*"abcde")
    assert consumer.take() == ["a", "b"]
    consumer.ack(1)
    assert consumer.take() == ["c"]
    consumer.ack(2, 3)
    assert consumer.take() == ["d", "e"]


def test_what_is_ready_and_what_credit_allows_leaves_in_one_frame() -> None:
    rig = Rig()
    rig.publish(*"abcde")
    rig.publish("first", lane=9)
    consumer = rig.subscribe(4)
    assert consumer.frames == 1
    assert consumer.bodies == ["first", "a", "b", "c"]


def test_a_permit_is_free_when_the_ack_comes_and_not_only_when_it_is_durable() -> None:
    rig = Rig()
    consumer = rig.subscribe(1)
    rig.publish("a", "b")
    rig.hold = {Settle}
    consumer.ack(1)
    assert consumer.bodies == ["a", "b"]


def test_credit_may_be_raised_lowered_and_set_to_zero() -> None:
    rig = Rig()
    consumer = rig.subscribe(2)
    rig.publish(*"abcdef")
    consumer.credit(3)
    assert consumer.bodies == ["a", "b", "c"]
    consumer.credit(1)
    assert len(consumer.sub.held) == 3, "lowering takes nothing back"
    consumer.ack(1, 2)
    assert consumer.bodies == ["a", "b", "c"]
    consumer.credit(0)
    consumer.ack(3)
    assert consumer.bodies == ["a", "b", "c"]
    consumer.credit(1)
    assert consumer.bodies == ["a", "b", "c", "d"]


@pytest.mark.parametrize("credit", [0, -1, 11])
def test_a_subscription_needs_credit_within_the_limit(credit: int) -> None:
    rig = Rig(bounds=Bounds(credit=10))
    with pytest.raises(BadRequest):
        rig.subscribe(credit)
    assert rig.stats.subscriptions == 0


@pytest.mark.parametrize("credit", [-1, 11])
def test_credit_is_limited(credit: int) -> None:
    rig = Rig(bounds=Bounds(credit=10))
    consumer = rig.subscribe(10)
    with pytest.raises(BadRequest):
        consumer.credit(credit)
    assert consumer.sub.credit == 10


def test_subscriptions_are_bounded() -> None:
    rig = Rig(bounds=Bounds(subscriptions=1))
    consumer = rig.subscribe()
    with pytest.raises(Throttled):
        rig.subscribe()
    consumer.end()
    rig.subscribe()


# Fairness


def test_a_run_is_shared_between_those_with_the_same_credit() -> None:
    rig = Rig()
    one, other = rig.subscribe(10), rig.subscribe(10)
    rig.publish(*"abcdefgh")
    assert len(one.inbox) == len(other.inbox) == 4
    assert sorted(one.bodies + other.bodies) == list("abcdefgh")


def test_ties_go_in_turn() -> None:
    rig = Rig()
    consumers = [rig.subscribe(5) for _ in range(3)]
    for body in "abcdef":
        rig.publish(body)
        holder = next(consumer for consumer in consumers if consumer.sub.held)
        holder.ack(*list(holder.sub.held))
    assert [consumer.bodies for consumer in consumers] == [["a", "d"], ["b", "e"], ["c", "f"]]


def test_the_next_run_goes_to_the_most_free_permits() -> None:
    rig = Rig()
    small, large = rig.subscribe(2), rig.subscribe(9)
    rig.publish("a")
    rig.publish("b")
    assert (small.bodies, large.bodies) == ([], ["a", "b"])


def test_higher_lanes_go_first() -> None:
    rig = Rig()
    for lane in (0, 9, 4, 5):
        rig.publish(f"{lane}", lane=lane)
    assert rig.subscribe().bodies == ["9", "5", "4", "0"]


def test_a_consumer_that_comes_late_gets_what_is_ready() -> None:
    rig = Rig()
    rig.publish("a", "b")
    assert rig.subscribe(1).bodies == ["a"]
    assert rig.subscribe(1).bodies == ["b"]


# The backoff semaphore


def test_a_nack_holds_its_permit_back() -> None:
    rig = Rig(QueueConfig(consumer_backoff_base_ms=100))
    rig.chance = 0.5
    consumer = rig.subscribe(1)
    rig.publish("a", "b")
    consumer.nack(1)
    assert consumer.bodies == ["a"]
    rig.wait(49)
    assert consumer.bodies == ["a"]
    rig.wait(1)
    assert consumer.bodies == ["a", "b"]


def test_the_other_permits_are_not_affected() -> None:
    rig = Rig()
    consumer = rig.subscribe(2)
    rig.publish(*"abcd")
    consumer.nack(1)
    consumer.ack(2)
    assert consumer.bodies == ["a", "b", "c"]


def test_failures_in_a_row_wait_longer_up_to_the_maximum() -> None:
    rig = Rig(QueueConfig(consumer_backoff_base_ms=100, consumer_backoff_max_ms=300))
    rig.chance = 0.99
    consumer = rig.subscribe(1)
    rig.publish(*"abcd")
    for n, wait in ((1, 99), (2, 198), (3, 297)):
        consumer.nack(n)
        rig.wait(wait - 1)
        assert len(consumer.inbox) == n
        rig.wait(1)
        assert len(consumer.inbox) == n + 1


def test_success_resets_the_backoff() -> None:
    rig = Rig(QueueConfig(consumer_backoff_base_ms=100))
    rig.chance = 0.99
    consumer = rig.subscribe(1)
    rig.publish(*"abcde")
    consumer.nack(1)
    rig.wait(99)
    consumer.nack(2)
    rig.wait(198)
    consumer.ack(3)
    consumer.nack(4)
    rig.wait(99)
    assert len(consumer.inbox) == 5


def test_a_nack_that_names_its_delay_gives_its_permit_back_at_once() -> None:
    rig = Rig()
    consumer = rig.subscribe(1)
    rig.publish("a", "b")
    consumer.nack(1, delay_ms=5_000)
    assert consumer.bodies == ["a", "b"]


def test_a_lease_that_expired_holds_its_permit_back() -> None:
    rig = Rig(QueueConfig(consumer_backoff_base_ms=100))
    consumer = rig.subscribe(1, lease_ms=1_000)
    rig.publish("a", "b")
    rig.wait(1_000)
    assert consumer.bodies == ["a"]
    rig.wait(50)
    assert consumer.bodies == ["a", "b"]


def test_without_backoff_a_permit_comes_back_at_once() -> None:
    rig = Rig()
    rig.chance = 0.0
    consumer = rig.subscribe(1)
    rig.publish("a")
    consumer.nack(1)
    assert consumer.bodies == ["a", "a"]


# Two phases


def test_a_reservation_runs_no_lease_and_counts_no_attempt() -> None:
    rig = Rig()
    consumer = rig.subscribe(explicit=True, lease_ms=1_000)
    rig.publish("a")
    (got,) = consumer.inbox
    assert (got.started, got.attempt, got.deadline) == (False, 1, 300_000)
    assert rig.stats.reserved == 1
    rig.wait(299_999)
    assert rig.entry(got.seq).attempts == 0
    assert rig.lost == []


def test_start_runs_the_lease_and_counts_the_attempt() -> None:
    rig = Rig()
    consumer = rig.subscribe(explicit=True, lease_ms=1_000)
    rig.publish("a")
    rig.wait(500)
    ticket = consumer.start(1)
    assert (ticket.lost, ticket.duplicate, rig.done) == ([], [], [ticket])
    entry = rig.entry(consumer.inbox[0].seq)
    assert (rig.stats.leased, entry.attempts, entry.deadline) == (1, 1, 1_500)
    rig.wait(999)
    assert rig.lost == []
    rig.wait(1)
    assert flat(rig.lost) == [1]


def test_start_again_changes_nothing() -> None:
    rig = Rig()
    consumer = rig.subscribe(explicit=True, lease_ms=1_000)
    rig.publish("a")
    consumer.start(1)
    rig.wait(500)
    assert consumer.start(1).lost == []
    entry = rig.entry(consumer.inbox[0].seq)
    assert (entry.attempts, entry.deadline) == (1, 1_000)


def test_a_receipt_listed_twice_counts_once() -> None:
    rig = Rig()
    consumer = rig.subscribe(explicit=True)
    rig.publish("a", "b")
    assert consumer.start(1, 1).lost == []
    assert rig.entry(consumer.inbox[0].seq).attempts == 1
    assert consumer.extend(5_000, 1, 1).lost == []
    ticket = consumer.ack(1, 1)
    assert (ticket.lost, flat(ticket.duplicate)) == ([], [1])
    ticket = consumer.nack(2, 2, dead=True)
    assert (ticket.lost, flat(ticket.duplicate)) == ([], [2])


def test_with_start_at_delivery_the_lease_runs_at_once() -> None:
    rig = Rig()
    consumer = rig.subscribe(lease_ms=1_000)
    rig.publish("a")
    (got,) = consumer.inbox
    assert (got.started, got.attempt, got.deadline) == (True, 1, 1_000)


def test_a_reservation_ends_after_reserve_ms_and_counts_as_a_delivery() -> None:
    rig = Rig(QueueConfig(reserve_ms=2_000))
    consumer = rig.subscribe(explicit=True)
    rig.publish("a")
    rig.wait(2_000)
    assert flat(rig.lost) == [1]
    assert [(got.attempt, got.deliveries) for got in consumer.inbox] == [(1, 0), (1, 1)]
    assert consumer.ack(1).lost != []


def test_an_ack_needs_no_start() -> None:
    rig = Rig()
    consumer = rig.subscribe(explicit=True)
    rig.publish("a", "b")
    consumer.start(2)
    assert consumer.ack(1, 2).lost == []
    assert rig.stats.acked == 2


def test_a_nack_before_start_gives_back_without_an_attempt_or_a_wait() -> None:
    rig = Rig()
    consumer = rig.subscribe(1, explicit=True)
    rig.publish("a")
    consumer.nack(1, error="not now")
    assert [(got.attempt, got.deliveries) for got in consumer.inbox] == [(1, 0), (1, 0)]


# Leases


def test_a_lease_that_expires_is_lost_and_the_message_comes_again() -> None:
    rig = prompt()
    one = rig.subscribe(1, lease_ms=1_000)
    rig.publish("a")
    rig.wait(999)
    assert rig.lost == []
    rig.wait(1)
    assert rig.lost == [(one.sub.prefix, 1, 1)]
    assert [(got.attempt, got.deliveries) for got in one.inbox] == [(1, 0), (2, 1)]
    assert one.inbox[1].fence > one.inbox[0].fence


def test_only_the_newest_receipt_is_valid() -> None:
    rig = prompt()
    one = rig.subscribe(1, lease_ms=1_000)
    rig.publish("a")
    one.credit(0)
    other = rig.subscribe(1)
    rig.wait(1_000)
    assert other.bodies == ["a"]
    for refused in (one.ack(1), one.nack(1), one.extend(9_000, 1), one.start(1)):
        assert refused.lost == [(one.sub.prefix, 1, 1)]
    assert rig.stats.leased == 1
    assert other.ack(1).lost == []


def test_an_extension_runs_from_now() -> None:
    rig = Rig()
    consumer = rig.subscribe(lease_ms=1_000)
    rig.publish("a")
    rig.wait(900)
    assert consumer.extend(2_000, 1).lost == []
    rig.wait(1_999)
    assert rig.lost == []
    rig.wait(1)
    assert flat(rig.lost) == [1]


def test_an_extension_may_shorten() -> None:
    rig = Rig()
    consumer = rig.subscribe(lease_ms=60_000)
    rig.publish("a")
    consumer.extend(1_000, 1)
    rig.wait(1_000)
    assert flat(rig.lost) == [1]


def test_only_what_is_late_expires() -> None:
    rig = Rig()
    consumer = rig.subscribe(lease_ms=1_000)
    rig.publish("a", "b")
    consumer.extend(5_000, 2)
    rig.wait(1_000)
    assert flat(rig.lost) == [1]
    rig.wait(3_999)
    assert consumer.ack(2).lost == []


def test_the_fence_grows_with_every_grant_also_over_owners() -> None:
    rig = prompt()
    consumer = rig.subscribe(1)
    rig.publish("a")
    consumer.nack(1)
    rig.wait(10)
    consumer.nack(2)
    rig.wait(10)
    fences = [got.fence for got in consumer.inbox]
    rig.crash()
    consumer = rig.subscribe(1)
    fences += [got.fence for got in consumer.inbox]
    assert fences == [(1 << 20) + 1, (1 << 20) + 2, (1 << 20) + 3, (2 << 20) + 1]


# Acks and receipts


def test_an_ack_is_answered_when_it_is_durable() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    rig.hold = {Settle}
    ticket = consumer.ack(1)
    assert rig.done == []
    rig.finish()
    assert rig.done == [ticket]
    assert (ticket.lost, ticket.duplicate) == ([], [])


def test_after_a_confirmed_ack_it_is_never_granted_again() -> None:
    rig = Rig()
    consumer = rig.subscribe(lease_ms=1_000)
    rig.publish("a")
    consumer.ack(1)
    rig.wait(10_000)
    rig.crash()
    assert rig.subscribe().bodies == []


@pytest.mark.parametrize("say", ["start", "extend"])
def test_duplicate_confirms_an_ack_so_it_waits_for_it(say: str) -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    rig.hold = {Settle}
    ack = consumer.ack(1)
    repeat = consumer.start(1) if say == "start" else consumer.extend(5_000, 1)
    assert flat(repeat.duplicate) == [1]
    assert rig.done == []
    rig.finish()
    assert rig.done == [ack, repeat]


def test_a_repeated_ack_is_a_duplicate_and_changes_nothing() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a", "b")
    consumer.ack(1)
    ticket = consumer.ack(1)
    assert (ticket.lost, flat(ticket.duplicate)) == ([], [1])
    assert (rig.stats.acked, rig.stats.leased) == (1, 1)
    assert flat(consumer.nack(1).duplicate) == [1]


def test_a_repeat_is_answered_only_when_the_first_is_durable() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    rig.hold = {Settle}
    consumer.ack(1)
    repeat = consumer.ack(1)
    assert flat(repeat.duplicate) == [1]
    assert rig.done == []
    rig.finish()
    assert repeat in rig.done


def test_after_a_change_of_owner_a_repeat_is_lost() -> None:
    rig = Rig(cached=True)
    consumer = rig.subscribe()
    rig.publish("a", "b")
    consumer.ack(1)
    prefix = consumer.sub.prefix
    rig.crash()
    consumer = rig.adopt(rig.shard.consumers.subscriptions[prefix])
    consumer.resume(1, 2)
    ticket = consumer.ack(1, 2)
    assert (flat(ticket.lost), ticket.duplicate) == ([1], [])


def test_settled_receipts_are_forgotten_at_the_bound_and_then_lost() -> None:
    rig = Rig(bounds=Bounds(settled_runs=1))
    consumer = rig.subscribe()
    rig.publish(*"abc")
    consumer.ack(1)
    consumer.ack(3)
    ticket = consumer.ack(1, 3)
    assert (flat(ticket.lost), flat(ticket.duplicate)) == ([1], [3])


@pytest.mark.parametrize("n", [0, 2, 99, 1 << 52])
def test_a_forged_number_is_lost(n: int) -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    assert flat(consumer.ack(n).lost) == [n]
    assert rig.stats.leased == 1


def test_another_sessions_receipt_is_lost() -> None:
    rig = Rig()
    one, other = rig.subscribe(1), rig.subscribe(1)
    rig.publish("a", "b")
    foreign = (other.sub.prefix, 1, 1)
    assert one.ack_runs([foreign]).lost == [foreign]
    assert one.ack_runs([("guess", 1, 5)]).lost == [("guess", 1, 5)]
    assert rig.stats.leased == 2


def test_a_run_settles_what_is_held_of_it_and_reports_the_rest() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish(*"abcdef")
    consumer.ack(2)
    consumer.nack(4, delay_ms=60_000)
    prefix = consumer.sub.prefix
    ticket = consumer.ack_runs([(prefix, 1, 8)])
    assert ticket.duplicate == [(prefix, 2, 2)]
    assert ticket.lost == [(prefix, 4, 4), (prefix, 7, 8)]
    assert rig.stats.acked == 5


def test_a_run_does_not_touch_what_was_granted_to_others_since() -> None:
    rig = prompt()
    one = rig.subscribe(3, lease_ms=1_000)
    rig.publish("a", "b", "c")
    one.extend(60_000, 2)
    one.credit(0)
    other = rig.subscribe(3)
    rig.wait(1_000)
    assert sorted(other.bodies) == ["a", "c"]
    ticket = one.ack_runs([(one.sub.prefix, 1, 3)])
    assert flat(ticket.lost) == [1, 3]
    assert (rig.stats.acked, rig.stats.leased) == (1, 2)
    assert len(other.sub.held) == 2


# No acks


def test_without_acks_a_message_is_settled_before_it_leaves() -> None:
    rig = Rig()
    consumer = rig.subscribe(ack_none=True)
    rig.hold = {Settle}
    rig.publish("a")
    assert consumer.bodies == []
    rig.finish()
    assert consumer.bodies == ["a"]
    assert (rig.stats.acked, rig.stats.stored) == (1, 0)
    rig.crash()
    assert rig.subscribe().bodies == []


def test_without_acks_a_message_is_delivered_at_most_once() -> None:
    rig = Rig()
    consumer = rig.subscribe(ack_none=True)
    rig.hold = {Settle}
    rig.publish("a")
    (settle,) = rig.held(Settle)
    rig.land(settle)
    rig.hold = set()
    rig.crash()
    assert consumer.bodies == rig.subscribe().bodies == []


def test_without_acks_credit_does_not_limit_but_a_bound_does() -> None:
    rig = Rig(bounds=Bounds(taken=3))
    consumer = rig.subscribe(1, ack_none=True)
    rig.hold = {Settle}
    rig.publish(*"abcdef")
    assert consumer.sub.taking == 3
    rig.hold = set()
    rig.finish()
    assert consumer.bodies == list("abcdef")
    consumer.credit(0)
    rig.publish("g")
    assert len(consumer.inbox) == 6


def test_without_acks_keys_keep_their_order() -> None:
    rig = Rig()
    consumer = rig.subscribe(ack_none=True)
    rig.publish(*"abc", key="k")
    assert consumer.bodies == ["a", "b", "c"]


# Going


def test_unsubscribe_gives_back_what_is_reserved_and_keeps_what_is_leased() -> None:
    rig = Rig()
    consumer = rig.subscribe(explicit=True)
    rig.publish("a", "b")
    consumer.start(1)
    consumer.unsubscribe()
    rig.publish("c")
    assert consumer.bodies == ["a", "b"]
    assert (rig.stats.leased, rig.stats.ready) == (1, 2)
    assert rig.entry(consumer.inbox[1].seq).deliveries == 0, "a graceful return"
    assert consumer.ack(1).lost == []
    assert flat(consumer.ack(2).lost) == [2]


def test_what_an_unsubscribed_one_has_leased_expires_as_ever() -> None:
    rig = prompt()
    consumer = rig.subscribe(lease_ms=1_000)
    rig.publish("a")
    consumer.unsubscribe()
    other = rig.subscribe()
    rig.wait(999)
    assert other.bodies == []
    rig.wait(2)
    assert other.bodies == ["a"]


def test_a_session_that_ends_gives_everything_back_at_once() -> None:
    rig = Rig()
    consumer = rig.subscribe(explicit=True)
    rig.publish("a", "b")
    consumer.start(1)
    consumer.end()
    other = rig.subscribe()
    assert [(got.body, got.attempt, got.deliveries) for got in other.inbox] == [
        ("a", 2, 0),
        ("b", 1, 0),
    ]
    assert rig.stats.subscriptions == 1
    assert flat(consumer.ack(1, 2).lost) == [1, 2]
    consumer.end()


def test_the_void_is_durable_before_it_is_granted_again() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    other = rig.subscribe()
    rig.hold = {Settle}
    consumer.end()
    assert other.bodies == []
    assert rig.state(consumer.inbox[0].seq) == "retrying"
    rig.finish()
    assert other.bodies == ["a"]


# Away and back


def drop_and_resume(consumer: Consumer, *held: int) -> list[int]:
    consumer.detach()
    return flat(consumer.resume(*held))


def test_who_is_away_gets_nothing_and_keeps_what_it_has() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    consumer.detach(30_000)
    rig.publish("b")
    rig.wait(29_999)
    assert rig.stats.leased == 1
    assert consumer.resume(1) == []
    assert consumer.bodies == ["a", "b"]
    assert consumer.ack(1, 2).lost == []


def test_who_does_not_come_back_loses_everything_and_it_counts() -> None:
    rig = prompt()
    consumer = rig.subscribe(explicit=True)
    rig.publish("a", "b")
    consumer.start(1)
    consumer.detach(5_000)
    rig.wait(5_000)
    assert rig.stats.subscriptions == 0
    other = rig.subscribe()
    assert {got.body: (got.attempt, got.deliveries) for got in other.inbox} == {
        "a": (2, 1),
        "b": (1, 1),
    }
    assert consumer.resume(1, 2) == [(consumer.sub.prefix, 1, 2)]


def test_leases_run_on_while_a_session_is_away() -> None:
    rig = prompt()
    consumer = rig.subscribe(lease_ms=1_000)
    rig.publish("a", "b")
    consumer.extend(60_000, 2)
    consumer.detach(30_000)
    rig.wait(1_000)
    assert flat(consumer.resume(1, 2)) == [1], "listed but gone"
    assert consumer.ack(2).lost == []


def test_what_is_held_and_not_listed_is_sent_again_under_the_same_receipt() -> None:
    rig = Rig()
    consumer = rig.subscribe(explicit=True)
    rig.publish("a", "b")
    consumer.start(2)
    consumer.inbox = []
    assert drop_and_resume(consumer, 1) == []
    (got,) = consumer.inbox
    assert (got.body, got.n, got.attempt, got.again, got.started) == ("b", 2, 1, True, True)
    assert consumer.ack(1, 2).lost == []


def test_what_was_settled_is_not_lost() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    consumer.ack(1)
    assert drop_and_resume(consumer, 1) == []
    assert flat(consumer.ack(1).duplicate) == [1]


def test_everything_listed_that_it_never_got_is_lost() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    consumer.detach()
    prefix = consumer.sub.prefix
    lost = consumer.resume_runs([("other", 3, 9), (prefix, 1, 5_000)])
    assert lost == [("other", 3, 9), (prefix, 2, 5_000)]
    assert rig.stats.leased == 1


def test_frames_of_the_older_socket_no_longer_count() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    stale = consumer.sub.generation
    consumer.detach()
    assert flat(consumer.ack(1, generation=stale).lost) == [1]
    consumer.resume(1)
    for refused in (
        consumer.ack(1, generation=stale),
        consumer.nack(1, generation=stale),
        consumer.start(1, generation=stale),
        consumer.extend(9_000, 1, generation=stale),
    ):
        assert flat(refused.lost) == [1]
    assert rig.stats.leased == 1
    assert consumer.ack(1).lost == []


def test_a_take_over_without_a_drop_ends_the_older_socket_too() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    stale = consumer.sub.generation
    consumer.resume(1)
    assert flat(consumer.ack(1, generation=stale).lost) == [1]


def test_a_body_that_is_not_in_memory_is_read_before_it_is_sent_again() -> None:
    rig = Rig(bounds=Bounds(window_messages=2))
    consumer = rig.subscribe()
    rig.publish("a", "b")
    assert rig.entry(consumer.inbox[0].seq).message is None
    consumer.inbox = []
    assert drop_and_resume(consumer) == []
    assert sorted(consumer.bodies) == ["a", "b"]
    assert sorted(consumer.numbers) == [1, 2]


def test_what_was_settled_before_it_could_be_read_is_not_sent_again() -> None:
    rig = Rig(bounds=Bounds(window_messages=2))
    consumer = rig.subscribe()
    rig.publish("a", "b")
    consumer.inbox = []
    rig.hold = {Fetch}
    drop_and_resume(consumer)
    consumer.ack(1)
    rig.hold = set()
    rig.finish()
    assert consumer.bodies == ["b"]


def test_a_read_that_comes_after_the_message_ended_is_let_go() -> None:
    rig = Rig(bounds=Bounds(window_messages=2, bucket_ms=10, fetch_messages=1))
    consumer = rig.subscribe()
    rig.publish(*"abcdefgh")
    assert len(consumer.inbox) == 8
    consumer.inbox = []
    rig.hold = {Fetch}
    drop_and_resume(consumer)
    assert len(rig.held(Fetch)) == 4, "the others wait for their turn"
    consumer.ack(*range(1, 9))
    rig.wait(10)
    assert rig.buckets()[0].drained
    rig.hold = set()
    rig.finish()
    assert consumer.bodies == []
    assert rig.stats.stored == 0


def test_who_is_away_and_ends_gives_back_once() -> None:
    rig = prompt()
    consumer = rig.subscribe()
    rig.publish("a")
    consumer.detach(5_000)
    consumer.end()
    other = rig.subscribe()
    rig.wait(6_000)
    assert [(got.body, got.attempt) for got in other.inbox] == [("a", 2)]


# Idle consumers


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
    assert [got.deliveries for got in idle.inbox] == [1, 1]
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


# The lease cache


def test_the_cache_hears_of_grants_starts_extensions_and_ends() -> None:
    rig = Rig(cached=True)
    consumer = rig.subscribe(explicit=True, lease_ms=1_000)
    rig.publish(*"abcde")
    prefix = consumer.sub.prefix
    assert sorted(rig.cache) == [(prefix, n) for n in range(1, 6)]
    assert not rig.cache[prefix, 1].started
    consumer.start(1)
    consumer.start()
    lease = rig.cache[prefix, 1]
    assert (lease.started, lease.attempts, lease.deadline) == (True, 0, rig.wall + 1_000)
    consumer.extend(9_000, 1)
    consumer.extend(9_000)
    assert rig.cache[prefix, 1].deadline == rig.wall + 9_000
    consumer.ack(1)
    consumer.nack(2, delay_ms=50_000)
    consumer.nack(3, dead=True)
    assert sorted(rig.cache) == [(prefix, 4), (prefix, 5)]
    consumer.end()
    assert rig.cache == {}


def test_the_cache_hears_of_leases_that_ran_out() -> None:
    rig = Rig(cached=True)
    consumer = rig.subscribe(lease_ms=1_000)
    rig.publish("a")
    consumer.credit(0)
    rig.wait(1_000)
    assert rig.cache == {}
    assert rig.stats.subscriptions == 1
    assert rig.explain(consumer.inbox[0].seq, LANE).error == "lease expired"
