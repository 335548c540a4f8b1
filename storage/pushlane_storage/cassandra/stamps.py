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
"""For what goes with its queue: nothing of that id is ever written again."""


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


_BEAT = 1_000_000
_LATE = 3_600
"""Heartbeats that a process may still send after somebody took it off the roster."""


def beaten(began: int, beat: int) -> int:
    """Of a process's row in the roster: the later heartbeat wins, whatever its clock does since it
    began.

    All rows are in one partition, where Cassandra keeps the mark of a deletion for as long as
    anything is written there with a lower stamp. So these stamps grow about as fast as time.
    """
    return min(began, _LATEST_START) * 1000 + beat * _BEAT


def parted(began: int, beat: int) -> int:
    """Of its deletion: it wins over what a process writes that does not know of it yet."""
    return beaten(began, beat + _LATE)
