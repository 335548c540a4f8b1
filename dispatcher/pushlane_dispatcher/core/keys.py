"""Keys: messages with the same key go out in order of seq, one at a time.

A key's head is its first unsettled message; whatever follows is blocked until the head's end is
durable. Earlier would be too early: after a crash the head could come back behind its successor.
A blocked message that ends or leaves before its turn keeps its place for just as long.

Of each key the first few blocked messages are kept. The others are passed over: they stay in the
store, and the key remembers the seq from which to look for them again. So a key's backlog may be
of any length and holds up nobody else. When a key has used up what was kept, its next messages are
sought (see `Seeking`).
"""

from __future__ import annotations

from collections import deque

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import Lane
from pushlane_dispatcher.core.life import State


class Key:
    __slots__ = ("again", "blocked", "head", "lane")

    def __init__(self, lane: Lane, head: Entry | None) -> None:
        self.lane = lane
        """Where its messages are: one with a key has no priority."""
        self.head = head
        """None: it is being sought."""
        self.blocked: deque[Entry] = deque()
        self.again: int | None = None
        """From this seq on messages were passed over; None: there are none."""


class Keys:
    __slots__ = ("_bounds", "kept", "known", "passed", "sought")

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.known: dict[str, Key] = {}
        """Those with an unsettled message."""
        self.kept = 0
        """Blocked messages in memory, of all keys."""
        self.passed = 0
        """Blocked messages that only the store has."""
        self.sought: dict[str, Key] = {}
        """Keys without a head whose next message was passed over."""

    def get(self, key: str) -> Key | None:
        return self.known.get(key)

    def claim(self, key: str, entry: Entry) -> State | None:
        """What a message is that comes after all of its key so far; None: it is passed over."""
        found = self.known.get(key)
        if found is None:
            self.known[key] = Key(entry.lane, entry)
            return State.READY
        if found.again is None:
            if self.keep(found, entry):
                return State.BLOCKED
            found.again = entry.seq
        self.passed += 1
        return None

    def keep(self, key: Key, entry: Entry) -> bool:
        """Keep one more blocked message, if there is room for it."""
        bounds = self._bounds
        if len(key.blocked) >= bounds.key_positions or self.kept >= bounds.positions:
            return False
        key.blocked.append(entry)
        self.kept += 1
        return True

    def pass_over(self, key: str, lane: Lane, seq: int) -> None:
        """A message turns out to have a key, out of turn: look for it where it stands."""
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self.sought[key] = Key(lane, None)
        found.again = seq if found.again is None else min(seq, found.again)

    def rejoin(self, entry: Entry) -> State | None:
        """What a message is that is back, in its place; None: it is passed over."""
        assert entry.key is not None
        found = self.known.get(entry.key)
        if found is None:
            self.known[entry.key] = Key(entry.lane, entry)
            return State.READY
        if found.again is None or entry.seq < found.again:
            if found.head is None:
                self.found(entry.key, entry)
                return State.READY
            # Also at the bound: passed over, it would come behind those that are kept. No more than
            # `Bounds.leaving` come back.
            found.blocked.append(entry)
            found.blocked = deque(sorted(found.blocked, key=_seq))
            self.kept += 1
            return State.BLOCKED
        self.passed += 1
        return None

    def release(self, entry: Entry) -> Entry | None:
        """A message's end or departure is durable: who is the new head of its key, if any?"""
        assert entry.key is not None
        found = self.known.get(entry.key)
        if found is None:
            return None
        if found.head is not entry:
            if entry in found.blocked:
                found.blocked.remove(entry)
                self.kept -= 1
            return None
        if found.blocked:
            found.head = found.blocked.popleft()
            self.kept -= 1
            return found.head
        found.head = None
        if found.again is None:
            del self.known[entry.key]
        else:
            self.sought[entry.key] = found
        return None

    def found(self, key: str, head: Entry) -> None:
        """The next message of a key that was sought."""
        self.sought.pop(key).head = head

    def exhausted(self, key: str) -> None:
        """Nothing of a key was passed over any more."""
        found = self.known[key]
        found.again = None
        if found.head is None:
            del self.known[key], self.sought[key]

    def head(self, key: str) -> Entry | None:
        found = self.known.get(key)
        return None if found is None else found.head

    def purge(self) -> None:
        """Everything blocked is being purged: forget it."""
        for name, key in list(self.known.items()):
            key.blocked.clear()
            key.again = None
            if key.head is None:
                del self.known[name]
        self.sought.clear()
        self.kept = self.passed = 0


def _seq(entry: Entry) -> int:
    return entry.seq
