"""Hourly: things that are worth a line in the log, but not a line each."""

from __future__ import annotations

HOUR_MS = 3_600_000


class Hourly:
    """Of each name at most one line an hour; it says how many there were since the last."""

    def __init__(self, names: int = 10_000) -> None:
        """Of so many names. Beyond it the one that was told of first is forgotten."""
        self._names = names
        self._told: dict[str, tuple[int, int]] = {}
        """By name: when it was told of last, and how many there were since."""

    def add(self, name: str, count: int, now: int) -> int:
        """There were `count` more: how many to tell of now; 0: not yet."""
        at, waiting = self._told.get(name, (now - HOUR_MS, 0))
        if now - at < HOUR_MS:
            self._told[name] = at, waiting + count
            return 0
        self._told.pop(name, None)
        if len(self._told) >= self._names:
            del self._told[next(iter(self._told))]
        self._told[name] = now, 0
        return waiting + count
