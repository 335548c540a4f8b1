"""A call: what a trio task asks of a thread, and how the answer gets back.

The task puts the call into a thread's queue and sleeps, or leaves an `outcome` to be called. The
thread runs `work` and leaves `value` or `error`; when many calls are done, one hop into the trio
loop (`answer`) wakes all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import trio

from pushlane_storage.interface import Outcome

S = TypeVar("S")
T = TypeVar("T")


class Call(Generic[S, T]):
    __slots__ = ("error", "grows", "outcome", "task", "value", "work")

    def __init__(
        self, work: Callable[[S], T], grows: bool = False, outcome: Outcome | None = None
    ) -> None:
        self.work = work
        self.outcome = outcome
        self.grows = grows
        """It stores messages: the first to be refused when room runs out."""
        self.value: T | None = None
        self.error: Exception | None = None
        self.task: trio.lowlevel.Task | None = None

    async def wait(self, withdraw: Callable[[Call[S, T]], bool]) -> T:
        """Sleep until it is answered.

        When the task is cancelled and `withdraw` says that the call was not begun, it certainly
        did nothing and never will. Else its answer is waited for.
        """

        def abort(_: object) -> trio.lowlevel.Abort:
            if withdraw(self):
                self.task = None
                return trio.lowlevel.Abort.SUCCEEDED
            return trio.lowlevel.Abort.FAILED

        self.task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


def answer(token: trio.lowlevel.TrioToken, calls: Sequence[Call[Any, Any]]) -> None:
    """Wake the tasks of these calls, from a thread."""
    with suppress(trio.RunFinishedError):  # then nobody is left who could wait
        token.run_sync_soon(_wake, calls)


def _wake(calls: Sequence[Call[Any, Any]]) -> None:
    for call in calls:
        if call.task is not None:
            trio.lowlevel.reschedule(call.task)
        elif call.outcome is not None:
            call.outcome(call.error)
