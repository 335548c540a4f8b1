"""Retention: what nobody took for too long ends, by whole buckets.

Only closed buckets are looked at, and of them what is not in flight: a leased message is decided
when it comes back. It all ends like every other message; what stands behind the window comes in as
a bare position first, so that nothing that is read later finds it a second time.
"""

from __future__ import annotations

from collections.abc import Iterator

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import Lane, LiveBucket
from pushlane_dispatcher.core.life import PURGEABLE, Life, State
from pushlane_dispatcher.core.log import Log
from pushlane_dispatcher.core.verdicts import Verdicts
from pushlane_dispatcher.core.window import Window
from pushlane_storage.message import MESSAGE_OVERHEAD

CAUSE = "expired"


class Retention:
    __slots__ = ("_bounds", "_life", "_log", "_verdicts", "_window", "next_at")

    def __init__(
        self, bounds: Bounds, life: Life, log: Log, window: Window, verdicts: Verdicts
    ) -> None:
        self._bounds = bounds
        self._life = life
        self._log = log
        self._window = window
        self._verdicts = verdicts
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
        for lane in self._window.order:
            found = self._past(lane, now, wall)
            if found:
                self._end(lane, found, now)
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
        return None if any(lane.paging for lane in self._window.order) else self.next_at

    def _dues(self) -> Iterator[int]:
        for lane in self._window.order:
            yield from (self._due(bucket) for bucket in lane.buckets if bucket.closed)

    def _due(self, bucket: LiveBucket) -> int:
        return bucket.last_at + self._verdicts.config.retention_ms

    def _past(self, lane: Lane, now: int, wall: int) -> list[Entry]:
        found: list[Entry] = []
        for bucket in lane.buckets:
            if bucket.closed and self._due(bucket) <= wall:
                for entry in self._waiting(lane, bucket, now):
                    found.append(entry)
                    if len(found) >= self._bounds.retention_messages:
                        return found
        return found

    def _waiting(self, lane: Lane, bucket: LiveBucket, now: int) -> Iterator[Entry]:
        """What has not ended of a bucket, and nobody holds."""
        for low, high in bucket.state.settled.gaps(bucket.first, bucket.last):
            for seq in range(low, high + 1):
                entry = lane.entries.get(seq)
                if entry is None:
                    yield self._enter(lane, seq, now)
                elif entry.state in PURGEABLE:
                    yield entry

    def _enter(self, lane: Lane, seq: int, now: int) -> Entry:
        if seq < lane.cursor:  # only the schedule index knew it
            self._window.far -= 1
        entry = Entry(seq, lane, None, MESSAGE_OVERHEAD, State.READY, now)
        lane.entries[seq] = entry
        self._life.born(State.READY)
        return entry

    def _end(self, lane: Lane, found: list[Entry], now: int) -> None:
        waiting = {entry for entry in found if entry.state in (State.DELAYED, State.RETRYING)}
        if waiting:
            self._window.no_longer_delayed(waiting)
        lane.remove(entry for entry in found if entry.state is State.READY)
        for entry in found:
            if entry.state is State.BLOCKED:
                self._window.keys.withdraw(entry)
            self._verdicts.end(entry, CAUSE, now)
