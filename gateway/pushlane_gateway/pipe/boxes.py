"""What goes through a pipe: the inbox has what its client sends, the outbox what its session does.

A client sends batches of frames, numbered so that each is taken once. It has one send in flight,
and may repeat the last one when the answer was lost; another number means that something is lost or
comes twice, and no session could go on from there. What makes a page go away can't wait for an
answer: so a little may stand behind the batch that is being taken.

What a session sends waits until a request fetches it. Each answer has a number. A client says with
each request which answer it got last; until then the answer is kept, for a client whose connection
broke while it came. Frames are joined as they were encoded, once.

A request that waits has to see its client go, too. Waiting for that is all its task does; a signal
ends the wait. So a request that waits is one task, not three.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from math import inf
from typing import NamedTuple

import msgspec
import trio

from pushlane.wire.errors import Conflict
from pushlane_gateway.listener.decoder import End

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


class Answer(NamedTuple):
    """What a receive is told."""

    body: bytes
    is_last: bool = False
    """It has the close in it."""


class Outbox:
    __slots__ = (
        "_end",
        "_flows",
        "_frames",
        "_kept",
        "_most",
        "_moved",
        "_n",
        "_news",
        "sent_at",
        "waiting",
    )

    def __init__(self, answer_bytes: int) -> None:
        self._most = answer_bytes
        self._frames: list[bytes] = []
        self._end: End | None = None
        self._flows = False
        self._n = 0
        self._kept: Answer | None = None
        self._news: Signal | None = None
        """Ends the receive that waits."""
        self._moved: trio.Event | None = None
        self.waiting = 0
        """Bytes that wait."""
        self.sent_at = trio.current_time()
        """When frames were fetched last."""

    def put(self, frame: bytes) -> None:
        self._frames.append(frame)
        self.waiting += len(frame)
        if self._news is not None:
            self._news.set()

    def end(self, end: End) -> None:
        """Nothing comes behind this."""
        self._end = end
        if self._news is not None:
            self._news.set()
        self.release()

    def release(self) -> None:
        """Hold nobody back any more who waits for room."""
        self._flows = True
        self._tell()

    def clear(self) -> None:
        """Throw away what waits."""
        self._frames = []
        self._kept = None
        self.waiting = 0

    def is_done(self, after: int) -> bool:
        """Whether who has this answer has all there ever was."""
        return self._kept is not None and self._kept.is_last and after == self._n

    async def answer(self, after: int, seconds: float, gone: Gone) -> Answer:
        """What comes behind the answer of this number, waiting for it. Raises Conflict."""
        if after == self._n - 1 and self._kept is not None:
            return self._kept
        if after != self._n:
            raise Conflict(f"after is {after}, the last answer was {self._n}")
        self._kept = None
        if self._news is not None:
            self._news.set()
            self._news = None
        if not self._frames and self._end is None and not await self._wait(seconds, gone):
            return _empty(after)
        return self._take()

    async def _wait(self, seconds: float, gone: Gone) -> bool:
        """For the first frame; whether there is something, and no newer receive to have it."""
        news = self._news = Signal()
        try:
            await news.wait(gone, seconds)
            return self._news is news and (bool(self._frames) or self._end is not None)
        finally:
            if self._news is news:
                self._news = None

    def _take(self) -> Answer:
        frames = self._next_frames()
        if frames:
            self.sent_at = trio.current_time()
        self._n += 1
        is_last = self._end is not None and not self._frames
        end = _close(self._end) if is_last and self._end is not None else b""
        self._kept = Answer(
            b'{"n":%d,"frames":[%b]%b}' % (self._n, b",".join(frames), end), is_last
        )
        self._tell()
        return self._kept

    def _next_frames(self) -> list[bytes]:
        """All that wait, or as many as make a good answer."""
        frames, self._frames = self._frames, []
        size = self.waiting
        if size > self._most:
            size = count = 0
            while count < len(frames) and size < self._most:
                size += len(frames[count])
                count += 1
            self._frames = frames[count:]
            del frames[count:]
        self.waiting -= size
        return frames

    async def drain(self, below: int) -> None:
        """Wait until less than this waits, or the pipe ends."""
        while self.waiting >= below and not self._flows:
            if self._moved is None:
                self._moved = trio.Event()
            await self._moved.wait()

    def _tell(self) -> None:
        if self._moved is not None:
            self._moved.set()
            self._moved = None


def _empty(after: int) -> Answer:
    return Answer(b'{"n":%d,"frames":[]}' % after)


def _close(end: End) -> bytes:
    return b',"close":' + msgspec.json.encode({"code": end.code, "reason": end.reason})
