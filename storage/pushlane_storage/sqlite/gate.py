"""The gate: readers go in and out; once in a while the writer shuts it for a moment.

The write-ahead log can only start anew when no reader still reads from it. Readers come and go
all the time, so without a gate that moment might never come, and the log would grow.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


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
