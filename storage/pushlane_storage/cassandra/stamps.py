"""Stamps: which write wins, said by us and not by clocks.

Rows of a bucket are written once, or again with the same content, so they need no order among
each other; but a dropped bucket must stay dropped, also when a paused predecessor writes to it
afterwards, and whatever the clocks of the two say. So everything that belongs to a bucket carries
a stamp made of its start, and its deletion one more. Starts are times, so stamps grow with time,
as time-window compaction wants them to.

Where rows may differ (two owners that close the same bucket, a mark that only ever moves on) the
stamp is the same too, and the greater value wins: it begins with what should decide.
"""

from pushlane_storage.bucket import BucketKey

_LATEST_START = 1 << 52
"""Milliseconds; beyond it stamps no longer grow. The year 144,680."""

ONCE = 1
"""For rows that are never deleted but with their queue."""
ONCE_GONE = 2
FOREVER = 1 << 62
"""For what goes with its queue, or its process: whatever of that id is still written, is gone."""


_NOTES = 1 << 30
"""Notes that one owner can write."""


def noted(owner: int, n: int) -> int:
    """Of a shard's note: the newest owner's last one stands."""
    return owner * _NOTES + n


def written(bucket: BucketKey) -> int:
    """Of rows of a bucket, in microseconds like every stamp."""
    return min(bucket.start, _LATEST_START) * 1000 + ONCE


def dropped(bucket: BucketKey) -> int:
    """Of their deletion."""
    return written(bucket) + 1
