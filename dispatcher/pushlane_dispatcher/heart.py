"""The heart: whether this process can show the others that it lives.

Who shows no heartbeat is fenced after a while, and what it granted is granted again by others. So a
process grants nothing new when its heartbeats have not reached the store for half of that time, or
when it wakes up after as long a pause. It goes on when a heartbeat lands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from pushlane_storage.ownership import Ownership

log = logging.getLogger(__name__)

LOOK_MS = 250


class Heart:
    def __init__(self, ownership: Ownership | None = None, patience_ms: int = 0) -> None:
        """Without an ownership there is nobody to show anything to."""
        self._ownership = ownership
        self._patience_ms = patience_ms
        self.stops = 0
        """How often it was found to stand still."""

    @property
    def stands_still(self) -> bool:
        ownership = self._ownership
        return ownership is not None and ownership.beat_failing_ms >= self._patience_ms

    async def watch(self, beats_again: Callable[[], None]) -> None:
        """A task: says so in the log, and has shards grant what has waited since."""
        stood_still = False
        while True:
            if self.stands_still is not stood_still:
                stood_still = not stood_still
                if stood_still:
                    self.stops += 1
                    log.warning(
                        "the store has taken no heartbeats of this server for %d ms: nothing is"
                        " delivered until it does", self._patience_ms,
                    )  # fmt: skip
                else:
                    log.warning("the store takes heartbeats again: deliveries go on")
                    beats_again()
            await trio.sleep(LOOK_MS / 1000)
