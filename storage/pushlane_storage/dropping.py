"""Who may drop what: a drained bucket goes whole once nobody needs its dedup marks any more.

The owner drops what it drained by itself. What waits for an archive is dropped by the job that
archived it, through the owner or on its own: all of them ask here.
"""

from pushlane_storage.bucket import Bucket, MarkSummary
from pushlane_storage.queue import QueueConfig

TRANSFER_WINDOW_MS = 24 * 60 * 60 * 1000
"""How long a shard recognises a message that another queue transferred to it before."""

CLOCK_MARGIN_MS = 60_000
"""How far the clock of whoever drops may be ahead of the owner's."""


def dedup_window(marks: MarkSummary, config: QueueConfig) -> int:
    """How long after its newest message a bucket's marks may be needed; 0: it has none."""
    if marks.transfers:
        return max(config.dedup_window_ms, TRANSFER_WINDOW_MS)
    return config.dedup_window_ms if marks.ids or marks.producers != {} else 0


def droppable(bucket: Bucket, config: QueueConfig, wall: int) -> bool:
    """Whether nobody needs a bucket any more, its archive aside."""
    if not bucket.drained:
        return False
    window = dedup_window(bucket.marks, config)
    return window == 0 or wall >= bucket.last_at + window + CLOCK_MARGIN_MS
