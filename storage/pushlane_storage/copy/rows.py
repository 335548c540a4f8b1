"""What both sides are read as: the rows of a store, in the same order whatever keeps them.

`Store` would not do: it leaves out damaged segments, which must go over with the rest, and unpacks
every message, which nobody needs here. Opening one also begins a new epoch.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.interface import Due, StoreDamaged
from pushlane_storage.packing import unpack_note
from pushlane_storage.queue import QueueRow
from pushlane_storage.segment import StoredSegment
from pushlane_storage.usage import Usage

T = TypeVar("T")

PAGE_BYTES = 1 << 20
"""Segments that are read at once, about: what one bucket that is being copied has in memory."""
PAGE_ROWS = 500
"""Small rows that are read at once."""
MINUTES = 24 * 60
"""Usage is copied by days."""


class LogRow(NamedTuple):
    """A settlement, a note, or a seal (of flush 0), with the checksum that it was stored with."""

    owner: int
    n: int
    checksum: int
    body: bytes


class Page(NamedTuple, Generic[T]):
    rows: list[T]
    after: Any
    """Where the next page begins; None when this was the last one."""


class Day(NamedTuple):
    """One day of usage of one tenant."""

    tenant: str
    day: int


class Rows(Protocol):
    """The reading side of a store that nobody writes to."""

    async def tenants(self) -> list[str]:
        """Who has queues, in order."""
        ...

    async def queues(self, tenant: str, after: str, limit: int) -> list[QueueRow]: ...

    async def shards(self, queue_id: str) -> list[int]:
        """The shards that ever stored something."""
        ...

    async def buckets(self, shard: ShardKey) -> list[Bucket]:
        """By key; of those that are not closed nothing but `first` and `drained` counts."""
        ...

    async def count(self, shard: ShardKey, key: BucketKey) -> int:
        """Messages in a bucket's segments."""
        ...

    async def seals(self, shard: ShardKey) -> list[LogRow]: ...

    async def note(self, shard: ShardKey) -> LogRow | None: ...

    async def log(self, shard: ShardKey, key: BucketKey, after: Any) -> Page[LogRow]:
        """Settlements of a bucket, or of `CONTROL`."""
        ...

    async def segments(self, shard: ShardKey, key: BucketKey, after: Any) -> Page[StoredSegment]:
        """Whole or damaged, as they are stored."""
        ...

    async def due(self, shard: ShardKey, live: Collection[BucketKey], after: Any) -> Page[Due]:
        """Entries of the schedule, but those of other buckets than these."""
        ...

    async def days(self) -> list[Day]: ...

    async def usage(self, day: Day) -> list[Usage]: ...


def body_of(row: StoredSegment) -> bytes | None:
    """None: damage has left nothing of it."""
    return row.body


def due_of(note: LogRow) -> int | None:
    """When a note is due; a damaged one is at once: whoever opens the shard will say."""
    try:
        return unpack_note(*note).due
    except StoreDamaged:
        return 0


def settled(bucket: Bucket) -> Bucket:
    """The row without what doesn't count yet: back ends differ in what they keep of it."""
    if bucket.closed:
        return bucket
    return Bucket(bucket.key, bucket.first, drained=bucket.drained)
