"""Requests that wait for their answer, by id.

An id is an integer from 1 to 2^53-1, unique among the unanswered: they are counted up over all
connections of a client, so an answer can't be taken for that of another request.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from pushlane.wire.limits import MAX_INT

from .outbox import Outbox
from .publication import Publication
from .settle import Settle
from .subscription import Subscription


class PublishRequest(Struct, frozen=True):
    outbox: Outbox
    publications: list[Publication]
    cost: int


class SettleRequest(Struct, frozen=True):
    settle: Settle
    sent_at: float


class SubscribeRequest(Struct, frozen=True):
    subscription: Subscription


class UnsubscribeRequest(Struct, frozen=True):
    subscription: Subscription | None
    """None: one that the server has and we don't know."""


Request: TypeAlias = PublishRequest | SettleRequest | SubscribeRequest | UnsubscribeRequest


class Requests:
    """The unanswered requests of one connection."""

    def __init__(self, last_id: int = 0) -> None:
        self._last = last_id
        self.open: dict[int, Request] = {}

    def __len__(self) -> int:
        return len(self.open)

    def add(self, request: Request) -> int:
        """The id under which it goes out."""
        self._last = self._last % MAX_INT + 1
        while self._last in self.open:
            self._last = self._last % MAX_INT + 1
        self.open[self._last] = request
        return self._last

    def pop(self, id: int) -> Request | None:
        """What this answers; None for an answer nobody waits for."""
        return self.open.pop(id, None)

    def clear(self) -> list[Request]:
        """The connection is gone: what it leaves unanswered, oldest first."""
        left = list(self.open.values())
        self.open.clear()
        return left
