"""Dropping what was archived: drained buckets of an open queue, as far as nobody needs them.

What is past its retention ends by itself once its shard is open (`core.retention`): to ask for
nothing to be dropped is to have that seen to.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pushlane.wire.errors import BadRequest, Conflict
from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.open_queue import OpenQueue
from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.dropping import droppable
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


async def drop_buckets(
    store: Store, queue: OpenQueue, queue_id: str, names: Iterable[BucketName], clock: Clock
) -> Dropped:
    """`Conflict` when the queue is another one of the same name."""
    if queue.row.id != queue_id:
        raise Conflict(
            f"queue {queue.row.name} was deleted and created again: it is no longer {queue_id}"
        )
    found = Dropped([], [])
    shards: dict[int, list[BucketName]] = {}
    for name in names:
        shards.setdefault(name.shard, []).append(name)
    for number, wanted in shards.items():
        if not 0 <= number < len(queue.runners):
            raise BadRequest(f"queue {queue.row.name} has no shard {number}")
        shard = ShardKey(queue_id, number)
        there = {bucket.key: bucket for bucket in await store.buckets(shard)}
        for name in wanted:
            reason = _reason(there.get(name.key), queue, clock)
            if reason is not None:
                found.kept.append(KeptBucket(name.shard, *name.key, reason))
                continue
            await store.drop_bucket(shard, name.key)
            found.dropped.append(name)
    return found


def _reason(bucket: Bucket | None, queue: OpenQueue, clock: Clock) -> str | None:
    """Why a bucket has to stay; None: it has not."""
    if bucket is None:
        return None
    if clock.doubted:
        return "the server's clock is in doubt"
    if droppable(bucket, queue.row.config, clock.wall()):
        return None
    return "its dedup window is not over" if bucket.drained else "it is not drained"
