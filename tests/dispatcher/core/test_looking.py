"""Looking at messages and consumers changes nothing."""

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Page, Settle
from pushlane_dispatcher.core.looking import ConsumerInfo, Located
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.harness import LANE, Rig


def waiting(rig: Rig, lane: int = LANE) -> list[int]:
    """Seqs of what waits for a consumer, as who goes through the queue finds them."""
    found, start = [], 0
    while (stretch := rig.shard.stretch(lane, start)) is not None:
        for seq in range(stretch.first, stretch.last + 1):
            message = rig.stored(lane, seq)
            assert message is not None
            if rig.shard.in_line(lane, seq, message.not_before, rig.now) is not None:
                found.append(seq)
        start = stretch.last + 1
    return found


def test_what_is_ready_or_blocked_is_in_line() -> None:
    rig = Rig(QueueConfig(backoff_base_ms=60_000))
    seqs = rig.publish("a", "b", "c").seqs
    keyed = rig.publish("one", "two", key="k").seqs
    rig.publish("later", not_before=rig.wall + 1_000)
    rig.publish("much later", not_before=rig.wall + 86_400_000)
    assert waiting(rig) == [*seqs, *keyed]
    consumer = rig.subscribe(2)
    assert waiting(rig) == [seqs[2], *keyed], "what somebody has is not"
    consumer.ack(1)
    consumer.nack(2)
    assert waiting(rig) == [*keyed], "nor what waits for its next attempt"
    assert rig.shard.stretch(LANE, 0) is not None
    assert rig.shard.stretch(LANE, 1 << 60) is None


def test_the_line_goes_on_behind_the_window() -> None:
    rig = Rig(bounds=Bounds(window_messages=1, segment_messages=1, bucket_messages=2))
    seqs = rig.publish("a", "b", "c", "d").seqs
    rig.publish("later", not_before=rig.wall + 1_000)
    assert waiting(rig) == seqs
    assert len(rig.buckets()) > 2
    rig.subscribe(2)
    assert waiting(rig) == seqs[2:]


def test_a_bucket_without_anything_unsettled_is_passed_over() -> None:
    rig = Rig(bounds=Bounds(segment_messages=1, bucket_messages=100))
    rig.publish("a", "b")
    consumer = rig.subscribe(2)
    consumer.ack(1, 2)
    assert rig.shard.stretch(LANE, 0) is None
    assert waiting(rig) == []


def test_the_attempts_of_what_is_in_line() -> None:
    rig = Rig(QueueConfig(backoff_base_ms=0))
    first, second = rig.publish("a", "b").seqs
    consumer = rig.subscribe(1)
    consumer.credit(0)
    consumer.nack(1, delay_ms=0)
    assert rig.shard.in_line(LANE, first, 0, rig.now) == 1
    assert rig.shard.in_line(LANE, second, 0, rig.now) == 0
    assert rig.shard.in_line(LANE, second + 1, 0, rig.now) is None


def test_what_an_earlier_owner_voided_waits_for_its_time() -> None:
    rig = Rig()
    (seq,) = rig.publish("a").seqs
    rig.subscribe(1).nack(1, delay_ms=60_000)
    rig.hold = {Page}
    rig.crash()
    assert rig.shard.in_line(LANE, seq, 0, rig.now) is None
    assert rig.shard.in_line(LANE, seq, 0, rig.now + 60_000) == 1


def test_nothing_of_a_purge_is_in_line() -> None:
    rig = Rig(bounds=Bounds(window_messages=1, segment_messages=1))
    rig.publish("a", "b", "c")
    rig.hold = {Settle}
    rig.purge()
    assert waiting(rig) == []
    rig.hold = set()
    rig.finish()


def test_messages_are_located_until_they_end() -> None:
    rig = Rig()
    first, second = rig.publish("a", "b").seqs
    (bucket,) = rig.buckets()
    found = rig.shard.locate(LANE, first)
    assert found == Located(bucket.key, 0, rig.stored(LANE, first))
    consumer = rig.subscribe(1)
    assert rig.shard.locate(LANE, first) == Located(bucket.key, 1, rig.stored(LANE, first))
    consumer.ack(1)
    assert rig.shard.locate(LANE, first) is None
    assert rig.shard.locate(LANE, second + 1) is None
    assert rig.shard.locate(7, second) is None


def test_what_is_behind_the_window_is_in_the_store() -> None:
    rig = Rig(bounds=Bounds(window_messages=1, segment_messages=1))
    seqs = rig.publish("a", "b", "c").seqs
    (bucket,) = rig.buckets()
    assert rig.shard.locate(LANE, seqs[2]) == Located(bucket.key, 0, None)
    rig.purge()
    assert rig.shard.locate(LANE, seqs[2]) is None


def test_what_a_purge_still_writes_can_not_be_located_behind_the_window() -> None:
    rig = Rig(bounds=Bounds(window_messages=1, segment_messages=1))
    seqs = rig.publish("a", "b", "c").seqs
    rig.hold = {Settle}
    rig.purge()
    assert rig.shard.locate(LANE, seqs[2]) is None
    rig.hold = set()
    rig.finish()


def test_attempts_of_what_an_earlier_owner_voided() -> None:
    rig = Rig()
    (seq,) = rig.publish("a").seqs
    consumer = rig.subscribe(2)
    consumer.nack(1, delay_ms=60_000)
    rig.hold = {Page}
    rig.crash()
    (bucket,) = rig.buckets()
    assert rig.shard.locate(LANE, seq) == Located(bucket.key, 1, None)


def test_the_roster() -> None:
    rig = Rig()
    rig.publish("a", "b", "c")
    explicit = rig.subscribe(2, explicit=True, session="one")
    explicit.start(1)
    rig.subscribe(5, ack_none=True, session="two")
    away = rig.subscribe(7, session="three", lease_ms=5_000)
    away.detach()
    info = ConsumerInfo(
        session="one", client="", shard=0, state="active", credit=2, reserved=1, leased=1,
        lease_ms=30_000, ack="explicit",
    )  # fmt: skip
    assert rig.shard.roster()[0] == info
    assert [found.state for found in rig.shard.roster()] == ["active", "active", "away"]
    assert [found.ack for found in rig.shard.roster()] == ["explicit", "none", "explicit"]
    assert rig.shard.roster()[2].lease_ms == 5_000
    explicit.unsubscribe()
    assert rig.shard.roster()[0].state == "closed"
