"""Consumers: credit, fairness, backoff, receipts, and what the lease cache hears of them."""

import pytest

from pushlane.wire.errors import BadRequest, Throttled
from pushlane_dispatcher.core.act import ACK
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Forget, Settle, SettleTicket
from pushlane_dispatcher.core.places import Claim, Claims
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.consumer import flat
from tests.dispatcher.core.harness import LANE, Rig, prompt

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


def test_of_all_subscriptions_nobody_gets_more_than_a_share() -> None:
    rig = Rig(bounds=Bounds(subscriptions=10))
    mine: Claims = (Claim("key:mine", 50), Claim("token:mine", 20))
    own = [rig.subscribe(claims=mine) for _ in range(2)]
    with pytest.raises(Throttled) as refused:
        rig.subscribe(claims=mine)
    assert refused.value.limit == "subscriptions_share"
    for _ in range(3):
        rig.subscribe(claims=mine[:1])
    with pytest.raises(Throttled):
        rig.subscribe(claims=mine[:1])
    for _ in range(5):
        rig.subscribe(claims=(Claim("key:other", 50),))
    own[0].end()
    rig.subscribe(claims=mine)


def test_what_was_restored_counts_for_who_goes_on_with_it() -> None:
    rig = Rig(bounds=Bounds(subscriptions=4), cached=True)
    mine: Claims = (Claim("key:mine", 50),)
    rig.publish("a", "b")
    own = [rig.subscribe(1, claims=mine) for _ in range(2)]
    assert [len(consumer.inbox) for consumer in own] == [1, 1]
    rig.crash()
    restored = list(rig.shard.consumers.subscriptions.values())
    for subscription in restored:
        rig.shard.claim(subscription, mine)
    with pytest.raises(Throttled):
        rig.subscribe(claims=mine)
    rig.shard.end(restored[0], rig.now)
    rig.subscribe(claims=mine)


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


@pytest.mark.parametrize("how", ["start", "extend"])
def test_a_duplicate_is_told_only_when_what_it_confirms_is_durable(how: str) -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    rig.hold = {Settle}
    consumer.ack(1)
    late = consumer.start(1) if how == "start" else consumer.extend(9_000, 1)
    assert flat(late.duplicate) == [1]
    assert rig.done == []
    rig.finish()
    assert late in rig.done


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


def test_what_the_lease_cache_forgets_is_as_few_runs_as_it_makes() -> None:
    rig = Rig(cached=True)
    consumer = rig.subscribe()
    rig.publish(*"abcdefg")
    sub, ticket = consumer.sub, SettleTicket()
    prefix = sub.prefix
    receipts = [(prefix, 1, 1), (prefix, 2, 2), (prefix, 4, 9), (prefix, 2, 3)]
    rig.shard.settle(sub, sub.generation, ACK, receipts, ticket, rig.now)
    [forget] = [each for each in rig.shard.effects(rig.now) if isinstance(each, Forget)]
    assert forget.receipts == [(prefix, 1, 2), (prefix, 4, 7), (prefix, 3, 3)]
    assert (flat(ticket.lost), flat(ticket.duplicate)) == ([8, 9], [2])


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
