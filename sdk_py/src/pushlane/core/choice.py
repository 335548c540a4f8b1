"""Which transport a client has: WebSocket or, where that can't be had, polling over HTTP.

"auto" tries a WebSocket first. A refusal in place of the upgrade means that something between us
and the server doesn't let it through: then it is polling. So it is after a few attempts in a row
that failed in the server or a proxy, were cut, or stood still before the welcome; and after a few
connections in a row that were cut while they were young, each replaced at once. Bad credentials
and a server that is busy or not there say nothing about WebSockets.

While it polls, a WebSocket is probed from time to time, up to its welcome. When that works, the
client changes back.

A change is planned (`next`) where the old transport still works: what was sent is answered first,
and what somebody works on is settled first, since neither publishes nor leases can move: the server
tells repeats by a session's numbers here and by dedup ids there, and a lease belongs to its
session. That gets a bounded time; if it does not suffice, all stays as it is until later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from .backoff import backoff_ms
from .settings import Settings

Transport: TypeAlias = Literal["ws", "poll"]
Wish: TypeAlias = Literal["auto", "ws", "poll"]

NO_ANSWER = 0
"""In place of a status: the connection ended, or what came made no sense."""
_NOT_ABOUT_US = frozenset({401, 403, 429, 503})
_SERVER_FAULT = 500
_GRACE = 0.05
"""The part of its time that a change from polling takes at least: messages may be on their way to a
receive, and when we cut it just then they come back only when their leases are over."""


class Choice:
    """What a client was told to use, and what it uses."""

    def __init__(self, wish: Wish, settings: Settings, random: Callable[[], float]) -> None:
        self.transport: Transport = "poll" if wish == "poll" else "ws"
        self.is_made = wish != "auto"
        """Whether a failed handshake can't change it, for as long as the connection lives."""
        self.probe_at: float | None = None
        """When to probe a WebSocket."""
        self.next: Transport | None = None
        """What it is about to change to."""
        self.next_by: float | None = None
        """Until when that may take."""
        self.next_at: float | None = None
        """No earlier than then; None when that has come."""
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

    def refused(self, status: int) -> bool:
        """A handshake failed with this status; whether it is polling from now on."""
        if self.is_made or status in _NOT_ABOUT_US:
            return False
        self._tries_left -= 1
        is_sure = not self._has_worked and NO_ANSWER < status < _SERVER_FAULT
        if not is_sure and self._tries_left > 0:
            return False
        self.is_made = True
        self.transport = "poll"
        return True

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
            self._probe_later(now)
        elif self._cuts >= self._settings.upgrade_tries:
            self._plan("poll", now)

    def lost(self, age_ms: float | None) -> None:
        """There is no connection: one that was cut when it was this old, or (None) none was had."""
        is_young = age_ms is not None and age_ms < self._settings.cut_ms
        self._cuts = self._cuts + 1 if is_young and not self.is_polling else 0
        if age_ms is not None and not is_young:
            self._probes = 0
        self.is_made = not self._is_auto or self.is_polling
        self.next = self.next_at = self.next_by = self.probe_at = None

    def probed(self, now: float, *, is_good: bool) -> None:
        """What became of a probe."""
        if is_good:
            self._plan("ws", now)
        else:
            self._probe_later(now)

    def _plan(self, transport: Transport, now: float) -> None:
        self.next = transport
        self.next_by = now + self._settings.change_ms
        self.next_at = now + self._settings.change_ms * _GRACE if self.is_polling else None

    def stay(self, now: float) -> None:
        """It took too long: try again later."""
        self.next = self.next_at = self.next_by = None
        if self.is_polling:
            self._probe_later(now)

    def _probe_later(self, now: float) -> None:
        base, most = self._settings.probe_base_ms, self._settings.probe_max_ms
        self.probe_at = now + backoff_ms(base, most, self._probes, self._random())
        self._probes += 1

    def change(self) -> None:
        """Do it."""
        assert self.next is not None
        self.transport = self.next
        self.lost(None)
