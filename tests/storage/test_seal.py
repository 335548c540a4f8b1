"""Seals: where each older epoch ends, and what exists of a shard by them.

tests/dispatcher/core/test_recovered.py has the cases of a new owner.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pushlane_storage.bucket import CONTROL, Bucket, BucketKey
from pushlane_storage.seal import (
    Folding,
    Seal,
    Seals,
    ShardRows,
    count_flushes,
    count_stored,
    fold_shard,
)
from pushlane_storage.segment import SegmentHead
from pushlane_storage.seq import make_seq
from pushlane_storage.settlement import BucketState, Gone, Purge, Settlement

A, B = BucketKey(4, 1, 10), BucketKey(4, 1, 20)
FIRST = make_seq(1, 0)


def test_without_a_seal_everything_may_exist() -> None:
    seals = Seals()
    assert seals.counters(4, 1) is None
    assert seals.flushes(1) is None


def test_a_seal_says_where_an_epoch_ends() -> None:
    seals = Seals([Seal(2, [(4, 1, 10), (9, 1, 0)], [(1, 3)])])
    assert (seals.counters(4, 1), seals.counters(9, 1)) == (10, 0)
    assert seals.flushes(1) == 3


def test_what_a_seal_does_not_mention_does_not_exist() -> None:
    seals = Seals([Seal(4, [(4, 1, 10)], [(1, 3)])])
    assert seals.counters(0, 1) == 0
    assert seals.counters(4, 3) == 0
    assert seals.flushes(2) == 0


def test_a_seal_says_nothing_of_its_owner_and_later_ones() -> None:
    seals = Seals([Seal(4, [], [])])
    assert seals.counters(4, 4) is None
    assert seals.flushes(4) is None
    assert seals.counters(4, 5) is None


def test_the_newest_seal_decides() -> None:
    # The owner with epoch 2 read 10 counters of epoch 1 and stalled. An 11th landed, the owner
    # with epoch 3 sealed 11 and confirmed it; then the first seal landed, too late to count.
    late = Seal(2, [(4, 1, 10)], [(1, 3)])
    newest = Seal(3, [(4, 1, 11), (4, 2, 7)], [(1, 4), (2, 6)])
    for seals in (Seals([late, newest]), Seals([newest, late])):
        assert (seals.counters(4, 1), seals.flushes(1)) == (11, 4)
        assert (seals.counters(4, 2), seals.flushes(2)) == (7, 6)
        assert seals.counters(4, 3) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=6))
def test_rows_of_a_zombie_change_nothing(stored: list[tuple[int, int]]) -> None:
    """Each owner carries on what the seals before it say, whatever a zombie added since."""
    rows: list[Seal] = []
    for owner in range(1, len(stored)):
        before = Seals(rows)
        counters, flushes = [], []
        for epoch in range(owner):
            found = stored[epoch][0] + owner - 1 - epoch  # more with every owner
            sealed = before.counters(4, epoch)
            counters.append((4, epoch, found if sealed is None else min(found, sealed)))
            flushes.append((epoch, stored[epoch][1]))
        rows.append(Seal(owner, counters, flushes))
    seals = Seals(rows)
    for epoch, expected in enumerate(stored[:-1]):
        assert (seals.counters(4, epoch), seals.flushes(epoch)) == expected


# What exists


def heads(*places: tuple[int, int]) -> list[SegmentHead]:
    return [SegmentHead(make_seq(1, counter), count, 0, 0, []) for counter, count in places]


def counted(rows: ShardRows) -> dict[BucketKey, int]:
    found = count_stored(rows, Seals(rows.seals), rows.buckets)
    return {bucket.key: count for bucket, count in found}


def test_an_open_bucket_ends_at_its_first_gap() -> None:
    rows = ShardRows([], [Bucket(A, FIRST)], {A: heads((0, 3), (3, 2), (6, 1))}, {})
    assert counted(rows) == {A: 5}


def test_a_closed_bucket_is_believed_and_a_seal_more() -> None:
    closed = Bucket(A, FIRST, closed=True, count=9)
    assert counted(ShardRows([], [closed], {}, {})) == {A: 9}
    assert counted(ShardRows([Seal(2, [(4, 1, 7)], [])], [closed], {}, {})) == {A: 7}
    assert counted(ShardRows([Seal(2, [], [])], [closed], {}, {})) == {A: 0}


def test_a_flush_counts_when_it_is_whole() -> None:
    buckets = {A: Bucket(A, FIRST, True, count=5), B: Bucket(B, make_seq(1, 5), True, count=5)}
    first = Settlement(A, 1, 0, [A], acked=[(FIRST, FIRST)])
    half = Settlement(A, 1, 1, [A, B], acked=[(FIRST + 1, FIRST + 1)])
    rows = ShardRows([], list(buckets.values()), {}, {A: [first, half]})
    flushes = count_flushes(rows, Seals(), buckets)
    assert flushes == {1: 1}
    assert list(Folding(rows, flushes).state(buckets[A]).acked) == [(FIRST, FIRST)]
    rows.settlements[B] = [Settlement(B, 1, 1, [A, B], acked=[(FIRST + 5, FIRST + 5)])]
    flushes = count_flushes(rows, Seals(), buckets)
    assert list(Folding(rows, flushes).state(buckets[A]).acked) == [(FIRST, FIRST + 1)]


def test_a_drained_bucket_was_settled_also_where_no_seal_counts_it() -> None:
    """A new owner doesn't read the settlements of drained buckets before it seals."""
    bucket = Bucket(A, FIRST, True, True, count=4)
    rows = [
        Settlement(A, 1, 0, [A], acked=[(FIRST, FIRST + 1)]),
        Settlement(A, 2, 7, [A], gone=[Gone("expired", FIRST + 2, FIRST + 3)]),
    ]
    seals = [Seal(2, [(4, 1, 4)], [(1, 1)]), Seal(3, [(4, 1, 4)], [])]
    found = ShardRows(seals, [bucket], {}, {A: rows})
    flushes = count_flushes(found, Seals(found.seals), {})
    assert flushes == {1: 0, 2: 0}
    assert ends(Folding(found, flushes).state(bucket)) == (
        [(FIRST, FIRST + 1)],
        [(FIRST + 2, FIRST + 3)],
    )
    undrained = Bucket(A, FIRST, True, count=4)
    assert list(Folding(found, flushes).state(undrained).acked) == []


