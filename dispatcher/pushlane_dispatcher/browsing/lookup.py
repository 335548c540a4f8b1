"""Lookup: messages by their id, as they are stored."""

from __future__ import annotations

from contextlib import suppress

from pushlane.wire.errors import NotFound
from pushlane_dispatcher.browsing.view import Lookable
from pushlane_dispatcher.core.effects import SettleTicket
from pushlane_dispatcher.core.explain import Explanation, explain_end
from pushlane_dispatcher.core.ident import Place, parse_id
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_dispatcher.queues.queues import store_answers
from pushlane_dispatcher.waiter import Waiter
from pushlane_storage.bucket import CONTROL, Bucket, ShardKey
from pushlane_storage.interface import Store
from pushlane_storage.message import Message
from pushlane_storage.seal import ShardRows, fold_shard

ENDED = "the message has ended, or was never stored"


def place_of(queue: Lookable, message_id: str) -> Place:
    """Where a message of this queue is; `NotFound` when it is none of its."""
    place = parse_id(message_id)
    if place.queue_id != queue.row.id or not 0 <= place.shard < len(queue.runners):
        raise NotFound(f"no message of queue {queue.row.name} has this id")
    return place


async def explain(store: Store, queue: Lookable, message_id: str) -> Explanation:
    """Where a message stands and why, or how it ended."""
    place = place_of(queue, message_id)
    runner = queue.runners[place.shard]
    message = None
    with suppress(NotFound):
        message, _ = await read_message(store, queue, message_id)
    found = runner.explain(place.lane, place.seq, message)
    if found.state == "unknown":
        with store_answers(queue.row.name):
            ending = await find_ending(store, runner.key, place.lane, place.seq)
        return ending or found
    return found


async def read_message(store: Store, queue: Lookable, message_id: str) -> tuple[Message, int]:
    """A message that has not ended, and how often it was started; else `NotFound`."""
    place = place_of(queue, message_id)
    runner = queue.runners[place.shard]
    located = runner.locate(place.lane, place.seq)
    if located is None:
        raise NotFound(ENDED)
    if located.message is not None:
        return located.message, located.attempts
    with store_answers(queue.row.name):
        found = await store.messages(runner.key, located.bucket, [place.seq])
    if place.seq not in found:  # it ended meanwhile, or its body is lost
        raise NotFound(ENDED)
    return found[place.seq], located.attempts


async def cancel(store: Store, queue: OpenQueue, message_id: str) -> None:
    """End a delayed message; it is durable when this returns."""
    message, _ = await read_message(store, queue, message_id)
    place = place_of(queue, message_id)
    runner = queue.runners[place.shard]
    waiter: Waiter[SettleTicket] = Waiter()
    runner.cancel(place.lane, place.seq, message.not_before, waiter)
    await waiter.wait()


async def find_ending(store: Store, key: ShardKey, lane: int, seq: int) -> Explanation | None:
    """How a message ended that the shard's memory no longer knows, by what is stored; None when
    that is not (or no longer) known.

    Its bucket is drained, but not dropped yet: the settlement log in the store still tells.
    """
    outline = await store.outline(key)
    bucket = next((row for row in outline.buckets if _holds(row, lane, seq)), None)
    if bucket is None:
        return None
    settlements = {place: await store.settlements(key, place) for place in (bucket.key, CONTROL)}
    # Whether a flush is whole need not be asked of other buckets: the seals say it of the owners
    # before, and the running one forgets a bucket only when the rows that drained it are durable.
    ((existing, state),) = fold_shard(ShardRows(outline.seals, [bucket], {}, settlements))
    return explain_end(state, seq) if _holds(existing, lane, seq) else None


def _holds(bucket: Bucket, lane: int, seq: int) -> bool:
    last = bucket.first + bucket.count - 1
    return bucket.closed and bucket.key.lane == lane and bucket.first <= seq <= last
