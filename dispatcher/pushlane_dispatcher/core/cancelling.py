"""Cancelling: a delayed message ends before its time has come.

It may stand in one of three places: in the window, far ahead in the schedule index, or in the
backlog behind the window. What the window does not hold comes in as a bare position first, so that
it ends like every other message: nothing that is read later finds it a second time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pushlane.wire.errors import Conflict, NotFound
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.looking import locate

if TYPE_CHECKING:
    from pushlane_dispatcher.core.shard import Shard

CAUSE = "purged"
"""How it ends: somebody asked for it."""


def cancel(shard: Shard, lane_number: int, seq: int, not_before: int, now: int) -> None:
    """`not_before` is the stored message's own."""
    if locate(shard, lane_number, seq) is None:
        raise NotFound("the message has ended, or was never stored")
    lane = shard.window.lanes[lane_number]
    known = lane.entries.get(seq)
    entry = known or _enter(shard, lane_number, seq, not_before, now)
    if entry is None or entry.state is not State.DELAYED:
        raise Conflict("only a delayed message can be cancelled, and this one is not")
    shard.verdicts.end(entry, CAUSE, now)
    if known is not None:
        shard.window.delays.ended(1)


def _enter(shard: Shard, lane_number: int, seq: int, not_before: int, now: int) -> Entry | None:
    """The position of a delayed message that the window does not hold; None: it is not delayed."""
    lane = shard.window.lanes[lane_number]
    bucket = lane.bucket_of(seq)
    assert bucket is not None  # it was located
    if seq < lane.cursor:  # only the schedule index knows it, or its key is blocked
        delayed = not_before > 0
    else:
        delayed = not_before > now + shard.offset and seq not in bucket.state.voids
    return shard.window.enter_delayed(lane, bucket, seq, not_before, now) if delayed else None
