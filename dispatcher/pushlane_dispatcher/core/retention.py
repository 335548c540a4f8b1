"""Retention: what nobody took for too long ends, by whole buckets.

Only closed buckets are looked at, and of them what is not in flight: a leased message is decided
when it comes back. It all ends like every other message; what stands behind the window comes in as
a bare position first, so that nothing that is read later finds it a second time.

Where the queue says `retention_end: "dead_letter"` it leaves for the dead letters instead, no more
at once than may be on their way out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pushlane.wire.errors import BadRequest
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.delays import TIMED
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import Lane, LiveBucket
from pushlane_dispatcher.core.life import PURGEABLE, State

if TYPE_CHECKING:
    from pushlane_dispatcher.core.departures import Departures
    from pushlane_dispatcher.core.log import Log
    from pushlane_dispatcher.core.verdicts import Verdicts
    from pushlane_dispatcher.core.window import Window

CAUSE = "expired"
REASON = "retention"
"""What it is counted as: others expire because their own `ttl_ms` is over."""
LIMIT = "retention_ms"

Run = tuple[int, int, int, bool]
"""Lane, first and last seq of messages that ended together; whether as dead letters."""


def too_long(delay_ms: int, retention_ms: int) -> BadRequest | None:
    """Why a message may not wait for so long; None: it may."""
    if delay_ms <= retention_ms:
        return None
    return BadRequest(
        f"delay_ms is {delay_ms}, longer than the queue's retention_ms ({retention_ms}):"
        " the message would end before it is delivered",
        limit=LIMIT,
    )


class Retention:
    __slots__ = (
        "_bounds", "_departures", "_log", "_runs", "_verdicts", "_window", "ended", "next_at",
    )  # fmt: skip

    def __init__(
        self, bounds: Bounds, log: Log, window: Window, verdicts: Verdicts, departures: Departures
    ) -> None:
        self._bounds = bounds
        self._log = log
        self._window = window
        self._verdicts = verdicts
        self._departures = departures
        self._runs: deque[Run] = deque(maxlen=bounds.retention_runs)
        self.ended = 0
        """Messages that retention ended since the shard was opened."""
        self.next_at: int | None = None
        """Wall clock: when the first bucket is past its retention, or is looked at again."""

    def watch(self, bucket: LiveBucket) -> None:
        """A bucket is closed: from now on its age counts."""
        due = self._due(bucket)
        self.next_at = due if self.next_at is None else min(self.next_at, due)

    def reconsider(self) -> None:
        """The buckets, or the configuration, are others than before."""
        self.next_at = min(self._dues(), default=None)

    def tick(self, now: int, wall: int) -> None:
        """End the next of what is past its retention; `next_at` says when there is more to do."""
        at = self.next()
        if at is None or wall < at:
            return
        count = self._room()
        if count <= 0:  # where dead letters go nothing is taken now, or too much is under way
            self.next_at = wall + self._bounds.transfer_retry_ms
            return
        for lane in self._window.order:
            found = self._past(lane, count, now, wall)
            if found:
                self._end(lane, found, now, wall)
                self._window.purging = True
                self._log.hold()
                return
        later = wall + self._bounds.retention_sweep_ms  # for what is in flight
        self.next_at = min((due if due > wall else later for due in self._dues()), default=None)

    def next(self) -> int | None:
        """Wall clock: when `tick` has something to do; None: not because time passes.

        What a page brings may be of the same buckets: it comes first.
        """
        if self.next_at is None or self._window.purging:
            return None
        return None if self._window.reading else self.next_at

    def find(self, lane: int, seq: int) -> bool | None:
        """Whether retention made a message a dead letter; None: it did not end it, or long ago."""
        for number, low, high, dead in self._runs:
            if number == lane and low <= seq <= high:
                return dead
        return None

    @property
    def _buries(self) -> bool:
        """What ends becomes a dead letter."""
        verdicts = self._verdicts
        return verdicts.config.retention_end == "dead_letter" and verdicts.dead_letter is not None

    def _room(self) -> int:
        """How many messages may end now."""
        count = self._bounds.retention_messages
        if not self._buries:
            return count
        return 0 if self._departures.held_up else min(count, self._departures.room)

    def _dues(self) -> Iterator[int]:
        for lane in self._window.order:
            yield from (self._due(bucket) for bucket in lane.buckets if bucket.closed)

    def _due(self, bucket: LiveBucket) -> int:
        return bucket.last_at + self._verdicts.config.retention_ms

    def _past(self, lane: Lane, count: int, now: int, wall: int) -> list[Entry]:
        found: list[Entry] = []
        for bucket in lane.buckets:
            if bucket.closed and self._due(bucket) <= wall:
                for entry in self._waiting(lane, bucket, now):
                    found.append(entry)
                    if len(found) >= count:
                        return found
        return found

    def _waiting(self, lane: Lane, bucket: LiveBucket, now: int) -> Iterator[Entry]:
        """What has not ended of a bucket, and nobody holds."""
        for low, high in bucket.state.settled.gaps(bucket.first, bucket.last):
            for seq in range(low, high + 1):
                entry = lane.entries.get(seq)
                if entry is None:
                    yield self._window.enter(lane, bucket, seq, now)
                elif entry.state in PURGEABLE:
                    yield entry

    def _end(self, lane: Lane, found: Sequence[Entry], now: int, wall: int) -> None:
        waiting = sum(entry.state in TIMED for entry in found)
        lane.remove(entry for entry in found if entry.state is State.READY)
        buries = self._buries
        for entry in found:
            if buries:
                self._verdicts.kill(entry, CAUSE, now, wall, REASON)
            else:
                self._verdicts.end(entry, CAUSE, now, REASON)
            self._remember(lane.number, entry.seq, buries)
        self._window.delays.ended(waiting)
        self.ended += len(found)

    def _remember(self, lane: int, seq: int, dead: bool) -> None:
        runs = self._runs
        if runs and (runs[-1][0], runs[-1][2], runs[-1][3]) == (lane, seq - 1, dead):
            runs[-1] = (lane, runs[-1][1], seq, dead)
        else:
            runs.append((lane, seq, seq, dead))
