"""Resume: a session that lost its connection comes back, or does not."""

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Fetch
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.consumer import Consumer, flat
from tests.dispatcher.core.harness import Rig, prompt

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
        "a": (2, 0),
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


def test_two_resumes_at_once_send_what_was_not_listed_once() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a", "b")
    consumer.inbox = []
    shard, sub = rig.shard, consumer.sub
    shard.resume(sub, consumer.runs([1]))
    shard.resume(sub, consumer.runs([1]))
    rig.run()
    assert consumer.numbers == [2]
    shard.resume(sub, [])
    shard.resume(sub, consumer.runs([1, 2]))
    rig.run()
    assert consumer.numbers == [2], "the last one has it all"
    shard.resume(sub, [])
    shard.detach(sub, 30_000, rig.now)
    rig.run()
    assert consumer.numbers == [2], "it is away"


def test_what_is_listed_by_the_last_of_two_resumes_is_not_sent_when_its_body_is_read() -> None:
    rig = Rig(bounds=Bounds(window_messages=2))
    consumer = rig.subscribe()
    rig.publish("a", "b")
    consumer.inbox = []
    rig.hold = {Fetch}
    drop_and_resume(consumer)
    drop_and_resume(consumer, 1)
    rig.hold = set()
    rig.finish()
    assert consumer.bodies == ["b"]


# Over a new way to its gateway


def test_what_did_not_come_over_the_old_way_goes_back() -> None:
    rig = Rig()
    consumer = rig.subscribe(5, explicit=True)
    rig.publish("a", "b", "c")
    consumer.credit(1)
    consumer.inbox = []
    consumer.detach()
    assert consumer.adopt(1) == []
    assert (consumer.inbox, rig.stats.reserved, rig.stats.ready) == ([], 1, 2)
    other = rig.subscribe()
    assert [(got.body, got.attempt, got.deliveries) for got in other.inbox] == [
        ("b", 1, 0),
        ("c", 1, 0),
    ]


def test_a_delivery_that_did_not_come_is_no_attempt_though_it_began_the_lease() -> None:
    rig = Rig(QueueConfig(max_attempts=1))
    consumer = rig.subscribe(5)
    rig.publish("a")
    for _ in range(3):
        (got,) = consumer.inbox
        assert (got.attempt, got.again) == (1, False)
        consumer.inbox = []
        assert consumer.adopt() == []
    (got,) = consumer.inbox
    assert got.fence > 3, "a new grant each time"
    assert flat(consumer.ack(1).lost) == [1]
    assert consumer.ack(got.n).lost == []


def test_what_its_client_started_is_sent_again_over_the_new_way() -> None:
    rig = Rig()
    consumer = rig.subscribe(5, explicit=True)
    rig.publish("a")
    consumer.start(1)
    consumer.inbox = []
    assert consumer.adopt() == []
    (got,) = consumer.inbox
    assert (got.n, got.attempt, got.again, got.started) == (1, 1, True, True)


def test_what_goes_back_keeps_its_place_among_those_of_its_key() -> None:
    rig = Rig()
    consumer = rig.subscribe(1)
    rig.publish("a", "b", "c", key="k")
    consumer.adopt()
    for _ in "abc":
        consumer.ack(consumer.inbox[-1].n)
    assert consumer.bodies == ["a", "a", "b", "c"]
