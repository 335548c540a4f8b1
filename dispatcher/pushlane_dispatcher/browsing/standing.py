"""A standing: how a queue is doing, in the few numbers that a list of many queues shows."""

from __future__ import annotations

import msgspec

from pushlane_dispatcher.browsing.all_shards import Lookable, add_up, ask_each
from pushlane_dispatcher.browsing.question import GetStats
from pushlane_dispatcher.core.explain import Stats


class Standing(msgspec.Struct, frozen=True):
    """How a queue is doing. null is what only another server could tell."""

    depth: int
    """Messages that have not ended, those in flight included."""
    in_flight: int | None
    oldest_at: int | None
    """When the oldest one was published that waits for a consumer."""
    consumers: int | None
    as_of: int


async def standing_of(queue: Lookable, wall: int) -> Standing:
    """Of a queue that is open. A consumer has a subscription in each shard."""
    parts = await ask_each(queue.shards, lambda shard: shard.ask(GetStats()))
    stats, consumers = add_up(parts), max(part.subscriptions for part in parts)
    return Standing(stats.stored, stats.reserved + stats.leased, stats.oldest_at, consumers, wall)


def stored_standing(stats: Stats, wall: int, alone: bool) -> Standing:
    """Of one that is not, by what is stored. `alone`: then nobody has it open."""
    elsewhere = 0 if alone else None
    return Standing(stats.stored, elsewhere, stats.oldest_at, elsewhere, wall)
