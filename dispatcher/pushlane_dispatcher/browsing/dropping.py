"""What the retention job asks of a queue's owner: to drop what was archived.

Its other wish, that what is past its retention ends now, needs nothing of its own: that happens by
itself once the queue is open (`core.retention`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pushlane.wire.errors import BadRequest
from pushlane_dispatcher.browsing.question import DropBuckets
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_storage.bucket import BucketKey

MOST = 1_000
"""Buckets that one call drops."""


class BucketName(msgspec.Struct, frozen=True):
    """A bucket of a queue."""

    shard: int
    lane: int
    epoch: int
    start: int

    @property
    def key(self) -> BucketKey:
        return BucketKey(self.lane, self.epoch, self.start)


class KeptBucket(BucketName, frozen=True):
    """One that was not dropped, and why."""

    reason: str


class Dropped(msgspec.Struct):
    """What became of the buckets; one that was not there (any more) counts as dropped."""

    dropped: list[BucketName]
    kept: list[KeptBucket]


async def drop_archived(queue: OpenQueue, names: Iterable[BucketName]) -> Dropped:
    """Of one open queue."""
    shards: dict[int, list[BucketName]] = {}
    for name in names:
        if not 0 <= name.shard < len(queue.shards):
            raise BadRequest(f"queue {queue.row.name} has no shard {name.shard}")
        shards.setdefault(name.shard, []).append(name)
    found = Dropped([], [])
    for number, wanted in shards.items():
        answer = await queue.shards[number].ask(DropBuckets([name.key for name in wanted]))
        kept = {key: KeptBucket(number, *key, reason) for key, reason in answer}
        found.kept += kept.values()
        found.dropped += [name for name in wanted if name.key not in kept]
    return found
