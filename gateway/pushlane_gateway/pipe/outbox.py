"""What a session sends through a pipe: frames that wait until a request fetches them.

Each answer has a number. A client says with each request which answer it got last; until then the
answer is kept, for a client whose connection broke while it came. Frames are joined as they were
encoded, once.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import trio

from pushlane.wire.errors import Conflict
from pushlane_gateway.listener.decoder import End
from pushlane_gateway.pipe.signal import Gone, Signal


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
