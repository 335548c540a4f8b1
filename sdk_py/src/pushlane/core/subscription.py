"""A subscription as the client sees it: wanted, live, on its way out, over.

The server's number for it changes when a session can't be resumed; the subscription goes on. What
was delivered and is not settled is `held`; of that, what nobody has taken yet waits in `ready`.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Any, Literal, TypeAlias

from .lease import Lease
from .settle import Entry, Key

AckMode: TypeAlias = Literal["explicit", "none"]


class Standing(Enum):
    WANTED = 1
    """To be asked for, as soon as there is a connection."""
    ASKED = 2
    LIVE = 3
    LEAVING = 4
    """Closed on our side; the server is told, or will be."""
    OVER = 5


class Subscription:
    """One subscription; `owner` is the shell's."""

    __slots__ = (
        "ack", "credit", "dropped", "end_ticket", "failing_since", "failures", "held",
        "is_leaving_said", "lease_ms",
        "number", "owner", "queue", "ready", "retry_at", "settles", "standing", "starts",
        "ticket",
    )  # fmt: skip

    def __init__(
        self, queue: str, credit: int, ack: AckMode, lease_ms: int | None, ticket: Any
    ) -> None:
        self.queue = queue
        self.credit = credit
        self.ack = ack
        self.lease_ms = lease_ms
        self.ticket = ticket
        """Who waits for it to begin; None afterwards."""
        self.end_ticket: Any = None
        self.standing = Standing.WANTED
        self.number: int | None = None
        self.held: dict[str, Lease] = {}
        """By receipt."""
        self.ready: deque[Lease] = deque()
        self.starts: list[Lease] = []
        """Taken, and the server is not told yet."""
        self.settles: dict[Key, list[Entry]] = {}
        """What to tell the server, by kind."""
        self.is_leaving_said = False
        self.retry_at = 0.0
        self.failures = 0
        self.failing_since: float | None = None
        self.dropped = 0
        """Messages missed by a slow `ack="none"` subscription."""
        self.owner: Any = None
