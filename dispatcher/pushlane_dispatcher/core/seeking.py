"""Seeking: messages that were passed over because their key was blocked are found again.

A key that has used up its kept messages is sought: its stretch of the store is read once more, from
where its first passed message may stand up to the cursor. All other keys whose passed messages
begin in what is read get theirs by the same read, as far as there is room for them.
"""

from __future__ import annotations

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Effect, Page
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.keys import Key, Keys
from pushlane_dispatcher.core.lane import Lane
from pushlane_dispatcher.core.life import State


class Seeking:
    __slots__ = ("_bounds", "_effects", "_keys", "_stopped", "_taken", "page")

    def __init__(self, bounds: Bounds, keys: Keys, effects: list[Effect]) -> None:
        self._bounds = bounds
        self._keys = keys
        self._effects = effects
        self.page: Page | None = None
        """The read under way."""
        self._taken: set[str] = set()
        """Keys that got something by it …"""
        self._stopped: set[str] = set()
        """… and those for which there was no more room."""

    def read(self) -> None:
        """Read on for the sought key whose messages may stand first."""
        while self._keys.sought and self.page is None:
            self._begin(min(self._keys.sought.values(), key=_again))

    def _begin(self, key: Key) -> None:
        lane = key.lane
        found = lane.unsettled_from(_again(key))
        end = lane.cursor if found is None else min(found[1], lane.cursor)
        self._pass(lane, _again(key), end)
        if found is not None and end < lane.cursor:
            last = min(found[0].last, lane.cursor - 1)
            self.page = Page(lane, found[0].key, end, last, self._bounds.page_messages)
            self._effects.append(self.page)

    def claim(self, name: str, entry: Entry, start: int) -> State | None:
        """What a message is that the read has brought; None: nobody looks for it here.

        Only keys of which nothing was passed over before the read's start take theirs from it:
        else they would skip some.
        """
        key = self._keys.get(name)
        if key is None or key.again is None or not start <= key.again <= entry.seq:
            return None
        if name in self._stopped:
            return None
        if key.head is None:
            self._keys.found(name, entry)
        elif not self._keys.keep(key, entry):
            key.again = entry.seq
            self._stopped.add(name)
            return None
        key.again = entry.seq + 1
        self._taken.add(name)
        return State.READY if key.head is entry else State.BLOCKED

    def done(self, page: Page, end: int) -> None:
        """All from the read's start up to `end` was looked at."""
        if end >= page.lane.cursor:
            for name in self._taken - self._stopped:
                self._keys.exhausted(name)
        self._taken.clear()
        self._stopped.clear()
        self._pass(page.lane, page.start, end)

    def _pass(self, lane: Lane, start: int, end: int) -> None:
        """Nothing that is sought stands between start and end."""
        for name, key in list(self._keys.sought.items()):
            if key.lane is lane and start <= _again(key) <= end:
                key.again = end
                if end >= lane.cursor:
                    self._keys.exhausted(name)


def _again(key: Key) -> int:
    assert key.again is not None  # it is sought
    return key.again
