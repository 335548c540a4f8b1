"""Verdicts: retry, give back, or the dead letters; durable before the next grant."""

import pytest

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Settle
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.consumer import Got
from tests.dispatcher.core.harness import Rig


def causes(rig: Rig) -> list[tuple[str, int, str | None]]:
    letters = [transfer.message.dead for transfer in rig.transfers]
    return [(dead.cause, dead.attempts, dead.error) for dead in letters if dead is not None]


def past(got: Got) -> tuple[int, int]:
    return got.attempt, got.deliveries


# Retry


@pytest.mark.parametrize("chance", [0.0, 0.25, 0.999])
def test_attempt_n_waits_up_to_its_backoff(chance: float) -> None:
    rig = Rig(QueueConfig(max_attempts=99, backoff_max_ms=6_000))
    rig.chance = chance
    consumer = rig.subscribe(1)
    rig.publish("a")
    for attempt, most in enumerate((1_000, 2_000, 4_000, 6_000, 6_000), 1):
        wait = int(most * chance)
        rig.chance = chance
        consumer.nack(attempt)
        if wait:
            rig.wait(wait - 1)
            assert len(consumer.inbox) == attempt
            rig.wait(1)
        consumer.credit(1)
        rig.wait(10_000 if chance else 0)
        assert len(consumer.inbox) == attempt + 1
        consumer.extend(10**9, attempt + 1)
    assert [got.attempt for got in consumer.inbox] == [1, 2, 3, 4, 5, 6]


def test_a_retry_is_durable_with_attempt_time_and_error() -> None:
    rig = Rig(QueueConfig(backoff_base_ms=60_000))
    consumer = rig.subscribe()
    ticket = rig.publish("a")
    consumer.nack(1, error="boom")
    rig.crash()
    explained = rig.explain(ticket.seqs[0])
    assert (explained.state, explained.attempts, explained.error) == ("retrying", 1, "boom")
    assert explained.until == rig.wall + 30_000


def test_the_void_is_durable_before_the_next_grant() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    ticket = rig.publish("a")
    rig.hold = {Settle}
    consumer.nack(1, delay_ms=0)
    rig.wait(60_000)
    assert consumer.bodies == ["a"]
    assert (rig.state(ticket.seqs[0]), rig.stats.retrying) == ("retrying", 1)
    rig.finish()
    assert consumer.bodies == ["a", "a"]


def test_a_nack_is_answered_when_it_is_durable() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    rig.hold = {Settle}
    ticket = consumer.nack(1)
    assert rig.done == []
    rig.finish()
    assert rig.done == [ticket]


def test_a_nack_may_name_its_delay() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    consumer.nack(1, delay_ms=7_000)
    rig.wait(6_999)
    assert len(consumer.inbox) == 1
    rig.wait(1)
    assert [past(got) for got in consumer.inbox] == [(1, 0), (2, 0)]


def test_a_delay_of_nothing_is_at_once() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    consumer.nack(1, delay_ms=0)
    assert consumer.bodies == ["a", "a"]


def test_a_delay_of_a_message_that_was_not_started_holds_too() -> None:
    rig = Rig()
    consumer = rig.subscribe(explicit=True)
    rig.publish("a")
    consumer.nack(1, delay_ms=5_000)
    rig.wait(4_999)
    assert len(consumer.inbox) == 1
    rig.wait(1)
    assert [past(got) for got in consumer.inbox] == [(1, 0), (1, 0)]


def test_a_long_wait_is_a_bare_position_when_room_runs_low() -> None:
    rig = Rig(bounds=Bounds(window_messages=3))
    consumer = rig.subscribe()
    rig.publish("a")
    rig.hold = {Settle}
    consumer.nack(1, delay_ms=5_000)
    consumer.credit(0)
    rig.publish("b")
    rig.hold = set()
    rig.finish()
    assert (rig.shard.window.bodies.resident, rig.stats.retrying) == (1, 1)
    consumer.credit(10)
    rig.wait(5_000)
    assert consumer.bodies == ["a", "b", "a"]


# Dead letters


def test_after_max_attempts_it_goes_to_the_dead_letters() -> None:
    rig = Rig(QueueConfig(max_attempts=3))
    consumer = rig.subscribe()
    rig.publish("a")
    for n in (1, 2, 3):
        consumer.nack(n, delay_ms=0, error=f"error {n}")
    assert causes(rig) == [("max_attempts", 3, "error 3")]
    assert len(consumer.inbox) == 3
    assert (rig.stats.dead, rig.stats.stored) == (1, 0)


