"""Requests that wait for their queue: it is not open yet, or has no room.

Those for one queue keep their order; what the caller asks of other queues, and its settles, go on
meanwhile. What waits has an id and its bytes count, so `unanswered` and `inflight_bytes` bound it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import trio

Work = Callable[[], Awaitable[None]]
StartSoon = Callable[..., None]


class Parking:
    def __init__(self, start_soon: StartSoon, failed: Callable[[Exception], None]) -> None:
        """`failed` is told of bugs: the tasks' nursery is everybody's."""
        self._start_soon = start_soon
        self._failed = failed
        self.lines: dict[str, deque[Work]] = {}
        """By queue; asked with every publish whether something waits for its queue."""
        self._empty = trio.Event()

    def add(self, queue: str, work: Work) -> None:
        """Do it when what waits for the same queue is done."""
        line = self.lines.get(queue)
        if line is None:
            line = self.lines[queue] = deque()
            self._start_soon(self._run, queue, line)
        line.append(work)

    async def _run(self, queue: str, line: deque[Work]) -> None:
        try:
            while line:
                await line[0]()
                line.popleft()
        except Exception as error:
            self._failed(error)
        finally:
            del self.lines[queue]
            if not self.lines:
                self._empty.set()

    async def done(self) -> None:
        """Until nothing waits."""
        while self.lines:
            self._empty = trio.Event()
            await self._empty.wait()
