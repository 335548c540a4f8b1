"""Sinks and answers: how a shard speaks to those who called it.

All of these are plain calls from the shard's own task. They must not block or raise: hand over
and return. They may call the shard again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pushlane.wire.errors import PushlaneError
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.core.effects import PublishTicket, Run, SettleTicket


class Sink(Protocol):
    """Where the messages of one subscription go."""

    def deliver(self, runs: list[Run], again: bool) -> None:
        """Push these. `again`: a resumed client did not list them, under the same receipts."""
        ...

    def lost(self, receipts: list[ReceiptRun]) -> None:
        """These receipts are void."""
        ...

    def hungry(self, hungry: bool) -> None:
        """Something waits here for a permit: answer with `credit`. Or nothing does any more.

        Said to subscriptions that share their credit with other shards; that nothing waits is said
        to every request.
        """
        ...

    def ended(self, code: str, message: str) -> None:
        """The subscription is over: the queue was deleted, or its shard has no owner here."""
        ...


PublishAnswer = Callable[[PublishTicket, PushlaneError | None], None]
"""Called once: the publish is decided, or (with an error) its outcome is unknown."""

SettleAnswer = Callable[[SettleTicket, PushlaneError | None], None]
"""Called once: what the ticket says is durable, or (with an error) the outcome is unknown."""
