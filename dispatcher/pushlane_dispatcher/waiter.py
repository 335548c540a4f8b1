"""A waiter: an answer that a task waits for."""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Waiter(Generic[T]):
    """Hand it in as the answer of a call, then `await waiter.wait()`.

    Whoever is cancelled while it waits only stops waiting; the answer comes to nobody.
    """

    __slots__ = ("_answer", "_error", "_task")

    def __init__(self) -> None:
        self._answer: T | None = None
        self._error: Exception | None = None
        self._task: trio.lowlevel.Task | None = None

    def __call__(self, answer: T, error: Exception | None = None) -> None:
        assert self._answer is None, "answered twice"
        self._answer = answer
        self._error = error
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    async def wait(self) -> T:
        if self._answer is None:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abandon)
        if self._error is not None:
            raise self._error
        assert self._answer is not None
        return self._answer

    def _abandon(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED
