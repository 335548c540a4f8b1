"""Looking: at messages and consumers, without changing anything.

`stretch` and `in_line` lead through all that waits to be delivered, in memory or in the store.
`locate` says where a message that has not ended is kept. `roster` says who consumes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_storage.bucket import BucketKey
from pushlane_storage.message import Message

if TYPE_CHECKING:
    from pushlane_dispatcher.core.shard import Shard


IN_LINE = frozenset((State.READY, State.BLOCKED))
"""Its time has come, and nobody has it."""


class Stretch(NamedTuple):
    """Unsettled messages side by side."""

    bucket: BucketKey
    first: int
    last: int


class Located(NamedTuple):
    bucket: BucketKey
    attempts: int
    message: Message | None
    """None: it is to be read from the store."""


class ConsumerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription of one shard."""

    session: str
    client: str
    """What its client calls itself; empty: it doesn't say."""
    shard: int
    state: Literal["active", "away", "closed"]
    """`away`: its connection is lost, it may resume. `closed`: it only settles what it has."""
    credit: int
    reserved: int
    leased: int
    lease_ms: int
    ack: Literal["explicit", "none"]


def stretch(shard: Shard, lane_number: int, start: int) -> Stretch | None:
    """The next unsettled messages of a lane, from a seq on; None: there are no more."""
    lane = shard.window.lanes[lane_number]
    found = lane.unsettled_from(max(start, lane.purged + 1))
    return None if found is None else Stretch(found[0].key, found[1], found[2])


def in_line(shard: Shard, lane_number: int, seq: int, not_before: int, now: int) -> int | None:
    """How often a message was started that waits for a consumer; None: it does not.

    `not_before` is the stored message's own: of what is behind the window, nobody else knows it.
    """
    located = locate(shard, lane_number, seq)
    if located is None:
        return None
    lane = shard.window.lanes[lane_number]
    entry = lane.entries.get(seq)
    if entry is not None:
        return entry.attempts if entry.state in IN_LINE else None
    if seq < lane.cursor:  # only the schedule index knows it, or its key is blocked
        return None if not_before else located.attempts
    bucket = lane.bucket_of(seq)
    assert bucket is not None  # it was located
    void = bucket.state.voids.get(seq)
    not_before = not_before if void is None else void.not_before
    return None if not_before > now + shard.offset else located.attempts


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
        client=subscription.client,
        shard=shard.key.shard,
        state="closed" if subscription.closed else "away" if away else "active",
        credit=subscription.credit,
        reserved=reserved,
        leased=len(held) - reserved,
        lease_ms=subscription.lease_ms,
        ack="none" if subscription.ack_none else "explicit",
    )
