"""Who may drop what: a drained bucket goes whole once nobody needs its dedup marks any more.

The owner drops what it drained by itself. What waits for an archive is dropped by the job that
archived it, through the owner or on its own: all of them ask here.
"""

from collections.abc import Iterable

from pushlane_storage.bucket import Bucket, BucketKey, MarkSummary, ShardKey
from pushlane_storage.interface import Store
from pushlane_storage.queue import QueueConfig

TRANSFER_WINDOW_MS = 24 * 60 * 60 * 1000
"""How long a shard recognises a message that another queue transferred to it before."""

CLOCK_MARGIN_MS = 60_000
"""How far the clock of whoever drops may be ahead of the owner's."""

NOT_DRAINED = "it is not drained"
IN_WINDOW = "its dedup window is not over"
NO_CLOCK = "the server's clock is in doubt"


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


async def drop_buckets(
    store: Store, shard: ShardKey, keys: Iterable[BucketKey], config: QueueConfig, wall: int | None
) -> dict[BucketKey, str]:
    """Drop these buckets of a shard, as far as nobody needs them; why the others were kept.

    Each row is read again, and judged again, just before: what the caller knows may be old. One
    that is not there any more counts as dropped. Without a `wall` clock to go by nothing that is
    there is dropped.
    """
    there = {bucket.key: bucket for bucket in (await store.outline(shard)).buckets}
    kept: dict[BucketKey, str] = {}
    for key in keys:
        bucket = there.get(key)
        if bucket is not None and wall is None:
            kept[key] = NO_CLOCK
        elif bucket is not None and wall is not None and not droppable(bucket, config, wall):
            kept[key] = IN_WINDOW if bucket.drained else NOT_DRAINED
        else:
            await store.drop(shard, key)
    return kept
