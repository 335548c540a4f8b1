"""What a shard answers to those who look: the same of an open one and of a view."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from pushlane.wire.errors import NotFound
from pushlane_dispatcher.browsing.question import (
    Explain,
    Find,
    Found,
    GetStats,
    ListConsumers,
    Look,
    Peek,
)
from pushlane_dispatcher.browsing.reading import Looking, read_part
from pushlane_dispatcher.core.explain import Explanation, Stats, explain_end
from pushlane_dispatcher.core.looking import ConsumerInfo
from pushlane_dispatcher.queues.queues import store_answers
from pushlane_storage.bucket import CONTROL, Bucket, ShardKey
from pushlane_storage.interface import Store
from pushlane_storage.seal import ShardRows, fold_shard

A = TypeVar("A")
ENDED = "the message has ended, or was never stored"


async def answer_look(store: Store, shard: Looking, question: Look[A]) -> A:
    found: A = await _ANSWERS[type(question)](store, shard, question)
    return found


async def _stats(_store: Store, shard: Looking, _: GetStats) -> Stats:
    return shard.stats()


async def _consumers(_store: Store, shard: Looking, _: ListConsumers) -> list[ConsumerInfo]:
    return shard.consumers()


async def find(store: Store, shard: Looking, wanted: Find) -> Found:
    """A message that has not ended; else `NotFound`."""
    located = shard.locate(wanted.lane, wanted.seq)
    if located is None:
        raise NotFound(ENDED)
    if located.message is not None:
        return Found(located.message, located.attempts)
    with store_answers(shard.name):
        found = await store.messages(shard.key, located.bucket, [wanted.seq])
    if wanted.seq not in found:  # it ended meanwhile, or its body is lost
        raise NotFound(ENDED)
    return Found(found[wanted.seq], located.attempts)


async def _explain(store: Store, shard: Looking, wanted: Explain) -> Explanation:
    lane, seq = wanted.lane, wanted.seq
    message = None
    with suppress(NotFound):
        message, _ = await find(store, shard, Find(lane, seq))
    found = shard.explain(lane, seq, message)
    if found.state == "unknown":
        with store_answers(shard.name):
            ending = await _find_ending(store, shard.key, lane, seq)
        return ending or found
    return found


async def _find_ending(store: Store, key: ShardKey, lane: int, seq: int) -> Explanation | None:
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


_ANSWERS: dict[type[Look[Any]], Callable[[Store, Looking, Any], Awaitable[Any]]] = {
    GetStats: _stats,
    Peek: read_part,
    Find: find,
    Explain: _explain,
    ListConsumers: _consumers,
}
