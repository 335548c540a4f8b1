"""Idle consumers: who has nothing to do gets what another one only reserved.

A deep prefetch must not keep work from a consumer that waits for it. When one has been idle for
a while with nothing ready, half of the longest prefetch is taken back, its last messages first.
They are promised to the idle one: by free permits alone they could go back where they came from.
Who let something lie itself gets nothing in this way until it has started or settled something:
two of that kind would pass a message back and forth for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.life import Life, State
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.core.window import Window

if TYPE_CHECKING:
    from pushlane_dispatcher.core.consumers import Consumers


class Idle:
    __slots__ = ("_bounds", "_consumers", "_life", "_window", "promised", "since")

    def __init__(self, bounds: Bounds, life: Life, window: Window, consumers: Consumers) -> None:
        self._bounds = bounds
        self._life = life
        self._window = window
        self._consumers = consumers
        self.promised: dict[Entry, Subscription] = {}
        """Taken back, and for whom."""
        self.since: int | None = None
        """Since when somebody has free permits and nothing was ready."""

    def note(self, taker: Subscription | None, granted: bool, now: int) -> None:
        """Everything ready was granted; `taker` is somebody who still has free permits."""
        if taker is None:
            self.since = None
        elif granted or self.since is None:
            self.since = now

    def next_steal(self) -> int | None:
        """When an idle consumer may get what another one only reserved."""
        if self.since is None or not self._life.counts[State.RESERVED]:
            return None
        return self.since + self._bounds.steal_ms

    def steal(self, now: int, wall: int) -> None:
        at = self.next_steal()
        if at is None or now < at:
            return
        self.since = now
        thief = self._find_idle()
        if thief is None:
            return
        prefetch = self._longest_prefetch()
        count = min(-(-len(prefetch) // 2), thief.free(self._bounds))
        stolen = prefetch[len(prefetch) - count :]
        if stolen:
            self.promised.update(dict.fromkeys(stolen, thief))
            self._consumers.take_back(stolen, now, wall)

    def _find_idle(self) -> Subscription | None:
        """Of those that hold nothing, the one with the most free permits."""
        best, most = None, 0
        for subscription in self._consumers.subscriptions.values():
            if subscription.held or subscription.lazy:
                continue
            if subscription.free(self._bounds) > most:
                best, most = subscription, subscription.free(self._bounds)
        return best

    def _longest_prefetch(self) -> list[Entry]:
        longest: list[Entry] = []
        for subscription in self._consumers.subscriptions.values():
            if subscription.away_until is None:
                held = subscription.held.values()
                reserved = [entry for entry in held if entry.state is State.RESERVED]
                longest = max(longest, reserved, key=len)
        return longest

    def kept(self, wall: int) -> dict[Subscription, list[Entry]]:
        """Take out what can now go to those to whom it was promised."""
        kept: dict[Subscription, list[Entry]] = {}
        for entry in [entry for entry in self.promised if entry.state is not State.VOIDING]:
            thief = self.promised.pop(entry)
            expired = self._window.expiry.expired(entry, wall)
            if entry.state is State.READY and entry.message is not None and not expired:
                kept.setdefault(thief, []).append(entry)
        given = {
            thief: entries[: max(0, thief.free(self._bounds))] for thief, entries in kept.items()
        }
        for entries in given.values():
            for lane in {entry.lane for entry in entries}:
                lane.remove(entry for entry in entries if entry.lane is lane)
        return {thief: entries for thief, entries in given.items() if entries}
