"""What a new owner knows of a shard before it serves: the fold of everything stored.

Made by `recovery` from the store's rows and the lease cache, taken in by `Shard`.
"""

from __future__ import annotations

import msgspec

from pushlane_storage.bucket import Bucket
from pushlane_storage.message import Message
from pushlane_storage.note import Note
from pushlane_storage.segment import DedupMark
from pushlane_storage.settlement import BucketState
from pushlane_storage.tally import Tally


class RecoveredBucket(msgspec.Struct):
    """A bucket that an older owner wrote. It is over: closed as far as this owner cares."""

    row: Bucket
    """With the counts that exist: what lies beyond a seal is not counted."""
    state: BucketState


class RecoveredLease(msgspec.Struct):
    """A grant that the lease cache knew and the settlement log did not end."""

    prefix: str
    n: int
    session: str
    lane: int
    seq: int
    fence: int
    attempts: int
    """Attempts before this grant."""
    deliveries: int
    started: bool
    lease_ms: int
    deadline: int
    """Wall clock."""
    message: Message
    owner: int = 0
    """The epoch of the owner that vouched for it."""


class Recovered(msgspec.Struct):
    predecessor: int = 0
    """The epoch of the last owner that could serve. Only its word on leases counts: an older
    one's leases may have been granted again by it."""
    buckets: list[RecoveredBucket] = []
    """Not drained, by lane and first seq."""
    drained: list[Bucket] = []
    """Drained and not dropped yet."""
    marks: list[tuple[int, DedupMark]] = []
    """(lane, mark) of all that was looked at, in any order."""
    floors: dict[str, int] = {}
    """By producer: up to which number nothing was looked at."""
    note: Note | None = None
    """What the predecessors left."""
    purges: list[tuple[int, int]] = []
    """The rows of purges, by (owner, n)."""
    leases: list[RecoveredLease] = []
    tally: Tally | None = None
    """None: nobody counted what happened before."""

    @property
    def newest_at(self) -> int:
        """When its newest message was published, by whoever stored it; 0: there is none."""
        rows = (*self.drained, *(found.row for found in self.buckets))
        return max((row.last_at for row in rows), default=0)
