"""The connection as a plan: when to dial, how long to wait, when to take it for dead.

IDLE before the start, WAITING for the time of the next attempt, DIALING until the socket is open,
GREETING until `welcome`, OPEN, and CLOSED for ever. Each attempt has a number of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from pushlane.wire.limits import DEFAULTS as DEFAULT_LIMITS

from .backoff import backoff_ms
from .settings import SILENCE, Settings


class Phase(Enum):
    IDLE = 1
    WAITING = 2
    DIALING = 3
    GREETING = 4
    OPEN = 5
    CLOSED = 6


class Link:
    """Where we stand with the server, and until when."""

    def __init__(self, settings: Settings, random: Callable[[], float]) -> None:
        self._settings = settings
        self._random = random
        self.phase = Phase.IDLE
        self.number = 0
        self.until: float | None = None
        """When the phase must end: the time to dial, or when to give the attempt up."""
        self.attempt = 0
        """Failed attempts in a row."""
        self.give_up_at: float | None = None
        """Only before the first welcome: when `connect` fails."""
        self.heartbeat_ms = DEFAULT_LIMITS.heartbeat_ms
        self.opened_at = 0.0
        self.reconnect_ms: int | None = None
        """What a goaway said, for the next connection only."""

    @property
    def has_socket(self) -> bool:
        return self.phase in (Phase.GREETING, Phase.OPEN)

    @property
    def lateness(self) -> str:
        """What it means that the phase has not ended in time."""
        late = {Phase.DIALING: "no connection in time", Phase.GREETING: "no welcome in time"}
        return late.get(self.phase, "the server went silent")

    @property
    def is_hopeless(self) -> bool:
        """Whether the next attempt would come too late for `connect`."""
        assert self.until is not None
        return self.give_up_at is not None and self.until >= self.give_up_at

    def dial(self, now: float, *, is_upgrade_unsure: bool = False) -> int:
        """Begin an attempt."""
        settings = self._settings
        self.number += 1
        self.phase = Phase.DIALING
        most = min(settings.dial_ms, settings.upgrade_ms) if is_upgrade_unsure else settings.dial_ms
        self.until = now + most
        self.reconnect_ms = None
        return self.number

    def greet(self) -> None:
        """The socket is open and hello is said; the attempt's time goes on."""
        self.phase = Phase.GREETING

    def open(self, now: float, heartbeat_ms: int) -> None:
        """The server said welcome."""
        self.phase = Phase.OPEN
        self.heartbeat_ms = heartbeat_ms
        self.opened_at = now
        self.give_up_at = None
        self.heard(now)

    def heard(self, now: float) -> None:
        """Something came from the server."""
        if self.phase is Phase.OPEN:
            self.until = now + self.heartbeat_ms * SILENCE

    def wait(self, now: float, retry_ms: int | None) -> None:
        """The connection or the attempt is lost: plan the next."""
        settings = self._settings
        is_stable = self.phase is Phase.OPEN and now - self.opened_at >= settings.stable_ms
        self.attempt = 0 if is_stable else self.attempt
        if retry_ms is None:
            retry_ms = self.reconnect_ms
        delay: float
        if retry_ms is not None:
            delay = retry_ms
        else:
            base, most = settings.backoff_base_ms, settings.backoff_max_ms
            delay = backoff_ms(base, most, self.attempt, self._random())
        self.attempt += 1
        self.phase = Phase.WAITING
        self.until = now + delay

    def close(self) -> None:
        """There won't be another."""
        self.phase = Phase.CLOSED
        self.until = None
