"""Who was refused: each is counted, and so many a minute are logged.

Who guesses keys, and who lost one, shows in the log: from where, and why it was refused. Never the
credential itself: it may be a good one of another server. To come without any credential is no
login, and only counted as the error that it gets.

A page that may not connect shows in the log, too, with what to do about it: a browser tells the
page itself next to nothing. What comes in the headers is a stranger's text: it is cut and escaped.

What strangers cause may not fill the disk. So lines are rationed, and beyond the rate the next line
says how many were left out.
"""

from __future__ import annotations

import logging

import trio

from pushlane.wire.errors import PushlaneError, Unauthorized
from pushlane_gateway.metrics import Metrics

MINUTE_S = 60


class Rationed:
    """So many lines a minute; beyond it the next line says how many were left out."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._since = 0.0
        self._lines = 0
        self._left_out = 0

    def take(self, now: float) -> str | None:
        """What to put behind the next line; None: there may be none."""
        if not self._lines or now >= self._since + MINUTE_S:
            self._since, self._lines = now, 0
        if self._lines >= self._most:
            self._left_out += 1
            return None
        self._lines += 1
        more = f" ({self._left_out} more were not logged)" if self._left_out else ""
        self._left_out = 0
        return more


log = logging.getLogger(__name__)


class NoToken(Unauthorized):
    """Nothing was sent that could be checked."""


class FailedLogins:
    def __init__(self, metrics: Metrics | None = None, most: int = 10) -> None:
        """`most` lines a minute."""
        self._metrics = Metrics() if metrics is None else metrics
        self._rationed = Rationed(most)

    def note(self, peer: str, error: PushlaneError) -> None:
        """Somebody was refused. Other errors than failed logins don't count."""
        if not isinstance(error, Unauthorized) or isinstance(error, NoToken):
            return
        self._metrics.failed_logins += 1
        more = self._rationed.take(trio.current_time())
        if more is None:
            self._metrics.limits.add("failed_logins")
            return
        log.warning("login of %s failed: %s%s", peer or "somebody", error.message, more)


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
