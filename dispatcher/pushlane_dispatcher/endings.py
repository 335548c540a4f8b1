"""Endings: how a message ended that the shard's memory no longer knows.

Its bucket is drained, but not dropped yet: the settlement log in the store still tells.
"""

from __future__ import annotations

from pushlane_dispatcher.core.explain import Explanation, explain_end
from pushlane_storage.bucket import CONTROL, Bucket, ShardKey
from pushlane_storage.existing import ShardRows, fold_shard
from pushlane_storage.interface import Store


async def find_ending(store: Store, key: ShardKey, lane: int, seq: int) -> Explanation | None:
    """How a message ended, by what is stored; None when that is not (or no longer) known."""
    bucket = next((row for row in await store.buckets(key) if _holds(row, lane, seq)), None)
    if bucket is None:
        return None
    seals = await store.seals(key)
    settlements = {place: await store.settlements(key, place) for place in (bucket.key, CONTROL)}
    # Whether a flush is whole need not be asked of other buckets: the seals say it of the owners
    # before, and the running one forgets a bucket only when the rows that drained it are durable.
    ((existing, state),) = fold_shard(ShardRows(seals, [bucket], {}, settlements))
    return explain_end(state, seq) if _holds(existing, lane, seq) else None


def _holds(bucket: Bucket, lane: int, seq: int) -> bool:
    last = bucket.first + bucket.count - 1
    return bucket.closed and bucket.key.lane == lane and bucket.first <= seq <= last
