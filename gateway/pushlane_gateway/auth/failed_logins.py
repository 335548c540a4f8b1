"""Failed logins: each is counted, and so many a minute are logged.

Who guesses keys, and who lost one, shows in the log: from where, and why it was refused. Never the
credential itself: it may be a good one of another server. Beyond the rate the log would be a way to
fill the disk, so there the next line says how many were left out.

To come without any credential is no login, and only counted as the error that it gets.
"""

from __future__ import annotations

import logging

import trio

from pushlane.wire.errors import PushlaneError, Unauthorized
from pushlane_gateway.auth.rationed import Rationed
from pushlane_gateway.metrics import Metrics

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
