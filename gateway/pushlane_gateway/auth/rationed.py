"""Rationed log lines: what strangers cause may not fill the disk."""

from __future__ import annotations

MINUTE_S = 60


class Rationed:
    """So many lines a minute; beyond it the next line says how many were left out."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._since = 0.0
        self._lines = 0
        self._left_out = 0

    def take(self, now: float) -> str | None:
        """What to put behind the next line; None: there may be none."""
        if not self._lines or now >= self._since + MINUTE_S:
            self._since, self._lines = now, 0
        if self._lines >= self._most:
            self._left_out += 1
            return None
        self._lines += 1
        more = f" ({self._left_out} more were not logged)" if self._left_out else ""
        self._left_out = 0
        return more
