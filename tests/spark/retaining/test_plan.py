"""Which buckets: a plan needs no store."""

from __future__ import annotations

from pushlane_spark.retaining.plan import (
    MARKS,
    NO_ARCHIVE,
    ORPHAN_MS,
    OWNER,
    Found,
    Plan,
    Queue,
    groups,
    make_plan,
)
from pushlane_storage.bucket import Bucket, BucketKey, MarkSummary, ShardKey
from pushlane_storage.dropping import CLOCK_MARGIN_MS
from pushlane_storage.queue import QueueConfig

KEPT_MS, WINDOW_MS = 1_000_000, 1_000
NOW = 10_000_000_000


def queue(id: str, archive: str) -> Queue:
    config = QueueConfig(archive=archive, retention_ms=KEPT_MS, dedup_window_ms=WINDOW_MS)  # type: ignore[arg-type]
    return Queue("t", id, id, config)


QUEUES = {"plain": queue("plain", "none"), "kept": queue("kept", "parquet")}


def found(
    id: str,
    *,
    closed: bool = True,
    drained: bool = True,
    age: int = 10 * KEPT_MS,
    ids: int = 1,
    count: int = 5,
) -> Found:
    at = NOW - age
    bucket = Bucket(BucketKey(4, 1, at), 0, closed, drained, count, 9, at, MarkSummary(ids))
    return Found(ShardKey(id, 0), bucket)


def planned(*rows: Found, can_archive: bool = True) -> Plan:
    return make_plan(QUEUES, rows, NOW, can_archive=can_archive)


def test_drained_buckets_are_archived_where_that_is_asked_for_and_dropped_elsewhere() -> None:
    plain, kept = found("plain"), found("kept")
    assert planned(plain, kept) == Plan(archive=[kept], drop=[plain])
    assert planned(kept, can_archive=False) == Plan(waiting={NO_ARCHIVE: [kept]})


def test_what_is_not_drained_is_left_alone() -> None:
    for closed in (True, False):
        young = found("kept", closed=closed, drained=False, age=KEPT_MS - 1)
        assert planned(young) == Plan()
        old = found("kept", closed=closed, drained=False, age=KEPT_MS + 1)
        assert planned(old) == Plan(waiting={OWNER: [old]})


def test_marks_are_waited_for() -> None:
    young = found("plain", age=WINDOW_MS + CLOCK_MARGIN_MS - 1)
    old = found("plain", age=WINDOW_MS + CLOCK_MARGIN_MS)
    unmarked = found("plain", age=0, ids=0)
    assert planned(young, old, unmarked) == Plan(drop=[old, unmarked], waiting={MARKS: [young]})


def test_what_belongs_to_no_queue_has_to_be_old() -> None:
    young, old = found("?", age=ORPHAN_MS), found("?", age=ORPHAN_MS + 1, drained=False)
    assert planned(young, old) == Plan(orphans={"?": [old]})


def test_groups_are_of_neighbours_and_bounded() -> None:
    rows = [found("kept", count=count) for count in (5, 5, 1, 20, 3)]
    sizes = [[one.bucket.count for one in group] for group in groups(rows, 10)]
    assert sizes == [[5, 5], [1], [20], [3]]
    assert list(groups([])) == []
