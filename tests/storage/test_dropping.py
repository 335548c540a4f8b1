"""Who may drop what."""

from __future__ import annotations

from typing import Any

from pushlane_storage.bucket import Bucket, BucketKey, MarkSummary, ShardKey
from pushlane_storage.dropping import (
    CLOCK_MARGIN_MS,
    IN_WINDOW,
    NO_CLOCK,
    NOT_DRAINED,
    TRANSFER_WINDOW_MS,
    dedup_window,
    drop_buckets,
    droppable,
)
from pushlane_storage.queue import QueueConfig
from pushlane_storage.seal import Outline

KEY = BucketKey(4, 1, 0)
CONFIG = QueueConfig(dedup_window_ms=1_000)
AT = 5_000


def bucket(marks: MarkSummary = MarkSummary(), *, drained: bool = True) -> Bucket:  # noqa: B008
    return Bucket(KEY, 0, True, drained, 1, 1, AT, marks)


def test_only_what_is_drained() -> None:
    assert droppable(bucket(), CONFIG, AT)
    assert not droppable(bucket(drained=False), CONFIG, AT + 10 * TRANSFER_WINDOW_MS)
    assert not droppable(Bucket(KEY, 0), CONFIG, AT + 10 * TRANSFER_WINDOW_MS)


def test_marks_are_needed_for_their_window_and_a_margin() -> None:
    for marks, window in (
        (MarkSummary(ids=1), 1_000),
        (MarkSummary(producers={"p": (1, 1)}), 1_000),
        (MarkSummary(producers=None), 1_000),
        (MarkSummary(ids=1, transfers=1), TRANSFER_WINDOW_MS),
    ):
        assert dedup_window(marks, CONFIG) == window
        end = AT + window + CLOCK_MARGIN_MS
        assert not droppable(bucket(marks), CONFIG, end - 1)
        assert droppable(bucket(marks), CONFIG, end)


def test_a_queue_without_a_window_remembers_transfers_only() -> None:
    config = QueueConfig(dedup_window_ms=0)
    assert droppable(bucket(MarkSummary(ids=1)), config, AT)
    assert not droppable(bucket(MarkSummary(transfers=1)), config, AT)


def test_a_longer_window_of_the_queue_covers_transfers_too() -> None:
    config = QueueConfig(dedup_window_ms=2 * TRANSFER_WINDOW_MS)
    assert dedup_window(MarkSummary(transfers=1), config) == 2 * TRANSFER_WINDOW_MS


class Rows:
    """A store, as far as dropping needs one."""

    def __init__(self, *rows: Bucket) -> None:
        self.rows = {row.key: row for row in rows}

    async def outline(self, shard: ShardKey) -> Outline:
        return Outline([], list(self.rows.values()), None)

    async def drop(self, shard: ShardKey, key: BucketKey) -> None:
        self.rows.pop(key, None)


def at(start: int, marks: MarkSummary, *, drained: bool = True) -> Bucket:
    return Bucket(BucketKey(4, 1, start), 0, True, drained, 1, 1, AT, marks)


async def test_what_nobody_needs_is_dropped_and_the_rest_says_why() -> None:
    free, needed = at(1, MarkSummary()), at(2, MarkSummary(ids=1))
    busy, gone = at(3, MarkSummary(), drained=False), BucketKey(4, 1, 4)
    store: Any = Rows(free, needed, busy)
    keys = [free.key, needed.key, busy.key, gone]
    shard = ShardKey("q", 0)
    kept = await drop_buckets(store, shard, keys, CONFIG, None)
    assert kept == dict.fromkeys(keys[:3], NO_CLOCK)
    for _ in range(2):
        kept = await drop_buckets(store, shard, keys, CONFIG, AT)
        assert kept == {needed.key: IN_WINDOW, busy.key: NOT_DRAINED}
        assert list(store.rows) == [needed.key, busy.key]
