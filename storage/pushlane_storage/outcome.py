"""Waiting for a store's writes that call back.

The dispatcher hands such a write in and goes on; whoever has nothing else to do waits here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from pushlane_storage.bucket import Bucket, ShardKey
from pushlane_storage.interface import Outcome, Store
from pushlane_storage.segment import Segment
from pushlane_storage.settlement import Settlement


async def outcome_of(begin: Callable[[Outcome], None]) -> None:
    """Wait for what calls back. Who is cancelled meanwhile leaves it to itself."""
    await trio.lowlevel.checkpoint_if_cancelled()
    told = trio.Event()
    answers: list[Exception | None] = []

    def done(error: Exception | None) -> None:
        answers.append(error)
        told.set()

    begin(done)
    await told.wait()
    if answers[0] is not None:
        raise answers[0]


async def append(store: Store, shard: ShardKey, segment: Segment, opens: Bucket | None) -> None:
    """Store a segment, and come back when it is durable."""
    await outcome_of(lambda done: store.append_soon(shard, segment, opens, done))


async def settle(store: Store, shard: ShardKey, rows: Sequence[Settlement]) -> None:
    """Write one flush of settlements, and come back when it is durable."""
    await outcome_of(lambda done: store.settle_soon(shard, rows, done))
