"""Sinks and answers: how a shard speaks to those who called it.

Only values cross here, and every answer is a call: whoever asks may be far from the shard's owner.
All of these are plain calls from the shard's own task. They must not block or raise: hand over
and return. They may call the shard again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from pushlane.wire.errors import PushlaneError
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.core.effects import PublishTicket, Run, SettleTicket
from pushlane_dispatcher.core.places import Claims


class Attach(msgspec.Struct, frozen=True):
    """How somebody wants to consume."""

    session: str
    credit: int
    lease_ms: int | None = None
    """None: as the queue has it."""
    explicit: bool = False
    ack_none: bool = False
    shared: bool = False
    """Its credit is a share of one for several shards (`SharedCredit`)."""
    client: str = ""
    claims: Claims = ()
    """Who asks; of all subscriptions of a shard they get their share."""
    prefix: str = ""
    """Of the receipts that it had of the shard's last owner, which the lease cache may know."""
    held: list[ReceiptRun] = []
    """What it has of them."""
    term: int = 1
    """Of its session: one more with every gateway that takes it over. A gateway that had it before
    gets nothing of it any more: `Conflict`."""


class Attached(msgspec.Struct, frozen=True):
    prefix: str
    """How its receipts begin: a new one, or the one that it had."""
    generation: int
    """What its settles carry."""
    lease_ms: int
    lost: list[ReceiptRun]
    """What it had and has no longer."""


class Sink(Protocol):
    """Where the messages of one subscription go.

    `held` is how many messages it holds now, `waiting` how many permits are in backoff.
    """

    def deliver(self, runs: list[Run], again: bool, held: int, waiting: int) -> None:
        """Push these. `again`: a resumed client did not list them, under the same receipts."""
        ...

    def lost(self, receipts: list[ReceiptRun], held: int, waiting: int) -> None:
        """These receipts are void."""
        ...

    def hungry(self, hungry: bool, held: int, waiting: int) -> None:
        """Something waits here for a permit: answer with `credit`. Or nothing does any more.

        Said to subscriptions that share their credit with other shards; that nothing waits is said
        to every request.
        """
        ...

    def holds(self, held: int, waiting: int) -> None:
        """It settled, resumed, or was given another credit."""
        ...

    def ended(self, code: str, message: str, held: list[ReceiptRun]) -> None:
        """The subscription is over: the queue was deleted, or its shard has no owner here. `held`
        is what it had."""
        ...


AttachAnswer = Callable[[Attached | None, PushlaneError | None], None]
"""Called once, before anything is delivered."""

ResumeAnswer = Callable[[int, list[ReceiptRun], PushlaneError | None], None]
"""Called once: the generation of its settles from now on, and what it listed but no longer holds.
`NotFound`: nobody knows the subscription; `Unavailable`: its shard stops, and says so."""

CreditAnswer = Callable[[], None]
"""Called once, unless the shard stops before."""

PublishAnswer = Callable[[PublishTicket, PushlaneError | None], None]
"""Called once: the publish is decided, or (with an error) its outcome is unknown."""

SettleAnswer = Callable[[SettleTicket, PushlaneError | None], None]
"""Called once: what the ticket says is durable, or (with an error) the outcome is unknown.
`BadRequest`: nothing was done."""
