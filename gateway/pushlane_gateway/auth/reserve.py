"""A file descriptor in reserve.

Connections can use up all that the process may have. The file of keys has to be read even then:
otherwise a revoked key would work on for as long as somebody keeps the table full. So one is kept,
given up for the read, and taken again. Both happen in trio's thread, where connections are
accepted, too: nobody comes between.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")


class Reserve:
    def __init__(self) -> None:
        self._descriptor: int | None = None
        self.take()

    def take(self) -> None:
        """Have one from now on, if there is one to be had and none is held."""
        if self._descriptor is None:
            with suppress(OSError):
                self._descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def give_up(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def use(self, read: Callable[[], T]) -> T:
        """Read something that needs one descriptor."""
        self.give_up()
        try:
            return read()
        finally:
            self.take()

    def __enter__(self) -> Reserve:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.give_up()
