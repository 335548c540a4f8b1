"""Expiry: ready messages whose time is over. What is leased, or waits, is decided later."""

from __future__ import annotations

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import Lane


class Expiry:
    __slots__ = ("_bounds", "_judged_from", "_order", "_watching", "next_at")

    def __init__(self, bounds: Bounds, order: list[Lane]) -> None:
        self._bounds = bounds
        self._order = order
        self._watching = False
        self._judged_from = 0
        """Nothing below this seq expires."""
        self.next_at: int | None = None
        """Wall clock: no ready message expires before."""

    def watch(self, entry: Entry) -> None:
        """A message became ready."""
        if entry.expires_at:
            self._watching = True
            if self.next_at is None or entry.expires_at < self.next_at:
                self.next_at = entry.expires_at

    def take(self, lane: Lane, count: int, wall: int) -> tuple[list[Entry], list[Entry]]:
        """Ready messages to grant, and those that were found expired."""
        taken = lane.take(count)
        if not self._watching:
            return taken, []
        expired = [entry for entry in taken if self.expired(entry, wall)]
        if expired:
            taken = [entry for entry in taken if not self.expired(entry, wall)]
        return taken, expired

    def expired(self, entry: Entry, wall: int) -> bool:
        return 0 < entry.expires_at <= wall and entry.seq >= self._judged_from

    def judge_from(self, seq: int, wall: int) -> None:
        """From now on only messages from this seq on expire; a sweep looks at all of them again."""
        self._judged_from = seq
        if self._watching:
            self.next_at = wall

    def sweep(self, wall: int) -> list[Entry]:
        """Take expired messages out of the ready ones, also when nobody consumes them."""
        if self.next_at is None or wall < self.next_at:
            return []
        expired, coming = [], []
        for lane in self._order:
            ready = [*lane.fresh, *(entry for _, entry in lane.again)]
            gone = [entry for entry in ready if self.expired(entry, wall)]
            coming += [entry.expires_at for entry in ready if entry.expires_at > wall]
            if gone:
                lane.remove(gone)
                expired += gone
        self.next_at = max(min(coming), wall + self._bounds.expiry_sweep_ms) if coming else None
        return expired
