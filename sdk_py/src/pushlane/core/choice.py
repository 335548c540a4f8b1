"""Which transport a client has: WebSocket or, where that can't be had, a pipe over HTTP (polling).

"auto" tries a WebSocket first. A refusal in place of the upgrade means that something between us
and the server doesn't let it through: then it is polling. So it is after a few attempts in a row
that failed in the server or a proxy, were cut, or stood still before the welcome; and after a few
connections in a row that were cut while they were young, each replaced at once. Bad credentials
and a server that is busy or not there say nothing about WebSockets.

While it polls, a WebSocket is probed from time to time, up to its welcome. When that works, the
client changes back.

A change is a reconnect the other way: the session is resumed there, with all that it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from .link import backoff_ms
from .settings import Settings

Transport: TypeAlias = Literal["ws", "poll"]
Wish: TypeAlias = Literal["auto", "ws", "poll"]

NO_ANSWER = 0
"""In place of a status: the connection ended, or what came made no sense."""
_NOT_ABOUT_US = frozenset({401, 403, 429, 503})
_SERVER_FAULT = 500


class Choice:
    """What a client was told to use, and what it uses."""

    def __init__(self, wish: Wish, settings: Settings, random: Callable[[], float]) -> None:
        self.transport: Transport = "poll" if wish == "poll" else "ws"
        self.is_made = wish != "auto"
        """Whether a failed handshake can't change it, for as long as the connection lives."""
        self.probe_at: float | None = None
        """When to probe a WebSocket."""
        self._is_auto = wish == "auto"
        self._settings = settings
        self._random = random
        self._tries_left = settings.upgrade_tries
        self._has_worked = False
        self._cuts = 0
        self._probes = 0

    @property
    def is_polling(self) -> bool:
        return self.transport == "poll"

    def doubts(self, status: int) -> bool:
        """Whether a handshake that failed with this status says something about WebSockets."""
        return not self.is_made and status not in _NOT_ABOUT_US

    def refused(self, status: int) -> bool:
        """A handshake failed with this status; whether it is polling from now on."""
        if not self.doubts(status):
            return False
        self._tries_left -= 1
        is_sure = not self._has_worked and NO_ANSWER < status < _SERVER_FAULT
        if not is_sure and self._tries_left > 0:
            return False
        self._poll()
        return True

    def _poll(self) -> None:
        self.is_made = True
        self.transport = "poll"

    def repent(self) -> bool:
        """Polling is refused for good: where WebSockets worked it is one again, for life."""
        if not self.is_polling or not self._has_worked:
            return False
        self._is_auto = False
        self.transport = "ws"
        return True

    def welcomed(self, now: float) -> None:
        """It works, for now."""
        self.is_made = True
        if not self._is_auto:
            return
        self._tries_left = self._settings.upgrade_tries
        self._has_worked = self._has_worked or not self.is_polling
        if self.is_polling:
            self.probe_later(now)

    def lost(self, age_ms: float | None) -> None:
        """There is no connection: one that was cut when it was this old, or (None) none was had."""
        is_young = age_ms is not None and age_ms < self._settings.cut_ms
        self._cuts = self._cuts + 1 if is_young and not self.is_polling else 0
        if age_ms is not None and not is_young:
            self._probes = 0
        self.is_made = not self._is_auto or self.is_polling
        self.probe_at = None
        if self._is_auto and self._cuts >= self._settings.upgrade_tries:
            self._cuts = 0
            self._poll()

    def probe_later(self, now: float) -> None:
        """Try a WebSocket after a while, and ever less often."""
        base, most = self._settings.probe_base_ms, self._settings.probe_max_ms
        self.probe_at = now + backoff_ms(base, most, self._probes, self._random())
        self._probes += 1

    def change(self) -> None:
        """A probe was good: it is a WebSocket, unless that fails after all."""
        assert self.is_polling
        self.transport = "ws"
        self.lost(None)
        self._tries_left = 1
