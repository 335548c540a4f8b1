"""Calls that wait for a thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from pushlane_storage.interface import StoreRefused
from pushlane_storage.sqlite.call import Call

S = TypeVar("S")


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
