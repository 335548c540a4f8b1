"""Sinks and answers: how a shard speaks to those who called it.

All of these are plain calls from the shard's own task. They must not block or raise: hand over
and return. They may call the shard again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pushlane.wire.errors import PushlaneError
from pushlane_dispatcher.core.effects import PublishTicket, Receipts, Run, SettleTicket


class Sink(Protocol):
    """Where the messages of one subscription go."""

    def deliver(self, runs: list[Run], again: bool) -> None:
        """Push these. `again`: a resumed client did not list them, under the same receipts."""
        ...

    def lost(self, receipts: list[Receipts]) -> None:
        """These receipts are void."""
        ...

    def starved(self, starving: bool) -> None:
        """Something waits here for a permit, or no longer; answer with `credit`.

        Said only to subscriptions that share their credit with other shards.
        """
        ...

    def ended(self, code: str, message: str) -> None:
        """The subscription is over: the queue was deleted, or its shard has no owner here."""
        ...


PublishAnswer = Callable[[PublishTicket, PushlaneError | None], None]
"""Called once: the publish is decided, or (with an error) its outcome is unknown."""

SettleAnswer = Callable[[SettleTicket, PushlaneError | None], None]
"""Called once: what the ticket says is durable, or (with an error) the outcome is unknown."""
