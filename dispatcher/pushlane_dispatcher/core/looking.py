"""Looking: at messages and consumers, without changing anything.

`peek` shows what would go out next, as far as it is in memory. `locate` says where a message that
has not ended is kept. `roster` says who consumes.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge, nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import Lane
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_storage.bucket import BucketKey
from pushlane_storage.message import Message

if TYPE_CHECKING:
    from pushlane_dispatcher.core.shard import Shard


class Peeked(NamedTuple):
    lane: int
    seq: int
    attempts: int
    """How often a consumer has started it."""
    message: Message


class Located(NamedTuple):
    bucket: BucketKey
    attempts: int
    message: Message | None
    """None: it is to be read from the store."""


class ConsumerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription of one shard."""

    session: str
    shard: int
    state: Literal["active", "away", "closed"]
    """`away`: its connection is lost, it may resume. `closed`: it only settles what it has."""
    credit: int
    reserved: int
    leased: int
    lease_ms: int
    ack: Literal["explicit", "none"]


def peek(shard: Shard, limit: int) -> list[Peeked]:
    """Up to `limit` ready messages in the order in which they would go out."""
    found: list[Peeked] = []
    for lane in shard.window.order:
        for entry in islice(_ready(lane, limit), limit - len(found)):
            assert entry.message is not None  # what is ready has its body
            found.append(Peeked(lane.number, entry.seq, entry.attempts, entry.message))
    return found


def _ready(lane: Lane, limit: int) -> Iterator[Entry]:
    again = (entry for _, entry in nsmallest(limit, lane.again, key=lambda item: item[0]))
    return merge(lane.fresh, again, key=lambda entry: entry.seq)


def locate(shard: Shard, lane_number: int, seq: int) -> Located | None:
    """None: it is not stored, or it has ended."""
    lane = shard.window.lanes.get(lane_number)
    bucket = None if lane is None else lane.bucket_of(seq)
    if lane is None or bucket is None or seq in bucket.state.settled:
        return None
    entry = lane.entries.get(seq)
    if entry is not None:
        return Located(bucket.key, entry.attempts, entry.message)
    if seq <= lane.purged:
        return None
    void = bucket.state.voids.get(seq)
    return Located(bucket.key, void.attempts if void is not None else 0, None)


def roster(shard: Shard) -> list[ConsumerInfo]:
    return [_info(shard, found) for found in shard.consumers.subscriptions.values()]


def _info(shard: Shard, subscription: Subscription) -> ConsumerInfo:
    held = subscription.held.values()
    reserved = sum(entry.state is State.RESERVED for entry in held)
    away = subscription.away_until is not None
    return ConsumerInfo(
        session=subscription.session,
        shard=shard.key.shard,
        state="closed" if subscription.closed else "away" if away else "active",
        credit=subscription.credit,
        reserved=reserved,
        leased=len(held) - reserved,
        lease_ms=subscription.lease_ms,
        ack="none" if subscription.ack_none else "explicit",
    )
