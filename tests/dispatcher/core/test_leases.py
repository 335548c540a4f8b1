"""Two phases, leases and their ends: what consumers hold, and how they lose it."""

from pushlane_dispatcher.core.effects import Settle
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.consumer import flat
from tests.dispatcher.core.harness import Rig, prompt

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


def test_a_reservation_ends_after_reserve_ms_and_that_is_not_the_message_s_fault() -> None:
    rig = Rig(QueueConfig(reserve_ms=2_000, max_deliveries=1))
    consumer = rig.subscribe(explicit=True)
    rig.publish("a")
    rig.wait(2_000)
    assert flat(rig.lost) == [1]
    assert [(got.attempt, got.deliveries) for got in consumer.inbox] == [(1, 0), (1, 0)]
    assert consumer.ack(1).lost != []
    rig.wait(200_000)
    assert consumer.inbox[-1].deliveries == rig.stats.dead == 0


def test_a_slow_worker_with_a_deep_prefetch_loses_nothing() -> None:
    rig = Rig(QueueConfig(reserve_ms=3_000, max_deliveries=2))
    worker = rig.subscribe(16, explicit=True)
    rig.publish(*(f"{n}" for n in range(30)))
    done: set[str] = set()
    while len(done) < 30:
        taken = next(got for got in worker.inbox if got.n in worker.sub.held)
        worker.start(taken.n)
        rig.wait(2_000)
        assert worker.ack(taken.n).lost == []
        done.add(taken.body)
    assert (rig.stats.acked, rig.stats.dead) == (30, 0)


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
    assert [(got.attempt, got.deliveries) for got in one.inbox] == [(1, 0), (2, 0)]
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
