"""What a store tells of a damaged segment."""

import msgspec

from pushlane_storage.bucket import BucketKey, ShardKey


class Damage(msgspec.Struct, frozen=True):
    """A segment that can't be delivered: `count` messages from seq `first` on."""

    shard: ShardKey
    bucket: BucketKey
    first: int
    count: int
    reason: str
    found_at: int
    """Wall clock, in milliseconds."""
