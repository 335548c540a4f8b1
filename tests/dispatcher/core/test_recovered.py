"""Recovery: what counts of what is stored, and the seal that says so for ever."""

import msgspec
import pytest

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Append, Settle
from pushlane_dispatcher.core.recovered import recover, remember
from pushlane_storage.bucket import CONTROL, Bucket, BucketKey, MarkSummary
from pushlane_storage.queue import QueueConfig
from pushlane_storage.seal import Seal, ShardRows
from pushlane_storage.segment import DedupMark, SegmentHead
from pushlane_storage.seq import make_seq
from pushlane_storage.settlement import Leaving, Purge, Settlement, Void
from tests.dispatcher.core.harness import LANE, Rig

A = BucketKey(LANE, 1, 100)
B = BucketKey(LANE, 1, 200)


def seq(counter: int, epoch: int = 1) -> int:
    return make_seq(epoch, counter)


def head(first: int, count: int, *marks: DedupMark) -> SegmentHead:
    return SegmentHead(seq(first), count, 100 * count, 1_000 + first, list(marks))


def flush(bucket: BucketKey, n: int, *parts: BucketKey, owner: int = 1) -> Settlement:
    """A row that acks one message: the n-th of the bucket A, the n-th after 5 of others."""
    acked = seq(n) if bucket == A else seq(5 + n)
    return Settlement(bucket, owner, n, list(parts or [bucket]), acked=[(acked, acked)])


def rows(
    buckets: list[Bucket],
    heads: dict[BucketKey, list[SegmentHead]] | None = None,
    settlements: dict[BucketKey, list[Settlement]] | None = None,
    seals: list[Seal] | None = None,
) -> ShardRows:
    return ShardRows(seals or [], buckets, heads or {}, settlements or {})


OPEN_A = Bucket(A, seq(0))
CLOSED_A = Bucket(A, seq(0), closed=True, count=5, size=500, last_at=1_004)
OPEN_B = Bucket(B, seq(5))


def test_nothing_stored_is_nothing_recovered() -> None:
    seal, recovered = recover(rows([]), 1)
    assert seal == Seal(1, [], [])
    assert (recovered.buckets, recovered.drained, recovered.predecessor) == ([], [], 0)


# What is stored


def test_the_gap_free_prefix_of_a_bucket_counts() -> None:
    heads = {A: [head(0, 2), head(2, 1), head(4, 3)]}
    seal, recovered = recover(rows([OPEN_A], heads), 2)
    (found,) = recovered.buckets
    assert (found.row.count, found.row.size, found.row.last_at) == (3, 300, 1_002)
    assert seal.counters == [(LANE, 1, 3)]


def test_a_closed_bucket_counts_whole() -> None:
    seal, recovered = recover(rows([CLOSED_A, OPEN_B], {B: [head(5, 2)]}), 2)
    assert [found.row.count for found in recovered.buckets] == [5, 2]
    assert recovered.buckets[0].row == CLOSED_A
    assert seal.counters == [(LANE, 1, 7)]


def test_a_bucket_between_that_was_dropped_is_no_gap() -> None:
    behind = Bucket(BucketKey(LANE, 1, 300), seq(50))
    heads = {behind.key: [SegmentHead(seq(50), 2, 200, 0, [])]}
    seal, recovered = recover(rows([CLOSED_A, behind], heads), 2)
    assert [found.row.count for found in recovered.buckets] == [5, 2]
    assert seal.counters == [(LANE, 1, 52)]


def test_a_bucket_without_its_first_segment_is_empty() -> None:
    seal, recovered = recover(rows([OPEN_A], {A: [head(1, 2)]}), 2)
    (found,) = recovered.buckets
    assert (found.row.count, found.row.size, found.row.last_at) == (0, 0, 0)
    assert seal.counters == []


def test_what_is_beyond_a_seal_does_not_exist() -> None:
    sealed = Seal(2, [(LANE, 1, 2)], [])
    late = Bucket(B, seq(5))
    heads = {A: [head(0, 2), head(2, 3)], B: [head(5, 1)]}
    seal, recovered = recover(rows([OPEN_A, late], heads, seals=[sealed]), 3)
    assert [found.row.count for found in recovered.buckets] == [2, 0]
    assert seal.counters == [(LANE, 1, 2)]
    assert recovered.predecessor == 2


def test_also_when_a_zombie_closed_its_bucket() -> None:
    sealed = Seal(2, [(LANE, 1, 2)], [])
    _, recovered = recover(rows([CLOSED_A], seals=[sealed]), 3)
    (found,) = recovered.buckets
    assert (found.row.count, found.row.size, found.row.last_at) == (2, 200, 1_004)
    remember(recovered, found.row, [head(0, 5, DedupMark(seq(1), 9, None, None, "p", 7, 3))])
    assert recovered.marks == [(LANE, DedupMark(seq(1), 9, None, None, "p", 7, 1))]


