"""The port of a shard: all that a queue may know of one of its shards.

The shard may be open here (`ShardRunner`), or its owner far away: callers can't tell. Values cross,
and every answer comes later: by callback where many calls are under way (`sink`), else by `ask`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.browsing.question import Question
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.core.places import Claims
from pushlane_dispatcher.shard.sink import (
    Attach,
    AttachAnswer,
    CreditAnswer,
    PublishAnswer,
    ResumeAnswer,
    SettleAnswer,
    Sink,
)
from pushlane_storage.bucket import ShardKey
from pushlane_storage.message import Message

A = TypeVar("A")


class ShardPort(Protocol):
    @property
    def key(self) -> ShardKey: ...

    @property
    def running(self) -> bool:
        """It takes on work. If not, the dispatcher has to be asked for the queue again."""
        ...

    # Publishing

    @property
    def congested(self) -> bool:
        """Publishers should wait for `room`."""
        ...

    async def room(self, claims: Claims = (), /) -> None:
        """Wait until there is room; `Throttled` when there is none in time. `claims`: who waits."""
        ...

    def publish_soon(
        self, messages: list[Message], answer: PublishAnswer, lanes: Sequence[int] | None = None, /
    ) -> object:
        """Store messages, with their lanes where not all have the default one.

        Answers when all are decided, perhaps at once. `Unavailable` is raised when nothing was
        taken on, as the shard has stopped.
        """
        ...

    # Consuming: who is not known there (any more) is not heard

    def attach(self, sink: Sink, wish: Attach, answer: AttachAnswer, /) -> None:
        """Subscribe, or go on with what only the lease cache remembered."""
        ...

    def resume(
        self, prefix: str, held: Iterable[ReceiptRun], sink: Sink, answer: ResumeAnswer, /
    ) -> None:
        """Its client is back, on another connection: from now on `sink` has it."""
        ...

    def detach(self, prefix: str, sink: Sink, resume_ms: int, /) -> None:
        """Its connection is lost; it may resume for a while."""
        ...

    def cut_off(self, prefix: str, sink: Sink, resume_ms: int, /) -> None:
        """Its session goes on elsewhere, if it does: that is no fault of what it has. `sink` hears
        nothing more."""
        ...

    def unsubscribe(self, prefix: str, sink: Sink, /) -> None:
        """It gets nothing more; what it has leased stays its own."""
        ...

    def end(self, prefix: str, sink: Sink, /) -> None:
        """Its session closed in good order: everything goes back at once."""
        ...

    def credit(
        self, prefix: str, sink: Sink, credit: int, answer: CreditAnswer | None = None, /
    ) -> None:
        """Answers once the shard goes by it, after it has said what is held."""
        ...

    def settle(
        self, prefix: str, generation: int, act: Act, receipts: Sequence[ReceiptRun],
        answer: SettleAnswer, /, *, silently: bool = False,
    ) -> None:  # fmt: skip
        """`generation` is what the last attach or resume was told, or `ANYBODY`.

        Answers when it is durable; `silently`: as soon as it is known what is lost.
        """
        ...

    # Everything else

    async def ask(self, question: Question[A], /) -> A:
        """The answer, or a `PushlaneError`. An order whose answer is `Unavailable` may have been
        carried out."""
        ...
