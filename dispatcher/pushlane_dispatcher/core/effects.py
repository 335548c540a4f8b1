"""What a shard asks of the world, and the tickets of those who wait for it.

Effects stand in `Shard.effects` in the order in which they must begin. An effect that has an
answer is handed back with it: `appended`, `settled`, `noted`, `paged`, `fetched`, `scheduled`,
`transferred`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pushlane_storage.bucket import Bucket, BucketKey
from pushlane_storage.message import Message
from pushlane_storage.note import Note
from pushlane_storage.segment import Segment
from pushlane_storage.settlement import Settlement

if TYPE_CHECKING:
    from pushlane_dispatcher.core.entry import Entry
    from pushlane_dispatcher.core.lane import Lane, LiveBucket
    from pushlane_dispatcher.core.subscription import Subscription

from pushlane.wire.errors import PushlaneError

Receipts = tuple[str, int, int]
"""A run of receipts: prefix, first number, last number."""


class PublishTicket:
    """One publish call: what became of each of its messages, by index."""

    __slots__ = ("duplicates", "failed", "lanes", "seqs", "token", "waits")

    def __init__(self, seqs: list[int], lanes: Sequence[int] | None, token: Any) -> None:
        self.seqs = seqs
        """The seq of each message; -1 where it failed."""
        self.lanes = lanes
        """The lane of each message; None says the default lane for all."""
        self.duplicates: dict[int, tuple[int, int] | None] = {}
        """Index → (lane, seq) of the message that was stored first; None: that was long ago."""
        self.failed: dict[int, PushlaneError] = {}
        self.waits = 0
        self.token = token


class SettleTicket:
    """One start, ack, nack or extend: which of its receipts did not succeed. Or one purge."""

    __slots__ = ("duplicate", "lost", "purged", "silent", "token")

    def __init__(self, token: Any = None, silent: bool = False) -> None:
        self.lost: list[Receipts] = []
        self.duplicate: list[Receipts] = []
        self.purged = 0
        """Of a purge: how many messages it ended."""
        self.token = token
        self.silent = silent
        """Nobody waits for its answer: an ack may wait for company."""


class Run:
    """Messages granted alike: receipts prefix.n … stand for seqs seq … in a row."""

    __slots__ = (
        "attempt", "deadline", "deliveries", "fence", "lane", "messages", "n", "seq", "started",
    )  # fmt: skip

    def __init__(
        self,
        lane: int,
        seq: int,
        n: int,
        started: bool,
        attempt: int,
        deliveries: int,
        fence: int,
        deadline: int,
        messages: list[Message],
    ) -> None:
        self.lane = lane
        self.seq = seq
        self.n = n
        self.started = started
        self.attempt = attempt
        """Which attempt this is, or will be once it is started."""
        self.deliveries = deliveries
        self.fence = fence
        self.deadline = deadline
        self.messages = messages
        """Never None in a delivery. What only the lease cache is told may be without bodies."""


class Effect:
    __slots__ = ()


class Append(Effect):
    """Store a segment; answer `appended`, or `append_refused` when it certainly is not stored."""

    __slots__ = (
        "bucket", "done", "lane", "marked", "opens", "plain", "segment", "size", "tickets",
    )  # fmt: skip

    def __init__(
        self,
        lane: Lane,
        bucket: LiveBucket,
        segment: Segment,
        opens: Bucket | None,
        size: int,
        plain: bool,
        marked: bool,
    ) -> None:
        self.lane = lane
        self.bucket = bucket
        self.segment = segment
        self.opens = opens
        self.size = size
        self.plain = plain
        self.marked = marked
        self.tickets: list[PublishTicket] = []
        self.done = False


class Settle(Effect):
    """Write one flush of the settlement log; answer `settled`. Repeat it until it is stored."""

    __slots__ = ("rows",)

    def __init__(self, rows: list[Settlement]) -> None:
        self.rows = rows


class Mark(Effect):
    """Write a bucket's flags. No answer; repeat until it is done, in order with `Drop`."""

    __slots__ = ("bucket",)

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket


class Drop(Effect):
    """Remove a drained bucket whole. No answer."""

    __slots__ = ("key",)

    def __init__(self, key: BucketKey) -> None:
        self.key = key


