"""What a client sends through a pipe: batches of frames, numbered so that each is taken once.

A client has one send in flight. It may repeat the last one when the answer was lost; another number
means that something is lost or comes twice, and no session could go on from there. What makes a
page go away can't wait for an answer: so a little may stand behind the batch that is being taken.
"""

from __future__ import annotations

from collections import deque

import trio

from pushlane.wire.errors import Conflict
from pushlane_gateway.pipe.signal import Signal

AHEAD = 2
"""Batches that wait for their turn: with an answer to wait for there is one."""


class Batch:
    """The frames of one request."""

    __slots__ = ("frames", "taken")

    def __init__(self, frames: list[bytes]) -> None:
        self.frames = frames
        self.taken = Signal()
        """The session has taken them all, or never will."""


class Inbox:
    __slots__ = ("_current", "_last", "_n", "_news", "_waiting")

    def __init__(self, frames: list[bytes]) -> None:
        """`frames`: those that came with the request that opened the pipe."""
        self._n = 0
        self._last = Batch(frames)
        self._waiting: deque[Batch] = deque((self._last,))
        self._current: Batch | None = None
        self._news: trio.Event | None = None

    def put(self, n: int, frames: list[bytes]) -> Batch:
        """Take in the send of this number, or find it again. Raises Conflict."""
        if n == self._n:
            return self._last
        if n != self._n + 1:
            raise Conflict(f"n is {n}, the last was {self._n}: the pipe is cut")
        if len(self._waiting) >= AHEAD:
            raise Conflict(f"send {self._n} is not answered yet: the pipe is cut")
        self._n = n
        self._last = Batch(frames)
        self._waiting.append(self._last)
        self.wake()
        return self._last

    def next(self) -> list[bytes] | None:
        """The next batch, None when there is none. The one before it has been taken."""
        if self._current is not None:
            self._current.taken.set()
            self._current = None
        if not self._waiting:
            return None
        self._current = self._waiting.popleft()
        frames, self._current.frames = self._current.frames, []
        return frames

    async def wait(self) -> None:
        """Until something may have come."""
        self._news = trio.Event()
        await self._news.wait()

    def wake(self) -> None:
        if self._news is not None:
            self._news.set()

    def clear(self) -> None:
        """Nobody takes anything any more."""
        while self.next() is not None:
            pass
