"""What ends or leaves because somebody asked for it: cancelling and redriving.

A message may stand in the window, far ahead in the schedule index, or in the backlog behind the
window. What the window does not hold comes in as a bare position first, so that it goes like every
other message: nothing that is read later finds it a second time.

A blocked message may be redriven, too, and without waiting for those of its key before it: somebody
chose it. Those who choose all of a key in order of seq see them leave in that order. It keeps its
place until its departure is durable; a bare position has none, so nothing comes in meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pushlane.wire.errors import Conflict, NotFound
from pushlane_dispatcher.core.departures import REDRIVEN
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import Lane
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.looking import IN_LINE, in_line, locate

if TYPE_CHECKING:
    from pushlane_dispatcher.core.shard import Shard


CAUSE = "purged"
"""How it ends: somebody asked for it."""


def cancel(shard: Shard, lane_number: int, seq: int, not_before: int, now: int) -> None:
    """End a delayed message before its time has come; `not_before` is the stored message's own."""
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


def redrive(shard: Shard, lane_number: int, targets: Mapping[int, str], now: int) -> int:
    """Send messages of a lane away, by seq; how many of them went: others may hold the rest."""
    lane = shard.window.lanes[lane_number]
    found = {seq: _entry(shard, lane, seq, now) for seq in targets}
    leaving = [entry for entry in found.values() if entry is not None]
    if any(entry.state is State.READY for entry in leaving):
        lane.remove(leaving)
    for entry in leaving:
        shard.departures.leave(entry, REDRIVEN, targets[entry.seq], now, now + shard.offset)
    return len(leaving)


def _entry(shard: Shard, lane: Lane, seq: int, now: int) -> Entry | None:
    entry = lane.entries.get(seq)
    if entry is not None:
        return entry if entry.state in IN_LINE else None
    attempts = in_line(shard, lane.number, seq, 0, now)
    bucket = lane.bucket_of(seq)
    if attempts is None or bucket is None or (seq < lane.cursor and not bucket.passed):
        return None
    entry = shard.window.enter(lane, bucket, seq, now)
    shard.hold()  # nobody knows its key: it may be that of what comes in
    return entry
