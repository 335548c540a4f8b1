"""Frames: what two nodes say to each other over a link, in MessagePack.

The gateway of one node asks (`Asked`) for shards of the other one, which answers (`Told`). A pair
of links carries both directions. On the lane "data" go publishes one way, and what a shard pushes
the other way: deliveries and, in order with them, what else it tells its sinks. All the rest goes
on the lane "rest", so that settles and answers never wait behind messages.

A *ref* is the asker's number for a shard, a *sub* for a subscription, an *id* for a request; all of
them are good for one pair of links. Times travel as durations, or with what time it is for the one
who says it: nodes have clocks of their own.

This is version 1, kept in tests/dispatcher/cluster/frames.json. A later version only adds: fields
at the end of a frame, frames with new tags that are sent to nodes that know them.
"""

from __future__ import annotations

import msgspec

from pushlane.wire.errors import PushlaneError, error_for
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.core.act import Verb
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.core.effects import PublishTicket
from pushlane_dispatcher.core.places import Claims
from pushlane_storage.message import Message

VERSION = 1
"""Of these frames."""
ANY_ID = 1 << 62
"""More than any number of a request."""


class Frame(msgspec.Struct, array_like=True, gc=False):
    """One frame; its tag says which."""


class Fault(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A `PushlaneError`, on its way."""

    code: str
    message: str
    retry_ms: int | None = None
    limit: str | None = None
    unsent: bool = False
    """Certainly nothing was done."""

    @classmethod
    def of(cls, error: PushlaneError) -> Fault:
        unsent = isinstance(error, Unsent)
        return cls(error.code, error.message, error.retry_ms, error.limit, unsent)

    def error(self) -> PushlaneError:
        if self.unsent:
            return Unsent(self.message, self.retry_ms, limit=self.limit)
        error = error_for(self.code, self.message, self.retry_ms)
        error.limit = self.limit
        return error


# Both ways


class Pair(Frame, tag=1):
    """The first frame on each lane: which two belong together."""

    id: str


class Paired(Frame, tag=2):
    """Its answer, on "rest", when both are there: now requests may come."""


# What the asker says


class Open(Frame, tag=10):
    """Have a shard open: `Opened`, `Moved` or `Refused`."""

    ref: int
    tenant: str
    queue: str
    queue_id: str
    shard: int
    hops: int
    """How many nodes sent the asker on. The second one takes a shard that nobody has."""
    claims: Claims


class Publish(Frame, tag=12):
    """`Published` or `Failed`."""

    ref: int
    id: int
    messages: list[Message]
    lanes: list[int] | None
    wall: int = 0
    """What time it is for the asker, by which the messages are stamped; 0: it does not say."""


class Attach(Frame, tag=13):
    """`Attached` or `Failed`. See `sink.Attach`."""

    ref: int
    sub: int
    id: int
    session: str
    credit: int
    lease_ms: int | None
    explicit: bool
    ack_none: bool
    shared: bool
    client: str
    claims: Claims
    prefix: str
    held: list[ReceiptRun]
    term: int


class Resume(Frame, tag=14):
    """`Resumed` or `Failed`."""

    sub: int
    id: int
    held: list[ReceiptRun]


class Detach(Frame, tag=15):
    sub: int
    resume_ms: int


class Unsubscribe(Frame, tag=16):
    sub: int


class End(Frame, tag=17):
    sub: int


class SetCredit(Frame, tag=18):
    """`Credited` once the shard goes by it."""

    sub: int
    id: int
    credit: int


class Settle(Frame, tag=19):
    """`Settled` or `Failed`."""

    ref: int
    id: int
    prefix: str
    generation: int
    receipts: list[ReceiptRun]
    silently: bool
    verb: Verb
    lease_ms: int = 0
    delay_ms: int | None = None
    error: str | None = None
    dead: bool = False


class Ask(Frame, tag=20):
    """A question about a shard: `Answer` or `Failed`."""

    ref: int
    id: int
    question: msgspec.Raw


class Look(Frame, tag=21):
    """The same about one that the asker has not opened: failed, unsent, when it is not open."""

    id: int
    queue_id: str
    shard: int
    question: msgspec.Raw


class Tell(Frame, tag=22):
    """How are you? `Answer`: a `Report`."""

    id: int


class CutOff(Frame, tag=23):
    """The subscription's session goes on at another gateway, if it does."""

    sub: int
    resume_ms: int


class Yield(Frame, tag=24):
    """To the gateway that had a session: it goes on at the asker's. `Yielded`."""

    id: int
    session: str
    """How others know it."""
    term: int


class HandOver(Frame, tag=25):
    """To the next owner of a shard, before it may have the slot: who holds what of it. `Taken`."""

    id: int
    queue_id: str
    shard: int
    epoch: int
    """Under which the asker had it."""
    piece: bytes
    """Some of the `Holder`s of its snapshot, packed."""
    last: bool
    """The snapshot is whole."""


class Leave(Frame, tag=26):
    """The shard is not wanted (any more): nobody waited for its opening."""

    ref: int


# What the owner says


class Opened(Frame, tag=40):
    ref: int


class Moved(Frame, tag=41):
    """Somebody else has the slot, or is to have it: ask there."""

    ref: int
    process: str
    epoch: int
    """Of the slot's owner; 0: nobody has it."""


class Refused(Frame, tag=42):
    ref: int
    fault: Fault


class Gone(Frame, tag=43):
    """The shard has stopped here."""

    ref: int
    code: str
    message: str
    last: int = ANY_ID
    """The last publish that came in time: later ones were certainly not taken."""


class Published(Frame, tag=44):
    """See `PublishTicket`."""

    id: int
    seqs: list[int]
    """With one number only: the first of a row."""
    duplicates: dict[int, tuple[int, int] | None] = {}
    failed: dict[int, Fault] = {}


class Failed(Frame, tag=45):
    """Instead of any other answer."""

    id: int
    fault: Fault


class Attached(Frame, tag=46):
    id: int
    prefix: str
    generation: int
    lease_ms: int
    lost: list[ReceiptRun]


class Resumed(Frame, tag=47):
    id: int
    generation: int
    lost: list[ReceiptRun]


class Settled(Frame, tag=48):
    id: int
    lost: list[ReceiptRun] = []
    duplicate: list[ReceiptRun] = []


class Answer(Frame, tag=49):
    id: int
    value: msgspec.Raw


class Pushed(msgspec.Struct, array_like=True, gc=False):
    """A `Run`, with how long it is the holder's instead of until when."""

    lane: int
    seq: int
    n: int
    started: bool
    attempt: int
    deliveries: int
    fence: int
    left_ms: int
    messages: list[Message]


class Deliver(Frame, tag=50):
    sub: int
    generation: int
    """Of the holder that it is for."""
    again: bool
    held: int
    waiting: int
    runs: list[Pushed]


class Lost(Frame, tag=51):
    sub: int
    generation: int
    receipts: list[ReceiptRun]
    held: int
    waiting: int


class Hungry(Frame, tag=52):
    sub: int
    hungry: bool
    held: int
    waiting: int


class Holds(Frame, tag=53):
    sub: int
    held: int
    waiting: int


class Credited(Frame, tag=54):
    id: int


class Ended(Frame, tag=55):
    sub: int
    code: str
    message: str
    held: list[ReceiptRun]


class Yielded(Frame, tag=56):
    id: int
    record: bytes | None
    """Of the session, as it was left; None: it was not there."""


class Taken(Frame, tag=57):
    id: int


Asked = (
    Pair | Open | Publish | Attach | Resume | Detach | Unsubscribe | End | SetCredit
    | Settle | Ask | Look | Tell | CutOff | Yield | HandOver | Leave
)  # fmt: skip
Told = (
    Paired | Opened | Moved | Refused | Gone | Published | Failed | Attached | Resumed | Settled
    | Answer | Deliver | Lost | Hungry | Holds | Credited | Ended | Yielded | Taken
)  # fmt: skip

encode = msgspec.msgpack.Encoder().encode
decode_asked = msgspec.msgpack.Decoder(Asked).decode
decode_told = msgspec.msgpack.Decoder(Told).decode


def packed(ticket: PublishTicket) -> list[int]:
    """The seqs of a ticket; when they stand in a row, the first of them."""
    seqs = ticket.seqs
    plain = ticket.lanes is None and not ticket.failed and not ticket.duplicates
    return seqs[:1] if plain and seqs[-1] - seqs[0] == len(seqs) - 1 else seqs


def unpacked(seqs: list[int], count: int) -> list[int]:
    if count > 1 and len(seqs) == 1:
        return list(range(seqs[0], seqs[0] + count))
    return seqs
