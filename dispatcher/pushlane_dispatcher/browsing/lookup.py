"""Lookup: messages by their id."""

from __future__ import annotations

from pushlane.wire.errors import NotFound
from pushlane_dispatcher.browsing.all_shards import Lookable
from pushlane_dispatcher.browsing.question import Cancel, Explain, Find, Found
from pushlane_dispatcher.core.explain import Explanation
from pushlane_dispatcher.core.ident import Place, parse_id
from pushlane_dispatcher.queues.open_queue import OpenQueue


def place_of(queue: Lookable, message_id: str) -> Place:
    """Where a message of this queue is; `NotFound` when it is none of its."""
    place = parse_id(message_id)
    if place.queue_id != queue.row.id or not 0 <= place.shard < len(queue.shards):
        raise NotFound(f"no message of queue {queue.row.name} has this id")
    return place


async def explain(queue: Lookable, message_id: str) -> Explanation:
    """Where a message stands and why, or how it ended."""
    place = place_of(queue, message_id)
    return await queue.shards[place.shard].ask(Explain(place.lane, place.seq))


async def find(queue: Lookable, message_id: str) -> Found:
    """A message that has not ended; else `NotFound`."""
    place = place_of(queue, message_id)
    return await queue.shards[place.shard].ask(Find(place.lane, place.seq))


async def cancel(queue: OpenQueue, message_id: str) -> None:
    """End a delayed message; it is durable when this returns."""
    place = place_of(queue, message_id)
    await queue.shards[place.shard].ask(Cancel(place.lane, place.seq))
