"""File descriptors: as many as the configured connections need, or a warning; and one in reserve.

Connections can use up all that the process may have. The file of keys has to be read even then:
otherwise a revoked key would work on for as long as somebody keeps the table full. So one is kept,
given up for the read, and taken again. Both happen in trio's thread, where connections are
accepted, too: nobody comes between.
"""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

log = logging.getLogger(__name__)

OTHERS = 256
"""Descriptors for all that is no connection: the store, the listening sockets, logs, threads."""


def ensure_descriptors(connections: int) -> None:
    """Raise the soft limit as far as it takes and the hard one allows; warn when that is too low.

    A shell's default soft limit is 1,024, for the sake of programs that use `select`; this is none.
    """
    needed = connections + OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if allowed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < connections:
        log.warning(
            "only %d file descriptors are allowed (ulimit -n), too few for gateway.connections = %d"
            " and %d for other files: raise the limit to %d, or lower gateway.connections to %d",
            allowed, connections, OTHERS, needed, max(1, allowed - OTHERS),
        )  # fmt: skip


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
