"""What the retention job asks of a queue's owner: to drop what was archived.

Its other wish, that what is past its retention ends now, needs nothing of its own: that happens by
itself once the queue is open (`core.retention`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pushlane.wire.errors import BadRequest
from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.dropping import drop_buckets
from pushlane_storage.interface import Store

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


async def drop_archived(
    store: Store, queue: OpenQueue, names: Iterable[BucketName], clock: Clock
) -> Dropped:
    """Of one open queue."""
    found = Dropped([], [])
    shards: dict[int, list[BucketName]] = {}
    for name in names:
        shards.setdefault(name.shard, []).append(name)
    for number, wanted in shards.items():
        if not 0 <= number < len(queue.runners):
            raise BadRequest(f"queue {queue.row.name} has no shard {number}")
        shard, wall = ShardKey(queue.row.id, number), None if clock.doubted else clock.wall()
        keys = [name.key for name in wanted]
        kept = await drop_buckets(store, shard, keys, queue.row.config, wall)
        found.kept += [KeptBucket(number, *key, reason) for key, reason in kept.items()]
        found.dropped += [name for name in wanted if name.key not in kept]
    return found
