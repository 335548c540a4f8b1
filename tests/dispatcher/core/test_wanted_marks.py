"""Which buckets' marks a new owner reads: enough to recognise every repeat, and no more."""

from pushlane_dispatcher.core.bounds import TRANSFER_WINDOW_MS
from pushlane_dispatcher.core.recovered import Recovered, RecoveredBucket
from pushlane_dispatcher.core.wanted_marks import wanted_marks
from pushlane_storage.bucket import Bucket, BucketKey, MarkSummary
from pushlane_storage.settlement import BucketState

WALL = 10 * TRANSFER_WINDOW_MS
WINDOW = 1_000
KEEP = 10
IDS = 1_000


def bucket(
    start: int, marks: MarkSummary, age: int = 0, epoch: int = 1, closed: bool = True
) -> Bucket:
    key = BucketKey(4, epoch, start)
    return Bucket(key, start, closed, count=9, last_at=WALL - age, marks=marks)


def numbers(**producers: tuple[int, int]) -> MarkSummary:
    return MarkSummary(producers=producers)


def wanted(
    *rows: Bucket, drained: tuple[Bucket, ...] = (), wall: int = WALL
) -> tuple[list[int], dict[str, int]]:
    recovered = Recovered(
        buckets=[RecoveredBucket(row, BucketState()) for row in rows], drained=list(drained)
    )
    found = wanted_marks(recovered, WINDOW, wall, KEEP, IDS)
    return [row.key.start for row in found], recovered.floors


def test_nothing_without_marks() -> None:
    assert wanted(bucket(1, MarkSummary())) == ([], {})


def test_ids_within_their_window() -> None:
    young, old = bucket(2, MarkSummary(ids=1), 999), bucket(1, MarkSummary(ids=1), 1_000)
    assert wanted(young, old) == ([2], {})
    assert wanted(drained=(young, old)) == ([2], {})


def test_as_many_ids_as_are_kept_when_time_can_not_tell() -> None:
    ids, transfers = MarkSummary(ids=IDS - 2), MarkSummary(transfers=1)
    rows = [bucket(4, ids), bucket(3, transfers, WALL), bucket(2, ids, WALL), bucket(1, ids)]
    assert wanted(*rows, wall=0) == ([4, 3, 2], {})


def test_transfers_of_a_day() -> None:
    marks = MarkSummary(transfers=1)
    young = bucket(2, marks, TRANSFER_WINDOW_MS - 1)
    assert wanted(young, bucket(1, marks, TRANSFER_WINDOW_MS)) == ([2], {})


def test_the_newest_numbers_of_every_producer() -> None:
    rows = [
        bucket(1, numbers(p=(9, 9), q=(1, 5))),
        bucket(2, numbers(p=(9, 18))),
        bucket(3, numbers(p=(9, 27))),
        bucket(4, numbers(p=(9, 36))),
    ]
    assert wanted(*rows) == ([4, 3, 1], {"p": 18})


def test_a_newer_epoch_is_newer() -> None:
    old, new = bucket(9, numbers(p=(10, 10))), bucket(1, numbers(p=(10, 20)), epoch=2)
    assert wanted(old, new) == ([1], {"p": 10})


def test_what_was_read_already_counts() -> None:
    cut_off = bucket(2, numbers(p=(10, 20)), closed=False)
    assert wanted(bucket(1, numbers(p=(10, 10))), cut_off) == ([], {"p": 10})


def test_too_many_producers_to_list() -> None:
    many = MarkSummary(producers=None)
    assert wanted(bucket(1, many), bucket(2, many, TRANSFER_WINDOW_MS)) == ([1], {})


def test_producers_that_were_silent_for_long_are_forgotten() -> None:
    old = bucket(1, numbers(p=(3, 3), q=(3, 3)), TRANSFER_WINDOW_MS)
    assert wanted(old) == ([], {})
    assert wanted(old, bucket(2, numbers(p=(1, 4)))) == ([2], {"p": 3})
