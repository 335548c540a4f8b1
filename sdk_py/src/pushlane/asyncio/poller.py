"""A link of polling on asyncio: to the driver it is a connection like a WebSocket's.

`Pipe` decides which requests there are; each is a task here, whose parent is the link: they end
with it.
"""

from __future__ import annotations

import asyncio

from pushlane.core.pipe import Ask, Close, Pipe
from pushlane.wire.errors import PushlaneError

from .connection import Listener
from .http import Pool

_ABNORMAL = Close(1006)


class Poller:
    """The requests of one link."""

    def __init__(
        self, link: int, pipe: Pipe, pool: Pool, listener: Listener, hangup_ms: int
    ) -> None:
        self._link = link
        self._pipe = pipe
        self._pool = pool
        self._listener = listener
        self._hangup_ms = hangup_ms
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Task[None], Ask] = {}
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        self._abort: asyncio.TimerHandle | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def _now(self) -> float:
        return self._loop.time() * 1000

    # What the driver calls

    def send(self, data: bytes) -> None:
        """Send a frame with the next `write`, or as soon as a request may go out."""
        self._pipe.send(data)

    def write(self) -> None:
        """Make the requests that are due."""
        if self._is_over:
            return
        for ask in self._pipe.asks(self._now()):
            task = self._loop.create_task(self._ask(ask))
            self._tasks[task] = ask
            task.add_done_callback(self._done)  # one that is cancelled may never have run
        self._set_timer()

    def hang_up(self, code: int, reason: str) -> None:
        """Say close, after what was said before, within a bounded time."""
        if not self._pipe.is_open:
            self.abort()
        elif self._abort is None:
            self._abort = self._loop.call_later(self._hangup_ms / 1000, self.abort)
            self._pipe.leave(code)
            for task, ask in self._tasks.items():
                if ask.is_receive:
                    task.cancel()
            self.write()

    def abort(self) -> None:
        """End it now."""
        self._end()

    # Requests

    async def _ask(self, ask: Ask) -> None:
        pipe = self._pipe
        try:
            answer = await self._pool.ask(ask.call, ask.timeout_ms)
        except PushlaneError as error:
            pipe.failed(ask, error, self._now())
            return
        pipe.answered(ask, answer, self._now())
        frames, pipe.frames = pipe.frames, []
        self._listener.on_heard(self._link, frames)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if self._is_over or self._pipe.is_over:
            self._end()
        else:
            self.write()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self._pipe.wake_at(self._now())
        if at is not None:
            self._timer = self._loop.call_at(at / 1000, self.write)

    # The end

    def _end(self) -> None:
        """Stop all requests; say so when none is left."""
        if not self._is_over:
            self._is_over = True
            for timer in (self._timer, self._abort):
                if timer is not None:
                    timer.cancel()
            for task in self._tasks:
                task.cancel()
            self._pool.close()
        if not self._tasks:
            self._loop.call_soon(self._finish)

    def _finish(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
            close = self._pipe.close or _ABNORMAL
            fault = self._pipe.fault
            self._listener.on_lost(self._link, close.code, close.reason, fault, None)
