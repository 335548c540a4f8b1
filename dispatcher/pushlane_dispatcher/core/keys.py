"""Keys: messages with the same key go out in order of seq, one at a time.

A key's head is its first unsettled message in memory; whatever follows is blocked until the
head's end is durable. Earlier would be too early: after a crash the head could come back behind
its successor.
"""

from __future__ import annotations

from collections import deque

from pushlane_dispatcher.core.entry import Entry


class Key:
    __slots__ = ("blocked", "head")

    def __init__(self, head: Entry) -> None:
        self.head = head
        self.blocked: deque[Entry] = deque()


class Keys:
    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: dict[str, Key] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def claim(self, key: str, entry: Entry) -> bool:
        """Make a message the head of its key; False when it must wait behind another."""
        found = self._keys.get(key)
        if found is None:
            self._keys[key] = Key(entry)
            return True
        found.blocked.append(entry)
        return False

    def release(self, entry: Entry) -> Entry | None:
        """A message's end is durable, or it leaves: who is the head of its key now?"""
        assert entry.key is not None
        found = self._keys.get(entry.key)
        if found is None or found.head is not entry:
            return None
        if not found.blocked:
            del self._keys[entry.key]
            return None
        found.head = found.blocked.popleft()
        return found.head

    def withdraw(self, entry: Entry) -> None:
        """A blocked message leaves before its turn."""
        assert entry.key is not None
        self._keys[entry.key].blocked.remove(entry)

    def head(self, key: str) -> Entry | None:
        found = self._keys.get(key)
        return None if found is None else found.head

    def purge(self) -> None:
        """Everything blocked is being purged: forget it."""
        for key in self._keys.values():
            key.blocked.clear()
