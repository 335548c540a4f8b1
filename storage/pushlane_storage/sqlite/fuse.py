"""The fuse: blown by the first error after which nothing can be trusted."""

import logging
import os
import threading
from collections.abc import Callable
from typing import NoReturn

from pushlane_storage.sqlite.errors import StoreBroken

log = logging.getLogger(__name__)
FailStop = Callable[[BaseException], None]


def exit_process(error: BaseException) -> NoReturn:
    """End the process at once, without an answer to anybody."""
    log.critical("the store failed, nothing is certain any more: exiting: %r", error)
    logging.shutdown()
    os._exit(os.EX_IOERR)


class Fuse:
    def __init__(self, fail_stop: FailStop) -> None:
        self._fail_stop = fail_stop
        self._lock = threading.Lock()
        self.blown: BaseException | None = None

    def blow(self, error: BaseException) -> None:
        """Called by any thread. Nobody gets an answer before `fail_stop` had its turn."""
        with self._lock:
            if self.blown is None:
                self._fail_stop(error)
                self.blown = error

    def error(self) -> StoreBroken:
        """What callers are told, if there still are any."""
        return StoreBroken(f"the store has stopped: {self.blown!r}")
