"""Calls that wait for the connection."""

from __future__ import annotations

import threading
from collections import deque

from pushlane_leases.interface import LeaseCacheError
from pushlane_leases.redis.call import Call


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