class WriteNote(Effect):
    """Replace the shard's note; answer `noted`. Repeat until it is done, in order with `Drop`.

    `holding`: publishes and settles wait for it, so it waits for nothing. It may overtake others:
    of two notes the store keeps the newer one, which has what is in the older.
    """

    __slots__ = ("holding", "note")

    def __init__(self, note: Note, holding: bool = False) -> None:
        self.note = note
        self.holding = holding


class DropPurges(Effect):
    """Remove rows of older purges, by (owner, n): a later one covers them. No answer."""

    __slots__ = ("flushes",)

    def __init__(self, flushes: list[tuple[int, int]]) -> None:
        self.flushes = flushes


class Page(Effect):
    """Read a bucket's segments from `start` on; answer `paged`. All up to `last` is stored."""

    __slots__ = ("bucket", "lane", "last", "limit", "start")

    def __init__(self, lane: Lane, bucket: BucketKey, start: int, last: int, limit: int) -> None:
        self.lane = lane
        self.bucket = bucket
        self.start = start
        self.last = last
        self.limit = limit


class Fetch(Effect):
    """Read single messages again; answer `fetched`."""

    __slots__ = ("bucket", "entries")

    def __init__(self, bucket: BucketKey, entries: list[Entry]) -> None:
        self.bucket = bucket
        self.entries = entries


class Schedule(Effect):
    """Read the schedule index, start <= due < end; answer `scheduled`."""

    __slots__ = ("end", "limit", "start")

    def __init__(self, start: int, end: int, limit: int) -> None:
        self.start = start
        self.end = end
        self.limit = limit


class Deliver(Effect):
    """Push to a subscription: first into the lease cache, then out. `again`: a resume."""

    __slots__ = ("again", "runs", "subscription")

    def __init__(self, subscription: Subscription, runs: list[Run], again: bool = False) -> None:
        self.subscription = subscription
        self.runs = runs
        self.again = again


class Lost(Effect):
    """Tell a holder that its receipts are void."""

    __slots__ = ("receipts", "subscription")

    def __init__(self, subscription: Subscription, receipts: list[Receipts]) -> None:
        self.subscription = subscription
        self.receipts = receipts


class Starved(Effect):
    """Tell a subscription over several shards whether something waits for a permit of it here.

    Answer it with `credit`, with or without a permit. Also said when permits came back from
    backoff: they may be wanted elsewhere.
    """

    __slots__ = ("starving", "subscription")

    def __init__(self, subscription: Subscription, starving: bool) -> None:
        self.subscription = subscription
        self.starving = starving


class Remember(Effect):
    """Tell the lease cache of leases that started or were extended."""

    __slots__ = ("runs", "subscription")

    def __init__(self, subscription: Subscription, runs: list[Run]) -> None:
        self.subscription = subscription
        self.runs = runs


class Forget(Effect):
    """Tell the lease cache of receipts that ended."""

    __slots__ = ("receipts",)

    def __init__(self, receipts: list[Receipts]) -> None:
        self.receipts = receipts


class Transfer(Effect):
    """Append messages to another queue, in order; answer `transferred`.

    They are numbered, so repeating it stores nothing twice.
    """

    __slots__ = ("entries", "messages", "to")

    def __init__(self, to: str, entries: list[Entry], messages: list[Message]) -> None:
        self.to = to
        self.entries = entries
        self.messages = messages


class Published(Effect):
    """A publish is decided: every message of it is stored, a duplicate, or failed.

    Duplicates were stored some time ago: they are such only if this is still the owner.
    """

    __slots__ = ("ticket",)

    def __init__(self, ticket: PublishTicket) -> None:
        self.ticket = ticket


class Confirm(Effect):
    """An extension is granted, if this is still the owner: nothing of it is stored."""

    __slots__ = ("ticket",)

    def __init__(self, ticket: SettleTicket) -> None:
        self.ticket = ticket


class Done(Effect):
    """A settle is decided, and durable as far as it succeeded."""

    __slots__ = ("ticket",)

    def __init__(self, ticket: SettleTicket) -> None:
        self.ticket = ticket
