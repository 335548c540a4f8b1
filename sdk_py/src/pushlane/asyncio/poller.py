"""A link of polling on asyncio: to the driver it is a connection like a WebSocket's.

`Poll` decides which requests there are; each is a task here, whose parent is the link: they end
with it.
"""

from __future__ import annotations

import asyncio

from pushlane.core.poll import Ask, Poll
from pushlane.wire.errors import PushlaneError

from .connection import Listener
from .pool import Pool

_GOODBYE = 1000
_ABNORMAL = 1006


class Poller:
    """The requests of one link."""

    def __init__(
        self, link: int, poll: Poll, pool: Pool, listener: Listener, hangup_ms: int
    ) -> None:
        self._link = link
        self._poll = poll
        self._pool = pool
        self._listener = listener
        self._hangup_ms = hangup_ms
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._will_tell = False
        self._is_leaving = False
        self._is_over = False
        self._fault: PushlaneError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._abort: asyncio.TimerHandle | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def _now(self) -> float:
        return self._loop.time() * 1000

    # What the driver calls

    def send(self, data: bytes) -> None:
        """A frame of the core."""
        if not self._is_over:
            self._poll.send(data)

    def write(self) -> None:
        """Make the requests that are due."""
        if self._is_over:
            return
        poll = self._poll
        poll.flush(self._now())
        drops, poll.drops = poll.drops, []
        for number in drops:
            self._tasks[number].cancel()
        asks, poll.asks = poll.asks, []
        for ask in asks:
            self._tasks[ask.number] = self._loop.create_task(self._ask(ask))
        if (poll.frames or poll.fault is not None) and not self._will_tell:
            self._will_tell = True
            self._loop.call_soon(self._tell)
        if self._is_leaving and poll.is_idle:
            self.abort()
        self._set_timer()

    def hang_up(self, code: int, reason: str) -> None:
        """Send what was said last, within a bounded time; unless it is a hangup in a hurry."""
        if code != _GOODBYE or not self._poll.is_open:
            self.abort()
        elif not self._is_over:
            self._is_leaving = True
            self._poll.leave()
            self._abort = self._loop.call_later(self._hangup_ms / 1000, self.abort)

    def abort(self) -> None:
        """End it now."""
        self._end(None)

    # Requests

    async def _ask(self, ask: Ask) -> None:
        poll = self._poll
        try:
            answer = await self._pool.ask(ask)
            if not self._is_over:
                poll.answered(ask.number, answer, self._now())
        except PushlaneError as error:
            if not self._is_over:
                poll.failed(ask.number, error, self._now())
        finally:
            del self._tasks[ask.number]
            self._finish_if_done()
        self._tell()

    def _tell(self) -> None:
        """Give the core what came, and have a turn."""
        self._will_tell = False
        if self._is_over:
            return
        if self._poll.fault is not None:
            self._end(self._poll.fault)
            return
        frames, self._poll.frames = self._poll.frames, []
        if frames:
            self._listener.on_heard(self._link, frames)
        else:
            self.write()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = None if self._is_over else self._poll.wake_at(self._now())
        if at is not None:
            self._timer = self._loop.call_at(at / 1000, self.write)

    # The end

    def _end(self, fault: PushlaneError | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._fault = fault
        self._poll.reset()
        for timer in (self._timer, self._abort):
            if timer is not None:
                timer.cancel()
        for task in self._tasks.values():
            task.cancel()
        self._pool.close()
        self._finish_if_done()

    def _finish_if_done(self) -> None:
        if self._is_over and not self._tasks:
            self._loop.call_soon(self._finish)

    def _finish(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
            self._listener.on_lost(self._link, _ABNORMAL, "", self._fault, None)
