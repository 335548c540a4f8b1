"""Readers: threads with connections of their own, so that reads and writes don't wait for each
other. A read sees everything that was committed before it began.

The write-ahead log can only start anew when no reader still reads from it. Readers come and go
all the time, so without a gate that moment might never come, and the log would grow: once in a
while the writer shuts it for a moment.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, TypeVar

import trio

from pushlane_storage.sqlite.calls import Waiting, answer
from pushlane_storage.sqlite.errors import read_error


class Gate:
    def __init__(self) -> None:
        self._change = threading.Condition()
        self._inside = 0
        self._shut = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._change:
            self._change.wait_for(lambda: not self._shut)
            self._inside += 1
        try:
            yield
        finally:
            with self._change:
                self._inside -= 1
                if self._shut:
                    self._change.notify_all()

    @contextmanager
    def shut(self, seconds: float) -> Iterator[None]:
        """Let nobody in, and wait a while for those inside to leave."""
        with self._change:
            self._shut = True
            self._change.wait_for(lambda: not self._inside, seconds)
        try:
            yield
        finally:
            with self._change:
                self._shut = False
                self._change.notify_all()


P = ParamSpec("P")
T = TypeVar("T")


class Reading:
    """What a read works with."""

    def __init__(self, connection: sqlite3.Connection, gate: Gate) -> None:
        self.connection = connection
        self._gate = gate

    def fetch(
        self,
        read: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Rows. What is done with them afterwards doesn't hold up a checkpoint."""
        with self._gate.reading():
            return read(self.connection, *args, **kwargs)


class Readers:
    def __init__(
        self,
        waiting: Waiting[Reading],
        connections: Sequence[sqlite3.Connection],
        gate: Gate,
        token: trio.lowlevel.TrioToken,
    ) -> None:
        self._waiting = waiting
        self._token = token
        self._readings = [Reading(connection, gate) for connection in connections]
        self._threads = [
            threading.Thread(target=self._run, args=[one], name=f"pushlane-reader-{n}", daemon=True)
            for n, one in enumerate(self._readings)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Finish what waits; then the threads end."""
        self._waiting.close()
        for thread, reading in zip(self._threads, self._readings, strict=True):
            thread.join()
            reading.connection.close()

    def _run(self, reading: Reading) -> None:
        while calls := self._waiting.take(1):
            for call in calls:
                try:
                    call.value = call.work(reading)
                except sqlite3.Error as error:
                    call.error = read_error(error)
                except Exception as error:
                    call.error = error
            answer(self._token, calls)
            del call, calls  # the caller is done with the rows long before the next read is