def test_what_a_zombie_wrote_to_a_bucket_that_was_drained_later() -> None:
    """Its successor had read the bucket, and sealed it off."""
    bucket = Bucket(A, FIRST, True, True, count=3)
    rows = [
        Settlement(A, 1, 0, [A], acked=[(FIRST, FIRST)]),
        Settlement(A, 1, 1, [A], acked=[(FIRST + 1, FIRST + 2)]),
        Settlement(A, 2, 0, [A], gone=[Gone("expired", FIRST + 1, FIRST + 1)]),
        Settlement(A, 4, 0, [A], acked=[(FIRST + 2, FIRST + 2)]),
    ]
    seals = [
        Seal(2, [(4, 1, 3)], [(1, 1)]),
        Seal(3, [(4, 1, 3)], [(1, 1), (2, 1)]),
        Seal(4, [(4, 1, 3)], [(1, 1), (2, 1)]),
        Seal(5, [(4, 1, 3)], []),
    ]
    for known in (seals[:3], seals):
        [(_, state)] = fold_shard(ShardRows(known, [bucket], {}, {A: rows}))
        assert ends(state) == ([(FIRST, FIRST), (FIRST + 2, FIRST + 2)], [(FIRST + 1, FIRST + 1)])


def ends(state: BucketState) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    return list(state.acked), list(state.gone["expired"])


def test_a_purge_ends_what_it_did_not_spare() -> None:
    bucket = Bucket(A, FIRST, True, count=5)
    purge = Settlement(CONTROL, 1, 0, [CONTROL], purges=[Purge(4, FIRST + 3, [FIRST + 1])])
    rows = ShardRows([], [bucket], {}, {CONTROL: [purge]})
    state = Folding(rows, count_flushes(rows, Seals(), {A: bucket})).state(bucket)
    assert list(state.gone["purged"]) == [(FIRST, FIRST), (FIRST + 2, FIRST + 3)]


def test_a_shard_is_folded_bucket_by_bucket() -> None:
    drained, cut = Bucket(A, FIRST, True, True, count=2), Bucket(B, make_seq(1, 2), True, count=9)
    settlements = {
        A: [Settlement(A, 1, 5, [A], acked=[(FIRST, FIRST + 1)])],
        B: [
            Settlement(B, 1, 3, [B], gone=[Gone("expired", FIRST + 2, FIRST + 2)]),
            Settlement(B, 1, 4, [B], acked=[(FIRST + 3, FIRST + 3)]),
        ],
    }
    rows = ShardRows([Seal(2, [(4, 1, 6)], [(1, 4)])], [cut, drained], {}, settlements)
    (first, old), (second, new) = fold_shard(rows)
    assert (first, list(old.settled)) == (drained, [(FIRST, FIRST + 1)])
    assert (second.key, second.count) == (B, 4)
    assert list(new.settled) == [(FIRST + 2, FIRST + 2)], "its last flush lies beyond the seal"
