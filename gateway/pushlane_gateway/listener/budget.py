"""Budgets of memory for what clients have sent in part: frames and bodies that are not complete.

There are two. One is for all that nobody has vouched for: what clients sent before they were
authenticated, and what comes from those that never are, where everybody may come. The other is for
those who are known, of which each gets its share (see `Places`).

Each connection says how many bytes it keeps while it waits for more. When they are too many
together, or too many of one who shares, the connection that keeps the most is cut: an attacker's,
since a whole small request keeps nothing, and one that comes in two pieces keeps little. Who has
but one connection that keeps something is never over its share: a share is always good for one.
"""

from __future__ import annotations

from typing import Protocol

from pushlane_dispatcher.port import Claims, Places

FELL_BYTES = 8 * 1024 * 1024
"""When this much was given back, the system may have it."""


class Holder(Protocol):
    """A connection that keeps something."""

    def cut(self) -> None:
        """Give back what you keep, tell the client that it is too much, and end."""
        ...


class Budget:
    def __init__(self, most_bytes: int) -> None:
        self._bytes = Places("bytes", most_bytes, "bytes that wait")
        self._holds: dict[Holder, tuple[int, Claims]] = {}
        self._peak = 0

    @property
    def held(self) -> int:
        """Bytes, of all together."""
        return self._bytes.taken

    def hold(self, holder: Holder, size: int, claims: Claims = ()) -> None:
        """This one keeps so many bytes now, of these; 0: nothing any more."""
        before = self._give_back(holder)
        if size:
            self._holds[holder] = size, claims
            self._bytes.take(claims, size)
            self._peak = max(self._peak, self._bytes.taken)
        while size > before and (among := self._too_many(claims)):
            largest = max(among, key=lambda one: self._holds[one][0])
            self._give_back(largest)
            largest.cut()

    def fell(self) -> bool:
        """Whether much was given back since it was asked last."""
        peak, self._peak = self._peak, self.held
        return peak - self.held > FELL_BYTES

    def _give_back(self, holder: Holder) -> int:
        """How much it had."""
        size, claims = self._holds.pop(holder, (0, ()))
        if size:
            self._bytes.give_back(claims, size)
        return size

    def _too_many(self, claims: Claims) -> list[Holder]:
        """Those who hold too much together; nobody: all is well."""
        if self._bytes.taken > self._bytes.most:
            return list(self._holds)
        claim = self._bytes.over(claims, 0)
        if claim is None:
            return []
        among = [holder for holder, (_, theirs) in self._holds.items() if claim in theirs]
        return among if len(among) > 1 else []
