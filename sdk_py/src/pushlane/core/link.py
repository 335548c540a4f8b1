"""The connection as a plan: when to dial, how long to wait, when to take it for dead, and what its
end means.

IDLE before the start, WAITING for the time of the next attempt, DIALING until the socket is open,
GREETING until `welcome`, OPEN, and CLOSED for ever. Each attempt has a number of its own. Clients
that were cut off together come back apart: by exponential backoff with full jitter.

A server that closes says by its code, or by the error before, whether coming back makes sense
(`CLOSES`, `CODES`); after its goaway it always does.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from pushlane.wire.errors import CLOSES, CODES, ConnectionLost, PushlaneError, error_for
from pushlane.wire.limits import DEFAULTS as DEFAULT_LIMITS

from .settings import SILENCE, Settings

_MOST_DOUBLINGS = 52


def backoff_ms(base_ms: int, max_ms: int, attempt: int, draw: float) -> float:
    """How long to wait before attempt n (from 0); `draw` is a random number in [0, 1)."""
    assert attempt >= 0, attempt
    assert 0 <= draw < 1, draw
    most: float = min(max_ms, base_ms * 2 ** min(attempt, _MOST_DOUBLINGS))
    return draw * most


NORMAL = 1000
"""The session ends with the connection. With any other code it can be resumed."""
GOING_AWAY = 1001
PROTOCOL_ERROR = 1002
ABNORMAL = 1006
"""No close came."""


class Parting(NamedTuple):
    """How we part."""

    error: PushlaneError
    is_final: bool


def parting(
    code: int, reason: str, error: PushlaneError | None, *, is_leaving: bool
) -> Parting:  # fmt: skip
    """Of a close with this code; `error` where more is known, `is_leaving` after a goaway."""
    info = CLOSES.get(code)
    said = CODES.get(reason)
    may_return = info is None or info.reconnect or (said is not None and said.retry)
    is_final = not may_return and code != NORMAL
    if is_final and error is None:
        assert info is not None
        error = error_for(reason or info.reason, f"the server closed with {code}: {reason}")
    if error is None:
        return Parting(ConnectionLost(f"the connection closed with {code}"), False)
    return Parting(error, not is_leaving and (is_final or not error.info.retry))


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
