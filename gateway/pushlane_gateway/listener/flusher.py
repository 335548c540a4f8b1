"""Says when outboxes are written: once a tick, all that got something in it.

Whatever a task puts into an outbox while trio runs one round of tasks leaves in one write in the
next round. One task does that for all sockets, so a message costs no task switch of its own.
"""

from __future__ import annotations

from typing import Protocol

import trio


class Flushable(Protocol):
    def flush(self) -> None: ...


class Flusher:
    def __init__(self) -> None:
        self._due: list[Flushable] = []
        self._sleeper: trio.lowlevel.Task | None = None

    def add(self, outbox: Flushable) -> None:
        """Have this one flushed in the next round; the caller adds it once a round only."""
        self._due.append(outbox)
        if self._sleeper is not None:
            trio.lowlevel.reschedule(self._sleeper)
            self._sleeper = None

    async def run(self) -> None:
        while True:
            if not self._due:
                await self._sleep()
            self.flush()

    def flush(self) -> None:
        """Write now what waits for the next round."""
        due, self._due = self._due, []
        for outbox in due:
            outbox.flush()

    async def _sleep(self) -> None:
        def abort(_: object) -> trio.lowlevel.Abort:
            self._sleeper = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._sleeper = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)
