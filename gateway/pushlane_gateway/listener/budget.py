"""One budget of memory for all that nobody has vouched for: what clients sent before they were
authenticated, and what comes from those that never are, where everybody may come.

Each connection says how many bytes it keeps while it waits for more. When they are too many
together, the connection that keeps the most is cut: an attacker's, since a whole small request
keeps nothing, and one that comes in two pieces keeps little.
"""

from __future__ import annotations

from typing import Protocol

FELL_BYTES = 8 * 1024 * 1024
"""When this much was given back, the system may have it."""


class Holder(Protocol):
    """A connection that keeps something."""

    def cut(self) -> None:
        """Give back what you keep, tell the client that it is too much, and end."""
        ...


class Budget:
    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._holds: dict[Holder, int] = {}
        self.held = 0
        """Bytes, of all together."""
        self._peak = 0

    def hold(self, holder: Holder, size: int) -> None:
        """This one keeps so many bytes now; 0: nothing any more."""
        before = self._holds.get(holder, 0)
        if size:
            self._holds[holder] = size
        elif before:
            del self._holds[holder]
        self.held += size - before
        self._peak = max(self._peak, self.held)
        while self.held > self._most and size > before:
            self._relieve()

    def fell(self) -> bool:
        """Whether much was given back since it was asked last."""
        peak, self._peak = self._peak, self.held
        return peak - self.held > FELL_BYTES

    def _relieve(self) -> None:
        largest = max(self._holds, key=self._holds.__getitem__)
        self.held -= self._holds.pop(largest)
        largest.cut()
