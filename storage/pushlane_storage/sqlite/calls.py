"""Calls: what a trio task asks of a thread, and how the answer gets back.

The task puts the call into a thread's queue (`Waiting`) and sleeps, or leaves an `outcome` to be
called. The thread runs `work` and leaves `value` or `error`; when many calls are done, one hop into
the trio loop (`answer`) wakes all of them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from pushlane_storage.interface import Outcome, StoreError, StoreRefused

if TYPE_CHECKING:
    from pushlane_storage.sqlite.reader import Reading
    from pushlane_storage.sqlite.tables import Tables

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


class Waiting(Generic[S]):
    """A bounded queue. The trio task puts and withdraws, threads take."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._change = threading.Condition()
        self._calls: deque[Call[S, Any]] = deque()
        self._sleeping = 0
        self._closed = False
        self._broken: Callable[[], Exception] | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def put(self, call: Call[S, Any]) -> None:
        with self._change:
            if self._broken is not None:
                raise self._broken()
            assert not self._closed, "the store is closed"
            if len(self._calls) >= self._bound:
                raise StoreRefused(f"{self._bound} calls wait for the disk")
            self._calls.append(call)
            if self._sleeping:
                self._change.notify()

    def withdraw(self, call: Call[S, Any]) -> bool:
        """Take a call out again. False: it was begun."""
        with self._change:
            try:
                self._calls.remove(call)
            except ValueError:
                return False
            return True

    def take(self, most: int, seconds: float | None = None) -> list[Call[S, Any]] | None:
        """The next calls; none when `seconds` have passed; None when it is closed and empty."""
        with self._change:
            while not self._calls:
                if self._closed:
                    return None
                self._sleeping += 1
                awake = self._change.wait(seconds)
                self._sleeping -= 1
                if not awake and not self._calls:
                    return []
            count = min(most, len(self._calls))
            return [self._calls.popleft() for _ in range(count)]

    def give_back(self, calls: Sequence[Call[S, Any]]) -> None:
        """These were taken and not begun."""
        with self._change:
            self._calls.extendleft(reversed(calls))

    def close(self) -> None:
        """Nothing more comes. What waits is still taken."""
        with self._change:
            self._closed = True
            self._change.notify_all()

    def shatter(self, error: Callable[[], Exception]) -> list[Call[S, Any]]:
        """Nothing more is taken: answer what waits, and whatever comes, with an error."""
        with self._change:
            self._broken = error
            self._closed = True
            left = list(self._calls)
            self._calls.clear()
            self._change.notify_all()
        for call in left:
            call.error = error()
        return left


class Calls:
    """What the store asks of its threads: writes, and reads beside them."""

    def __init__(self, writes: Waiting[Tables], reads: Waiting[Reading]) -> None:
        self._writes = writes
        self._reads = reads

    async def write(self, work: Callable[[Tables], T], *, grows: bool = False) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        call = Call(work, grows)
        self._writes.put(call)
        return await call.wait(self._writes.withdraw)

    def write_soon(
        self, work: Callable[[Tables], None], outcome: Outcome, *, grows: bool = False
    ) -> None:
        call = Call(work, grows, outcome)
        try:
            self._writes.put(call)
        except StoreError as error:  # not from inside the caller's call
            call.error = error
            answer(trio.lowlevel.current_trio_token(), [call])

    async def read(self, work: Callable[[Reading], T]) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        call = Call(work)
        self._reads.put(call)
        return await call.wait(self._abandon)

    def _abandon(self, call: Call[Reading, T]) -> bool:
        """Nobody waits for this read any more. It changes nothing, begun or not."""
        self._reads.withdraw(call)
        return True
