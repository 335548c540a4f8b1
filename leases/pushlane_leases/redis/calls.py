"""Calls: commands that a trio task hands to the thread with the connection, and sleeps.

One hop into the trio loop wakes all tasks whose answers came together. A task that is cancelled
leaves at once. If its commands were under way nobody knows what became of them, and nobody needs
to: a repeated or a late write of a lease does no harm.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import trio

from pushlane_leases.interface import LeaseCacheError

Command = tuple[str | bytes | int, ...]


class Call:
    __slots__ = ("commands", "error", "replies", "task")

    def __init__(self, commands: Sequence[Command]) -> None:
        self.commands = commands
        self.replies: list[Any] = []
        """One for each command, once they are there."""
        self.error: LeaseCacheError | None = None
        self.task: trio.lowlevel.Task | None = None

    async def wait(self, withdraw: Callable[[Call], None]) -> list[Any]:
        def abort(_: object) -> trio.lowlevel.Abort:
            self.task = None
            withdraw(self)
            return trio.lowlevel.Abort.SUCCEEDED

        self.task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)
        if self.error is not None:
            raise self.error
        return self.replies


def answer(token: trio.lowlevel.TrioToken, calls: Sequence[Call]) -> None:
    """Wake the tasks of these calls, from a thread."""
    with suppress(trio.RunFinishedError):  # then nobody is left who could wait
        token.run_sync_soon(_wake, calls)


def _wake(calls: Sequence[Call]) -> None:
    for call in calls:
        task, call.task = call.task, None
        if task is not None:
            trio.lowlevel.reschedule(task)


class Waiting:
    """A bounded queue. The trio task puts and withdraws, the thread takes."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._change = threading.Condition()
        self._calls: deque[Call] = deque()
        self._closed = False

    def __len__(self) -> int:
        return len(self._calls)

    def put(self, call: Call) -> None:
        with self._change:
            assert not self._closed, "the lease cache is closed"
            if len(self._calls) >= self._bound:
                raise LeaseCacheError(f"{self._bound} calls wait for Redis")
            self._calls.append(call)
            self._change.notify()

    def withdraw(self, call: Call) -> None:
        """Take a call out again, unless it was begun."""
        with self._change:
            if call in self._calls:
                self._calls.remove(call)

    def take(self, commands: int) -> list[Call]:
        """The next calls, with about so many commands; none when it is closed."""
        with self._change:
            while not self._calls and not self._closed:
                self._change.wait()
            taken: list[Call] = []
            count = 0
            while self._calls and count < commands:
                taken.append(self._calls.popleft())
                count += len(taken[-1].commands)
            return taken

    def close(self) -> list[Call]:
        """Nothing more comes, and nothing more is taken. Answers what waited."""
        with self._change:
            self._closed = True
            left = list(self._calls)
            self._calls.clear()
            self._change.notify()
        return left
