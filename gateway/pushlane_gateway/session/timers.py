"""Timers: calls at a later time, all made by one task.

A task per session would cost more memory than the session itself. Most timers here are set far
ahead and found to be early when they ring (a beat that was not needed), so there are no handles:
what rings looks whether it is still wanted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

import trio

log = logging.getLogger(__name__)


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._sleep = trio.CancelScope()

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Call this at a time of trio's clock."""
        self._order += 1
        heappush(self._heap, (when, self._order, call))
        if when < self._sleep.deadline:
            self._sleep.deadline = when

    async def run(self) -> None:
        """The task."""
        while True:
            self._ring(trio.current_time())
            with trio.CancelScope() as self._sleep:
                self._sleep.deadline = self._heap[0][0] if self._heap else inf
                await trio.sleep_forever()

    def _ring(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            _, _, call = heappop(self._heap)
            try:
                call()
            except Exception:  # one session's bug must not take the others' time away
                log.exception("a timer failed")
