"""Redriving: waiting messages leave for another queue because somebody asked for it.

They may stand anywhere in the queue. What is behind the window comes in as a bare position first,
so that it leaves like every other message: nothing that is read later finds it a second time.

A blocked message may leave, too, and without waiting for those of its key before it: somebody
chose it. Those who choose all of a key in order of seq see them leave in that order. It keeps its
place until its departure is durable; a bare position has none, so nothing comes in meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pushlane_dispatcher.core.departures import REDRIVEN
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import Lane
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.looking import IN_LINE, in_line

if TYPE_CHECKING:
    from pushlane_dispatcher.core.shard import Shard


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