def test_leases_that_expire_are_attempts() -> None:
    rig = Rig(QueueConfig(max_attempts=2, backoff_base_ms=1))
    consumer = rig.subscribe(1, lease_ms=1_000)
    rig.publish("a")
    rig.wait(5_000)
    assert [past(got) for got in consumer.inbox] == [(1, 0), (2, 0)]
    assert causes(rig) == [("max_attempts", 2, "lease expired")]


def test_a_message_that_kills_its_consumer_before_start_ends_in_the_dead_letters() -> None:
    rig = Rig(QueueConfig(max_deliveries=3))
    rig.publish("a")
    for deliveries in range(3):
        consumer = rig.subscribe(explicit=True)
        assert [past(got) for got in consumer.inbox] == [(1, deliveries)]
        consumer.detach(1_000)
        rig.wait(1_000)
        if deliveries == 1:
            rig.crash()
    assert causes(rig) == [("max_deliveries", 0, "connection lost before it was started")]
    assert (rig.stats.dead, rig.stats.stored) == (1, 0)


def test_graceful_returns_are_no_deliveries() -> None:
    rig = Rig(QueueConfig(max_deliveries=2))
    rig.publish("a")
    for _ in range(10):
        consumer = rig.subscribe(explicit=True)
        assert past(consumer.inbox[0]) == (1, 0)
        consumer.end()
    assert rig.transfers == []


def test_nacks_are_no_deliveries() -> None:
    rig = Rig(QueueConfig(max_attempts=99, max_deliveries=2))
    consumer = rig.subscribe()
    rig.publish("a")
    for n in range(1, 6):
        consumer.nack(n, delay_ms=0)
    assert past(consumer.inbox[-1]) == (6, 0)


def test_a_session_that_ends_with_the_last_attempt_under_way_exhausts_it() -> None:
    rig = Rig(QueueConfig(max_attempts=1))
    consumer = rig.subscribe()
    rig.publish("a")
    consumer.end()
    assert causes(rig) == [("max_attempts", 1, None)]


def test_attempts_are_used_up_by_started_ones_only() -> None:
    rig = Rig(QueueConfig(max_attempts=1))
    consumer = rig.subscribe(explicit=True)
    rig.publish("a")
    consumer.nack(1)
    consumer.start(2)
    consumer.nack(2, delay_ms=0)
    assert causes(rig) == [("max_attempts", 1, None)]


def test_reject_sends_it_there_at_once() -> None:
    rig = Rig()
    consumer = rig.subscribe(explicit=True)
    rig.publish("a", "b")
    consumer.start(1)
    ticket = consumer.nack(1, 2, dead=True, error="never")
    assert ticket.lost == []
    assert causes(rig) == [("rejected", 1, "never"), ("rejected", 0, "never")]
    again = consumer.nack(1, dead=True)
    assert again.duplicate == [(consumer.sub.prefix, 1, 1)]


def test_a_rejection_is_no_failure_of_the_consumer() -> None:
    rig = Rig()
    consumer = rig.subscribe(1)
    rig.publish("a", "b")
    consumer.nack(1, dead=True)
    assert consumer.bodies == ["a", "b"]


# Where there are no dead letters


def test_without_dead_letters_it_is_tried_for_ever() -> None:
    rig = Rig(QueueConfig(max_attempts=1, max_deliveries=1), dead_letter=None)
    rig.chance = 0.0
    consumer = rig.subscribe(1, lease_ms=1_000)
    rig.publish("a")
    consumer.nack(1)
    rig.wait(1_000)
    assert [past(got) for got in consumer.inbox] == [(1, 0), (2, 0), (3, 0)]
    assert rig.stats.leased == 1
    consumer.end()
    for deliveries in range(4):
        consumer = rig.subscribe(explicit=True)
        assert past(consumer.inbox[0]) == (4, deliveries)
        consumer.detach(1_000)
        rig.wait(1_000)


def test_without_dead_letters_a_rejection_is_its_end() -> None:
    rig = Rig(dead_letter=None)
    consumer = rig.subscribe(explicit=True)
    ticket = rig.publish("a", "b")
    consumer.start(1)
    consumer.nack(1, 2, dead=True)
    assert (rig.stats.dead, rig.stats.stored) == (2, 0)
    assert rig.state(ticket.seqs[1]) == "dead"


def test_a_queue_may_get_or_lose_its_dead_letters() -> None:
    rig = Rig(QueueConfig(max_attempts=1), dead_letter=None)
    consumer = rig.subscribe()
    rig.publish("a")
    consumer.nack(1, delay_ms=0)
    rig.dead_letter = "elsewhere"
    rig.configure()
    consumer.nack(2, delay_ms=0)
    assert [transfer.to for transfer in rig.transfers] == ["elsewhere"]
