"""The clock: monotonic milliseconds, and how far the wall clock is ahead of them.

Monotonic time is trio's, so that a mock clock moves leases, backoff and time-outs alike. The wall
clock is asked of the operating system and may step; the core notices that and says so.
"""

import time
from collections.abc import Callable

import trio

_EARLY = 1e-3
"""Milliseconds: a timer set to a whole millisecond must not find the clock just before it."""


class Clock:
    __slots__ = ("_wall",)

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        """`wall` answers Unix seconds."""
        self._wall = wall

    def now(self) -> int:
        """Monotonic milliseconds."""
        return int(trio.current_time() * 1000 + _EARLY)

    def wall(self) -> int:
        """Unix milliseconds."""
        return int(self._wall() * 1000 + _EARLY)

    def offset(self) -> int:
        """What to add to monotonic time to get the wall clock's."""
        return self.wall() - self.now()
