"""Looking at messages and consumers changes nothing."""

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Page, Settle
from pushlane_dispatcher.core.looking import ConsumerInfo, Located
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.harness import LANE, Rig


def bodies(rig: Rig, limit: int) -> list[str]:
    return [peeked.message.body.decode() for peeked in rig.shard.peek(limit)]


def test_peek_shows_what_would_go_out_next() -> None:
    rig = Rig(QueueConfig(backoff_base_ms=0))
    rig.publish("b", "c", lane=4)
    rig.publish("a", lane=9)
    rig.publish("later", not_before=rig.wall + 1_000)
    assert bodies(rig, 2) == ["a", "b"]
    assert bodies(rig, 10) == ["a", "b", "c"]
    assert bodies(rig, 0) == []
    assert rig.stats.ready == 3


def test_peek_puts_what_came_back_in_its_place_and_leaves_out_what_is_held() -> None:
    rig = Rig(QueueConfig(backoff_base_ms=0))
    rig.publish("a", "b", "c", "d")
    rig.subscribe(3).end()
    rig.subscribe(1)
    found = rig.shard.peek(10)
    assert [peeked.message.body for peeked in found] == [b"b", b"c", b"d"]
    assert [peeked.attempts for peeked in found] == [1, 1, 0]
    assert (found[0].lane, rig.state(found[0].seq)) == (LANE, "ready")


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
        session="one", shard=0, state="active", credit=2, reserved=1, leased=1,
        lease_ms=30_000, ack="explicit",
    )  # fmt: skip
    assert rig.shard.roster()[0] == info
    assert [found.state for found in rig.shard.roster()] == ["active", "active", "away"]
    assert [found.ack for found in rig.shard.roster()] == ["explicit", "none", "explicit"]
    assert rig.shard.roster()[2].lease_ms == 5_000
    explicit.unsubscribe()
    assert rig.shard.roster()[0].state == "closed"
