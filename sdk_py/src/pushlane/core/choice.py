"""Which transport a client has: WebSocket or, where that can't be had, polling over HTTP.

"auto" tries a WebSocket first. A refusal in place of the upgrade means that something between us
and the server doesn't let it through: then it is polling. So it is after a few attempts in a row
that failed in the server or a proxy, were cut, or stood still before the welcome. Bad credentials
and a server that is busy or not there say nothing about WebSockets.

The first welcome decides for life. What was sent and not answered is repeated after a reconnect,
and the server tells repeats by a session's numbers here and by dedup ids there: a repeat on the
other transport could be stored twice.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Transport: TypeAlias = Literal["ws", "poll"]
Wish: TypeAlias = Literal["auto", "ws", "poll"]

NO_ANSWER = 0
"""In place of a status: the connection ended, or what came made no sense."""
_NOT_ABOUT_US = frozenset({401, 403, 429, 503})
_SERVER_FAULT = 500


class Choice:
    """What a client was told to use, and what it uses."""

    def __init__(self, wish: Wish, tries: int) -> None:
        self.transport: Transport = "poll" if wish == "poll" else "ws"
        self.is_made = wish != "auto"
        self._tries_left = tries

    @property
    def is_polling(self) -> bool:
        return self.transport == "poll"

    def welcomed(self) -> None:
        """It works: so it stays."""
        self.is_made = True

    def refused(self, status: int) -> bool:
        """A handshake failed with this status; whether it is polling from now on."""
        if self.is_made or status in _NOT_ABOUT_US:
            return False
        self._tries_left -= 1
        is_sure = NO_ANSWER < status < _SERVER_FAULT
        if not is_sure and self._tries_left > 0:
            return False
        self.is_made = True
        self.transport = "poll"
        return True
