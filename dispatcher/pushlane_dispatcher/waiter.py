"""A waiter: an answer that a task waits for."""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Waiter(Generic[T]):
    """Hand it in as the answer of a call, then `await waiter.wait()`.

    Whoever is cancelled while it waits only stops waiting; the answer comes to nobody.
    """

    __slots__ = ("_answer", "_error", "_task", "answered")

    def __init__(self) -> None:
        self._answer: T
        self.answered = False
        self._error: Exception | None = None
        self._task: trio.lowlevel.Task | None = None

    def __call__(self, answer: T, error: Exception | None = None) -> None:
        assert not self.answered, "answered twice"
        self.answered = True
        self._answer = answer
        self._error = error
        self._go_on()

    def _go_on(self) -> None:
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    def fail(self, error: Exception) -> None:
        """There will be no answer."""
        assert not self.answered, "answered twice"
        self.answered = True
        self._error = error
        self._go_on()

    async def wait(self) -> T:
        if not self.answered:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abandon)
        if self._error is not None:
            raise self._error
        return self._answer

    def _abandon(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED
