"""A shard's account: what ever happened in it, exactly (see `pushlane_storage.tally`).

It is asked for every few seconds and not kept up with every message: live buckets know their own
numbers, and the account has those of the drained ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from pushlane_dispatcher.core.lane import Lane, LiveBucket
from pushlane_dispatcher.core.recovered import RecoveredBucket
from pushlane_storage.bucket import BucketKey
from pushlane_storage.tally import STORED, Counters, Tally, add, totals_of


class Account:
    __slots__ = ("changed", "counted", "drained")

    def __init__(self, tally: Tally | None, undrained: Iterable[RecoveredBucket]) -> None:
        self.drained: Counters = {} if tally is None else dict(tally.drained)
        """The totals of all buckets that were ever drained."""
        keys = {found.row.key for found in undrained}
        self.counted: set[BucketKey] = set() if tally is None else set(tally.counted & keys)
        """Buckets in it that may not be marked as drained yet."""
        self.changed = True
        """Something may have happened since somebody last looked."""

    def drain(self, bucket: LiveBucket) -> None:
        """A bucket is drained and no longer live."""
        if bucket.key not in self.counted:
            self.counted.add(bucket.key)
            add(self.drained, totals_of(bucket.count, bucket.state))

    def marked(self, key: BucketKey) -> None:
        """That a bucket is drained is durable."""
        self.counted.discard(key)

    def lifetime(self, lanes: Iterable[Lane]) -> Counters:
        """What ever happened, and what is stored and not settled by now."""
        found = dict(self.drained)
        stored = 0
        for lane in lanes:
            for bucket in lane.buckets:
                stored += bucket.unsettled()[1]
                if bucket.key not in self.counted:
                    add(found, totals_of(bucket.count, bucket.state))
        if stored:
            found[STORED] = stored
        return found
