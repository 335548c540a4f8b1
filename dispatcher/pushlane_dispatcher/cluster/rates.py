"""Rates: messages a second, from counters that only grow."""

from __future__ import annotations

from collections import deque

SPAN_S = 10.0
"""Rates are of about the last seconds."""
SAMPLES = 64
"""The most that are kept of them."""


class Rates:
    def __init__(self) -> None:
        self._samples: deque[tuple[float, tuple[int, ...]]] = deque(maxlen=SAMPLES)

    def note(self, now: float, *counts: int) -> None:
        """What the counters say now, in seconds."""
        self._samples.append((now, counts))
        while len(self._samples) > 2 and self._samples[1][0] <= now - SPAN_S:
            self._samples.popleft()

    def per_second(self, index: int) -> float:
        """Of the counter with this place; 0 until there are two samples."""
        if len(self._samples) < 2:
            return 0.0
        (since, before), (until, after) = self._samples[0], self._samples[-1]
        return (after[index] - before[index]) / (until - since) if until > since else 0.0
