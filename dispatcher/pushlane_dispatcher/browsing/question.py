"""Questions: what can be asked of one shard, as values.

Whoever asks may be far from the shard. A question can be packed and sent; its answer is a value of
its `answer_type`, or a `PushlaneError`. A `Look` changes nothing: whoever can read the store may
answer it (`view`). An `Order` only the shard's owner carries out (`pushlane_dispatcher.shard`).
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, Protocol, TypeVar, get_args

import msgspec

from pushlane_dispatcher.browsing.redrive import Redrive
from pushlane_dispatcher.browsing.span import Part, Span
from pushlane_dispatcher.core.explain import Explanation, Stats
from pushlane_dispatcher.core.looking import ConsumerInfo
from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.message import Message

A = TypeVar("A")

EVERYTHING = 1 << 62
"""More bytes than there are."""


class Question(msgspec.Struct, Generic[A], frozen=True, tag=True, array_like=True):
    """Something that is asked of one shard. `A` is the type of the answer."""


class Look(Question[A], frozen=True):
    """Changes nothing."""


class Order(Question[A], frozen=True):
    """Changes something. Answered when that is durable."""


def answer_type(question: type[Question[Any]]) -> Any:
    """What its answers are decoded as."""
    (base,) = vars(question)["__orig_bases__"]
    (found,) = get_args(base)
    return found


# Looks


class GetStats(Look[Stats], frozen=True):
    """How many messages there are, by what they wait for.

    `oldest_at` is when the oldest was published that waits for a consumer. Its owner says that of
    what it has in memory; who has only the store reads it for this.
    """


class Peek(Look[Part], frozen=True):
    """The next messages that wait. With a limit of 0: only where they would be read."""

    limit: int
    most_bytes: int = EVERYTHING
    """About so many bytes are read, at least one message."""
    spans: list[Span] | None = None
    """Where to read; None: everywhere. `BadRequest` when there is no such lane."""


class Found(NamedTuple):
    message: Message
    attempts: int
    """How often a consumer has started it."""


class Find(Look[Found], frozen=True):
    """A message that has not ended; else `NotFound`."""

    lane: int
    seq: int


class Explain(Look[Explanation], frozen=True):
    """Where a message stands and why, or how it ended."""

    lane: int
    seq: int


class ListConsumers(Look[list[ConsumerInfo]], frozen=True):
    """Who consumes."""


# Orders


class Cancel(Order[None], frozen=True):
    """End a delayed message. `NotFound` or `Conflict` when there is none to end."""

    lane: int
    seq: int


class Purge(Order[int], frozen=True):
    """Everything goes that is stored and not in flight. How many messages that were."""


class SpanRedriven(NamedTuple):
    sent: int
    """Messages of the whole redrive that are on their way by now."""
    start: int
    """From which seq to go on; the span's end when it is through."""
    barred: bool = False
    """The next one may not go where it would."""


class RedriveSpan(Order[SpanRedriven], frozen=True):
    """Send what is wanted of a span to other queues, as far as the redrive's limits allow.

    When nothing was sent so far it is `Forbidden` to begin with one that may not go where it would,
    and `Throttled` when nothing may leave.
    """

    wanted: Redrive
    """All limits are of the whole redrive …"""
    span: Span
    sent: int = 0
    """… which has sent so many elsewhere …"""
    elapsed_ms: int = 0
    """… and took so long so far."""


class Kept(NamedTuple):
    """A bucket that was not dropped, and why."""

    key: BucketKey
    reason: str


class DropBuckets(Order[list[Kept]], frozen=True):
    """Drop what was archived, as far as nobody needs it; what was kept."""

    keys: list[BucketKey]


class FlushUsage(Order[None], frozen=True):
    """Write what its counters know; `Unavailable` when that failed."""


AnyQuestion = (
    GetStats
    | Peek
    | Find
    | Explain
    | ListConsumers
    | Cancel
    | Purge
    | RedriveSpan
    | DropBuckets
    | FlushUsage
)
"""To decode any of them."""


class Askable(Protocol):
    """A shard, open or not, of which somebody wants to know something."""

    @property
    def key(self) -> ShardKey: ...

    async def ask(self, question: Look[A], /) -> A:
        """The answer, or a `PushlaneError`."""
        ...