def test_a_lane_that_a_seal_does_not_name_has_nothing() -> None:
    sealed = Seal(2, [], [])
    seal, recovered = recover(rows([OPEN_A], {A: [head(0, 2)]}, seals=[sealed]), 3)
    assert [found.row.count for found in recovered.buckets] == [0]
    assert seal.counters == []


def test_epochs_and_lanes_are_counted_each() -> None:
    other = Bucket(BucketKey(7, 1, 100), seq(0))
    newer = Bucket(BucketKey(LANE, 2, 100), seq(0, 2))
    own = Bucket(BucketKey(LANE, 3, 100), seq(0, 3))
    heads = {
        A: [head(0, 1)],
        other.key: [head(0, 2)],
        newer.key: [SegmentHead(seq(0, 2), 3, 300, 0, [])],
        own.key: [SegmentHead(seq(0, 3), 3, 300, 0, [])],
    }
    sealed = Seal(2, [(LANE, 1, 1), (7, 1, 2)], [])
    seal, recovered = recover(rows([own, newer, other, OPEN_A], heads, seals=[sealed]), 3)
    assert seal.counters == [(LANE, 1, 1), (LANE, 2, 3), (7, 1, 2)]
    order = [(found.row.key.lane, found.row.key.epoch) for found in recovered.buckets]
    assert order == [(LANE, 1), (LANE, 2), (7, 1)]


def test_marks_of_what_exists_are_kept() -> None:
    marks = [DedupMark(seq(0), 1, dedup="a"), DedupMark(seq(1), 2, dedup="b")]
    sealed = Seal(2, [(LANE, 1, 1)], [])
    heads = {A: [head(0, 2, *marks)]}
    _, recovered = recover(rows([OPEN_A], heads, seals=[sealed]), 3)
    assert recovered.marks == [(LANE, marks[0])]
    assert recovered.buckets[0].row.marks == MarkSummary(ids=1)


def test_a_drained_bucket_is_kept_for_its_marks() -> None:
    drained = msgspec.structs.replace(CLOSED_A, drained=True)
    _, recovered = recover(rows([drained]), 2)
    assert (recovered.buckets, recovered.drained) == ([], [drained])


# Which settlement flushes count


def test_whole_flushes_count() -> None:
    settlements = {A: [flush(A, 0), flush(A, 1)]}
    seal, recovered = recover(rows([CLOSED_A], settlements=settlements), 2)
    assert seal.flushes == [(1, 2)]
    assert recovered.buckets[0].state.settled.count == 2


def test_the_last_flush_may_be_cut_off() -> None:
    settlements = {A: [flush(A, 0), flush(A, 1, A, B)], B: []}
    seal, recovered = recover(rows([CLOSED_A, OPEN_B], {B: [head(5, 9)]}, settlements), 2)
    assert seal.flushes == [(1, 1)]
    assert recovered.buckets[0].state.settled.count == 1


def test_whichever_part_is_there() -> None:
    settlements = {A: [flush(A, 0)], B: [flush(B, 1, A, B)]}
    seal, _ = recover(rows([CLOSED_A, OPEN_B], {B: [head(5, 9)]}, settlements), 2)
    assert seal.flushes == [(1, 1)]


def test_a_flush_with_all_its_parts_counts() -> None:
    settlements = {B: [flush(B, 0, B), flush(B, 1, A, B)], A: [flush(A, 1, A, B)]}
    seal, _ = recover(rows([CLOSED_A, OPEN_B], {B: [head(5, 9)]}, settlements), 2)
    assert seal.flushes == [(1, 2)]


@pytest.mark.parametrize("gone", ["drained", "dropped"])
def test_a_part_in_a_bucket_that_is_gone_was_there(gone: str) -> None:
    buckets = [msgspec.structs.replace(CLOSED_A, drained=True)] if gone == "drained" else []
    settlements = {B: [flush(B, 0, A, B)]}
    seal, _ = recover(rows([*buckets, OPEN_B], {B: [head(5, 9)]}, settlements), 2)
    assert seal.flushes == [(1, 1)]


def test_a_purge_needs_its_own_part() -> None:
    control = Settlement(CONTROL, 1, 0, [CONTROL, A], purges=[Purge(LANE, seq(4))])
    part = Settlement(A, 1, 0, [CONTROL, A], acked=[(seq(0), seq(0))])
    whole = rows([CLOSED_A], settlements={A: [part], CONTROL: [control]})
    seal, recovered = recover(whole, 2)
    assert seal.flushes == [(1, 1)]
    assert recovered.buckets[0].state.settled.count == 5
    for half in ({A: [part], CONTROL: []}, {A: [], CONTROL: [control]}):
        seal, recovered = recover(rows([CLOSED_A], settlements=half), 2)
        assert seal.flushes == [(1, 0)]
        assert recovered.buckets[0].state.settled.count == 0


def test_the_newest_purge_of_a_lane_holds_but_for_what_it_spared() -> None:
    purges = [
        Settlement(CONTROL, 1, n, [CONTROL], purges=[Purge(LANE, seq(upto), spared)])
        for n, (upto, spared) in enumerate([(1, []), (3, [seq(2)])])
    ]
    _, recovered = recover(rows([CLOSED_A], settlements={CONTROL: purges}), 2)
    assert list(recovered.buckets[0].state.settled) == [(seq(0), seq(1)), (seq(3), seq(3))]


