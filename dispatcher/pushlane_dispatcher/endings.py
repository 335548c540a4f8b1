"""Endings: how a message ended that the shard's memory no longer knows.

Its bucket is drained, but not dropped yet: the settlement log in the store still tells.
"""

from __future__ import annotations

from pushlane_dispatcher.core.explain import Explanation, explain_end
from pushlane_storage.bucket import CONTROL, Bucket, ShardKey
from pushlane_storage.interface import Store
from pushlane_storage.seal import Seals
from pushlane_storage.settlement import Settlement, fold


async def find_ending(store: Store, key: ShardKey, lane: int, seq: int) -> Explanation | None:
    """How a message ended, by what is stored; None when that is not (or no longer) known."""
    bucket = next((row for row in await store.buckets(key) if _holds(row, lane, seq)), None)
    if bucket is None:
        return None
    seals = Seals(await store.seals(key))
    state = fold(_valid(seals, await store.settlements(key, bucket.key)))
    for row in _valid(seals, await store.settlements(key, CONTROL)):
        for purge in row.purges:
            if purge.lane == lane:
                state.purge(purge, bucket.first, bucket.first + bucket.count - 1)
    return explain_end(state, seq)


def _holds(bucket: Bucket, lane: int, seq: int) -> bool:
    last = bucket.first + bucket.count - 1
    return bucket.closed and bucket.key.lane == lane and bucket.first <= seq <= last


def _valid(seals: Seals, rows: list[Settlement]) -> list[Settlement]:
    """Without those that lie beyond a seal: they never counted."""
    return [row for row in rows if (flushes := seals.flushes(row.owner)) is None or row.n < flushes]
