"""Who may drop what."""

from pushlane_storage.bucket import Bucket, BucketKey, MarkSummary
from pushlane_storage.dropping import (
    CLOCK_MARGIN_MS,
    TRANSFER_WINDOW_MS,
    dedup_window,
    droppable,
)
from pushlane_storage.queue import QueueConfig

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
