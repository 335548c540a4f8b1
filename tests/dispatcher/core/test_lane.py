"""A lane: its ready messages in order of seq, and its buckets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import Lane, LiveBucket
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.marks import Marks
from pushlane_storage.bucket import BucketKey
from pushlane_storage.seq import make_seq


def entry(lane: Lane, seq: int) -> Entry:
    return Entry(seq, lane, None, 64, State.READY, 0)


def seqs(entries: list[Entry]) -> list[int]:
    return [each.seq for each in entries]


def make_lane(fresh: list[int], again: list[int]) -> Lane:
    lane = Lane(4, 1)
    lane.fresh.extend(entry(lane, seq) for seq in sorted(fresh))
    for seq in again:
        lane.put_back(entry(lane, seq))
    return lane


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.integers(1, 5))
def test_ready_messages_are_taken_in_order(fresh: set[int], again: set[int], count: int) -> None:
    again -= fresh
    lane = make_lane(list(fresh), list(again))
    taken: list[int] = []
    while lane.ready:
        head = lane.head()
        some = seqs(lane.take(count))
        assert head is not None
        assert head.seq == some[0]
        assert 1 <= len(some) <= count
        assert set(some) <= fresh or set(some) <= again, "all without a past, or not"
        taken += some
    assert taken == sorted(fresh | again)
    assert lane.head() is None
    assert lane.take(1) == []


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_what_is_removed_is_not_taken(fresh: set[int], again: set[int], gone: set[int]) -> None:
    again -= fresh
    lane = make_lane(list(fresh), list(again))
    lane.remove([each for each in lane.fresh if each.seq in gone])
    lane.remove([each for _, each in lane.again if each.seq in gone])
    taken: list[int] = []
    while lane.ready:
        taken += seqs(lane.take(3))
    assert taken == sorted((fresh | again) - gone)


def test_a_new_lane_is_empty() -> None:
    lane = Lane(4, 3)
    assert lane.stored == make_seq(3, 0)
    assert (lane.ready, lane.head(), lane.bucket_of(0), lane.bucket_from(0)) == (
        0,
        None,
        None,
        None,
    )


# Buckets


@pytest.fixture
def lane() -> Lane:
    """Buckets with seqs 10..14 and 20..22; what was between is drained."""
    lane = Lane(4, 1)
    for first, count in ((10, 5), (20, 3)):
        bucket = LiveBucket(BucketKey(4, 1, first), first, 0, Marks(10))
        bucket.assigned = bucket.count = count
        bucket.size = 100 * count
        lane.buckets.append(bucket)
    return lane


def test_the_bucket_of_a_message(lane: Lane) -> None:
    one, two = lane.buckets
    found = [lane.bucket_of(seq) for seq in (9, 10, 14, 15, 19, 20, 22, 23)]
    assert found == [None, one, one, None, None, two, two, None]


def test_the_bucket_from_a_place_on(lane: Lane) -> None:
    one, two = lane.buckets
    found = [lane.bucket_from(seq) for seq in (0, 10, 14, 15, 20, 22, 23)]
    assert found == [one, one, one, two, two, two, None]


def test_a_bucket_counts_what_is_unsettled_by_its_average(lane: Lane) -> None:
    bucket = lane.buckets[0]
    assert bucket.unsettled() == (5, 500)
    bucket.state.end("expired", 10, 12)
    assert bucket.unsettled() == (2, 200)
    bucket.state.end("expired", 13, 14)
    assert (bucket.unsettled(), bucket.drained) == ((0, 0), False), "more may come"
    bucket.closed = True
    assert (bucket.unsettled(), bucket.drained) == ((0, 0), True)
    assert bucket.row().count == 5


def test_an_entry_knows_its_order(lane: Lane) -> None:
    assert entry(lane, 7).order == (4, 7)
