"""A bucket: a time slice of one shard and lane, written by one owner.

A bucket's row is written before its first segment. `closed` and `drained` only ever go from
false to true: a reader that sees one set can rely on it for good.
"""

from typing import NamedTuple

import msgspec


class ShardKey(NamedTuple):
    """One shard of one queue. The queue id is fresh with every creation."""

    queue_id: str
    shard: int


class BucketKey(NamedTuple):
    """A bucket within its shard. `start` is a time, unique and growing within lane and epoch."""

    lane: int
    epoch: int
    start: int


CONTROL = BucketKey(-1, 0, 0)
"""The partition of the settlement log that speaks of a whole shard: purges."""


class MarkSummary(msgspec.Struct, array_like=True, frozen=True):
    """What the dedup marks of a closed bucket are about.

    A backlog may hold millions of marks, nearly all of which nobody will ever need: by this a new
    owner reads those that matter, and knows which drained buckets can be dropped.
    """

    ids: int = 0
    """Messages with a dedup id of their publisher's."""
    transfers: int = 0
    """Messages that came from another queue: their ids are remembered for longer."""
    producers: dict[str, tuple[int, int]] | None = {}
    """By name: how many messages it numbered, and the highest number. None: too many to list."""


class Bucket(msgspec.Struct, frozen=True):
    """A bucket's row. What stands behind `closed` is only true once it is closed."""

    key: BucketKey
    first: int
    """The seq of its first message."""
    closed: bool = False
    drained: bool = False
    count: int = 0
    size: int = 0
    last_at: int = 0
    """When its newest message was published (wall clock): retention and dedup windows."""
    marks: MarkSummary = MarkSummary()