def test_a_sealed_owner_has_as_many_flushes_as_its_seal_says() -> None:
    sealed = Seal(2, [(LANE, 1, 5)], [(1, 1)])
    settlements = {A: [flush(A, 0), flush(A, 1)]}
    seal, recovered = recover(rows([CLOSED_A], settlements=settlements, seals=[sealed]), 3)
    assert seal.flushes == [(1, 1)]
    assert recovered.buckets[0].state.settled.count == 1


def test_an_owner_that_a_seal_does_not_name_has_none() -> None:
    sealed = Seal(3, [(LANE, 1, 5)], [])
    settlements = {A: [flush(A, 0, owner=2)]}
    _, recovered = recover(rows([CLOSED_A], settlements=settlements, seals=[sealed]), 4)
    assert recovered.buckets[0].state.settled.count == 0


@pytest.mark.parametrize(
    "row",
    [
        Settlement(A, 1, 1, [A], acked=[(seq(1), seq(2))]),
        Settlement(A, 1, 1, [A], voids=[Void(seq(2), 1, 1, 0)]),
        Settlement(A, 1, 1, [A], leaving=[Leaving(seq(2), "rejected", "q.dead", 1, None, 0)]),
    ],
    ids=["acked", "void", "leaving"],
)
def test_a_flush_that_speaks_of_what_does_not_exist_does_not_count(row: Settlement) -> None:
    """It landed while the new owner read: segments first, settlements then."""
    settlements = {A: [flush(A, 0), row, flush(A, 2)]}
    seal, recovered = recover(rows([OPEN_A], {A: [head(0, 2)]}, settlements), 2)
    assert seal.flushes == [(1, 1)]
    assert recovered.buckets[0].state.settled.count == 1


# With a shard


def test_a_zombie_can_not_publish() -> None:
    rig = Rig(fencing=False)
    rig.publish("a")
    rig.hold = {Append}
    ticket = rig.publish("late")
    rig.hold = set()
    (late,) = rig.crash()
    rig.land(late)
    consumer = rig.subscribe()
    assert consumer.bodies == ["a"]
    consumer.ack(1)
    for _ in range(2):
        rig.crash()
        assert rig.subscribe().bodies == []
    assert ticket not in rig.published
    assert rig.state(ticket.seqs[0]) == "unknown"


def test_a_zombie_can_not_settle() -> None:
    rig = Rig(fencing=False)
    consumer = rig.subscribe()
    rig.publish("a", "b")
    consumer.ack(1)
    rig.hold = {Settle}
    consumer.ack(2)
    rig.hold = set()
    (late,) = rig.crash()
    rig.land(late)
    for _ in range(2):
        rig.crash()
        assert rig.subscribe().bodies == ["b"]


def test_a_zombies_new_bucket_does_not_exist_and_is_cleared_away() -> None:
    rig = Rig(fencing=False, bounds=Bounds(bucket_messages=1))
    rig.publish("a")
    rig.hold = {Append}
    rig.publish("late")
    rig.hold = set()
    (late,) = rig.crash()
    rig.land(late)
    assert len(rig.buckets()) == 2
    rig.crash()
    assert rig.subscribe().bodies == ["a"]
    rig.wait(1)
    assert len(rig.buckets()) == 1


def test_a_bucket_whose_first_segment_never_came_is_cleared_away() -> None:
    rig = Rig(fencing=False)
    rig.hold = {Append}
    rig.publish("a")
    (append,) = rig.held(Append)
    assert append.opens is not None
    rig.tables.append(rig.key, append.segment, append.opens)
    rig.tables._shards[rig.key].buckets[append.opens.key]._segments.clear()
    rig.tables._shards[rig.key].buckets[append.opens.key]._firsts.clear()
    rig.hold = set()
    rig.crash()
    rig.wait(1)
    assert rig.buckets() == []
    rig.publish("b")
    assert rig.subscribe().bodies == ["b"]


def test_many_owners_one_after_the_other() -> None:
    rig = Rig(QueueConfig(max_attempts=99))
    kept: list[str] = []
    for number in range(8):
        rig.publish(f"{number}a", f"{number}b")
        kept.append(f"{number}b")
        rig.crash()
        consumer = rig.subscribe(100)
        assert consumer.bodies == sorted([*kept, f"{number}a"])
        consumer.ack(*[got.n for got in consumer.inbox if got.body.endswith("a")])
    assert rig.seal is not None
    assert len(rig.seal.counters) == 8


def test_a_message_behind_a_drained_and_dropped_bucket_is_not_lost() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=1_000), Bounds(bucket_messages=1, segment_messages=1))
    consumer = rig.subscribe(100)
    rig.publish("a", "b", "c")
    consumer.ack(2)
    rig.wait(2_000)
    assert len(rig.drops) == 1
    for _ in range(3):
        rig.crash()
        assert rig.subscribe().bodies == ["a", "c"]
