"""Looking at what is stored: the buckets of a queue, as a new owner would find them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.core.ident import make_id
from pushlane_dispatcher.core.opening import read_rows
from pushlane_dispatcher.core.recovered import RecoveredBucket, recover
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.opening import carry_out, reading
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Backend
from pushlane_storage.queue import QueueRow

READS = Settings().recovery_reads


async def buckets_of(
    store: Backend, row: QueueRow, epoch: int, clock: Clock
) -> AsyncIterator[tuple[ShardKey, RecoveredBucket]]:
    """What the owner with this epoch would begin with."""
    for number in range(row.config.shards):
        key = ShardKey(row.id, number)
        rows = await carry_out(read_rows(), reading(store, clock, key), READS)
        _, recovered = recover(rows, epoch)
        for found in recovered.buckets:
            yield key, found


async def left_in(store: Backend, key: ShardKey, found: RecoveredBucket) -> dict[str, str]:
    """The messages of a bucket that have not ended: their ids, and their bodies."""
    first, lane = found.row.first, found.row.key.lane
    seqs = [
        seq
        for low, high in found.state.settled.gaps(first, first + found.row.count - 1)
        for seq in range(low, high + 1)
    ]
    messages = await store.messages(key, found.row.key, seqs)
    return {make_id(*key, lane, seq): one.body.decode() for seq, one in messages.items()}
