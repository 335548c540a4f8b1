"""Refused origins: a page that may not connect shows in the log, with what to do about it.

A browser tells the page itself next to nothing. What comes in the headers is a stranger's text: it
is cut, escaped, and logged so many times a minute.
"""

from __future__ import annotations

import logging

import trio

from pushlane_gateway.auth.rationed import Rationed
from pushlane_gateway.metrics import Metrics

log = logging.getLogger(__name__)

SHOWN = 200
"""Characters of a header."""


class RefusedOrigins:
    def __init__(self, metrics: Metrics | None = None, most: int = 10) -> None:
        """`most` lines a minute."""
        self._metrics = Metrics() if metrics is None else metrics
        self._rationed = Rationed(most)

    def note(self, origin: str | None, host: str | None) -> None:
        self._metrics.refused_origins += 1
        more = self._rationed.take(trio.current_time())
        if more is None:
            self._metrics.limits.add("refused_origins")
        elif origin is None:
            log.warning(
                "refused: Host %a is not a name of this machine; without keys only those are"
                " served, and auth.allowed_hosts%s", (host or "")[:SHOWN], more,
            )  # fmt: skip
        else:
            log.warning(
                "refused: a page of Origin %a (Host %a); if it is yours, add it to"
                " auth.allowed_origins%s", origin[:SHOWN], (host or "")[:SHOWN], more,
            )  # fmt: skip
