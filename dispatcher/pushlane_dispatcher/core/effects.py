"""What a shard asks of the world, and the tickets of those who wait for it.

Effects stand in `Shard.effects` in the order in which they must begin. An effect that has an
answer is handed back with it: `appended`, `settled`, `noted`, `paged`, `fetched`, `scheduled`,
`transferred`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

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
from pushlane.wire.receipts import ReceiptRun


class Resumed(NamedTuple):
    """Who resumed may go on."""

    generation: int
    """What its settles carry from now on."""
    lost: list[ReceiptRun]
    """What it lists but no longer holds."""


class PublishTicket(msgspec.Struct, eq=False):
    """One publish call: what became of each of its messages, by index."""

    seqs: list[int]
    """The seq of each message; -1 where it failed."""
    lanes: Sequence[int] | None
    """The lane of each message; None says the default lane for all."""
    token: Any
    duplicates: dict[int, tuple[int, int] | None] = {}
    """Index → (lane, seq) of the message that was stored first; None: that was long ago."""
    failed: dict[int, PushlaneError] = {}
    waits: int = 0


class SettleTicket(msgspec.Struct, eq=False):
    """One start, ack, nack or extend: which of its receipts did not succeed. Or one purge."""

    token: Any = None
    silent: bool = False
    """Nobody waits for its answer: an ack may wait for company."""
    lost: list[ReceiptRun] = []
    duplicate: list[ReceiptRun] = []
    purged: int = 0
    """Of a purge: how many messages it ended."""


class Run(msgspec.Struct, eq=False):
    """Messages granted alike: receipts prefix.n … stand for seqs seq … in a row."""

    lane: int
    seq: int
    n: int
    started: bool
    attempt: int
    """Which attempt this is, or will be once it is started."""
    deliveries: int
    fence: int
    deadline: int
    messages: list[Message]
    """Never None in a delivery. What only the lease cache is told may be without bodies."""


class Effect(msgspec.Struct, eq=False):
    """Something to be done; two are never the same."""


class Append(Effect):
    """Store a segment; answer `appended`, or `append_refused` when it certainly is not stored."""

    lane: Lane
    bucket: LiveBucket
    segment: Segment
    opens: Bucket | None
    size: int
    plain: bool
    marked: bool
    tickets: list[PublishTicket] = []
    done: bool = False


class Settle(Effect):
    """Write one flush of the settlement log; answer `settled`. Repeat it until it is stored."""

    rows: list[Settlement]


class Mark(Effect):
    """Write a bucket's flags. No answer; repeat until it is done, in order with `Drop`."""

    bucket: Bucket


class Drop(Effect):
    """Remove a drained bucket whole. No answer."""

    key: BucketKey


class WriteNote(Effect):
    """Replace the shard's note; answer `noted`. Repeat until it is done, in order with `Drop`.

    `holding`: publishes and settles wait for it, so it waits for nothing. It may overtake others:
    of two notes the store keeps the newer one, which has what is in the older.
    """

    note: Note
    holding: bool = False


class DropPurges(Effect):
    """Remove rows of older purges, by (owner, n): a later one covers them. No answer."""

    flushes: list[tuple[int, int]]


class Page(Effect):
    """Read a bucket's segments from `start` on; answer `paged`. All up to `last` is stored."""

    lane: Lane
    bucket: BucketKey
    start: int
    last: int
    limit: int


class Fetch(Effect):
    """Read single messages again; answer `fetched`."""

    bucket: BucketKey
    entries: list[Entry]


class Schedule(Effect):
    """Read the schedule index, start <= due < end; answer `scheduled`."""

    start: int
    end: int
    limit: int


class Deliver(Effect):
    """Push to a subscription: first into the lease cache, then out. `again`: a resume."""

    subscription: Subscription
    runs: list[Run]
    again: bool = False


class Lost(Effect):
    """Tell a holder that its receipts are void."""

    subscription: Subscription
    receipts: list[ReceiptRun]


class Hungry(Effect):
    """Tell a subscription over several shards whether something waits for a permit of it here.

    If so, answer it with `credit`, with or without a permit. Also said when permits came back from
    backoff: they may be wanted elsewhere. To the subscription of a request it is also said when
    nothing waits here, first and after whatever it got: so it need not wait in vain.
    """

    subscription: Subscription
    hungry: bool


class Remember(Effect):
    """Tell the lease cache of leases that started or were extended."""

    subscription: Subscription
    runs: list[Run]


class Forget(Effect):
    """Tell the lease cache of receipts that ended."""

    receipts: list[ReceiptRun]


class Transfer(Effect):
    """Append messages to another queue, in order; answer `transferred`.

    They are numbered, so repeating it stores nothing twice.
    """

    to: str
    entries: list[Entry]
    messages: list[Message]


class Published(Effect):
    """A publish is decided: every message of it is stored, a duplicate, or failed.

    Duplicates were stored some time ago: they are such only if this is still the owner.
    """

    ticket: PublishTicket


class Confirm(Effect):
    """An extension is granted, if this is still the owner: nothing of it is stored."""

    ticket: SettleTicket


class Done(Effect):
    """A settle is decided, and durable as far as it succeeded."""

    ticket: SettleTicket
