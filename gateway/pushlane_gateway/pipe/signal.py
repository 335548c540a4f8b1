"""A signal: something that happens once, and that requests wait for.

A request that waits has to see its client go, too. Waiting for that is all its task does; the
signal ends the wait. So a request that waits is one task, not three.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf

import trio

Gone = Callable[[], Awaitable[None]]
"""Waits until a request's client has gone, and raises then."""


class Signal:
    __slots__ = ("_waits", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waits: set[trio.CancelScope] = set()

    def set(self) -> None:
        self.is_set = True
        for scope in self._waits:
            scope.cancel()

    async def wait(self, gone: Gone, seconds: float = inf) -> None:
        """Until it is set or the time is over; raises what `gone` does."""
        if self.is_set:
            return
        with trio.CancelScope(deadline=trio.current_time() + seconds) as scope:
            self._waits.add(scope)
            try:
                await gone()
            finally:
                self._waits.discard(scope)
