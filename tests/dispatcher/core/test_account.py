"""The account: the lifetime of a shard is the same whoever asks, before and after a crash."""

from __future__ import annotations

from pushlane_dispatcher.core.account import Account
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.lane import Lane, LiveBucket
from pushlane_dispatcher.core.marks import Marks
from pushlane_dispatcher.core.recovered import RecoveredBucket
from pushlane_storage.bucket import Bucket, BucketKey
from pushlane_storage.settlement import BucketState
from pushlane_storage.tally import Tally
from tests.dispatcher.core.harness import Rig


def test_everything_is_counted_by_how_it_ended() -> None:
    rig = Rig(bounds=Bounds(bucket_messages=3))
    consumer = rig.subscribe(credit=4)
    for number in range(7):
        rig.publish(str(number))
    first, second, third, fourth = consumer.numbers
    consumer.ack(first, second)
    consumer.nack(third, dead=True)
    consumer.nack(fourth, dead=True)
    rig.purge()
    lifetime = rig.shard.lifetime()
    assert lifetime["published"] == 7
    assert lifetime["acked"] == 2
    assert lifetime["dead.rejected"] == 2
    stored = lifetime.pop("stored_bytes", 0)
    assert stored == rig.shard.overflow.bytes
    assert sum(lifetime.values()) == 7 + 7 - rig.stats.stored
    assert rig.shard.account.drained


def test_a_new_owner_finds_what_its_predecessor_did() -> None:
    rig = Rig(bounds=Bounds(bucket_messages=3))
    consumer = rig.subscribe()
    for number in range(4):
        rig.publish(str(number))
    consumer.ack(*consumer.numbers[1:])
    before = rig.shard.lifetime()
    assert before == {"published": 4, "acked": 3, "stored_bytes": rig.shard.overflow.bytes}
    assert before["stored_bytes"] > 0
    rig.crash()
    assert rig.shard.lifetime() == before


def test_a_bucket_in_the_tally_is_not_counted_again() -> None:
    kept, gone = BucketKey(4, 1, 1), BucketKey(4, 1, 2)
    tally = Tally(1, {}, {"published": 5, "acked": 5}, frozenset([kept, gone]))
    account = Account(tally, [RecoveredBucket(Bucket(kept, 0), BucketState())])
    assert account.counted == {kept}
    lane = Lane(4, 2)
    bucket = LiveBucket(kept, 0, 0, Marks(1))
    bucket.count = 5
    lane.buckets.append(bucket)
    assert account.lifetime([lane]) == {"published": 5, "acked": 5}
    account.drain(bucket)
    assert account.drained == {"published": 5, "acked": 5}
    account.marked(kept)
    account.marked(kept)
    assert account.counted == set()
