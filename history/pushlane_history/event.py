"""The history of a run: what producers, consumers and the server did, in the order of happening.

One format serves the simulator, the power-loss and chaos tests, the clients' tests and the audit:
small structs, a JSON object a line, each with `at` in milliseconds. The order of the events is the
order of the history; `at` is only used for windows and deadlines.

Names in here are labels, unique in one history: a `queue` (made again, it needs another label), a
`sub` (of one session), an `op` (one request for one message or receipt: a batch is many ops, and a
repetition is another op). A `uid` names one logical message as its producer sees it; tests put it
into the body, so that a delivery shows whose body it carries. A message's `id` is the server's.

When to write which event:
- a request (publish, settle) when the client sends it, before the server can know of it; an answer
  (published, publish_failed, verdict) when the client has it;
- what the server decides (grant, start, subscribe, credit, detach, lease_lost) when it decides: a
  grant before the lease cache is told, so that no lease exists which the history doesn't know;
- what the server stores (void, leaving, moved, ended) when it is durable and counts, so before
  anything that relies on it: an answer, the next grant. What a new owner finds stored and the
  history doesn't have yet is written after its `open`. What lies beyond a seal is never written.

A recorder that missed something says so by a `gap`: it may have begun late, or lost some events.

A history that only knows the clients' side says so in `begin`: it has no server's events, and
grants, starts and lease_lost stand where the client saw them.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import BinaryIO, Literal

import msgspec

Sees = Literal["server", "client"]
Kind = Literal["ack", "nack", "reject", "extend"]
Result = Literal["ok", "lease_lost", "duplicate", "unknown"]
Overflow = Literal["reject", "drop_oldest", "dead_letter"]
How = Literal["acked", "dead", "redriven", "moved", "expired", "dropped", "purged"]

FORMAT = 1
UNKNOWN_CODES = frozenset({"unavailable", "internal", "connection_lost"})
"""Failures after which a publish may or may not be stored; after all others it is not."""

EPOCH_SHIFT = 20
"""fence >> EPOCH_SHIFT is the epoch of the owner that made the grant."""

_CHUNK = 1_000


def shard_of_id(message_id: str) -> str:
    """What the ids of all messages of its shard begin with."""
    return message_id.rsplit("-", 2)[0]


def _tag(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="event", tag=_tag):
    at: int


class Begin(Event, frozen=True):
    """What this history knows: both sides (the default without this event), or the clients'."""

    sees: Sees = "server"
    format: int = FORMAT
    note: str = ""


class Gap(Event, frozen=True):
    """Something was not recorded. Of what was stored before this only that is known which ended.

    Answers to what was asked before it count for nothing, and a uid stands on one side of it only.
    """

    queue: str = ""
    """Of which queue; empty: of all."""
    lost: int = 0
    """How many events, as far as that is known."""


class QueueSet(Event, frozen=True):
    """A queue's configuration, as far as rules need it; again when it changes.

    The defaults are those of a queue that nobody configured. A line leaves them out, so they are a
    part of the format.
    """

    queue: str
    max_attempts: int = 5
    max_deliveries: int = 20
    dedup_window_ms: int = 300_000
    overflow: Overflow = "reject"
    dead_letter: str | None = None
    """None is NAME.dead, the empty string is nowhere."""


class Deleted(Event, frozen=True):
    """A queue is gone with all that it stored. Made again, it has another label."""

    queue: str


class Allow(Event, frozen=True):
    """Somebody asked for this: purged, dropped, expired (retention), overflow, late, redriven, …

    `what` is a way to end (`How`) or the cause of a transfer.
    """

    queue: str
    what: str


class Publish(Event, frozen=True):
    """A request to store one message."""

    op: int
    queue: str
    uid: str
    key: str | None = None
    dedup: str | None = None
    producer: str | None = None
    producer_seq: int | None = None
    """Its idempotence number; None when it has none."""
    order: int = 0
    """Its place among what this producer sent over one session. 0 claims no order: so must a
    repetition, it comes after others that were sent later."""
    expires: bool = False
    """It has a time to live."""
    ttl_ms: int = 0
    """How long; 0: none, or not known."""
    delay_ms: int = 0
    """It is not to be delivered earlier than so long after this."""


class Published(Event, frozen=True):
    """The publish was acknowledged."""

    op: int
    id: str
    """Empty for a duplicate of something so old that its id is forgotten."""
    duplicate: bool = False
    seq: int = 0
    """Its place in its shard; 0 is not known (clients don't see it)."""


class PublishFailed(Event, frozen=True):
    """The publish was refused, or its outcome is unknown (`UNKNOWN_CODES`)."""

    op: int
    code: str


class Subscribe(Event, frozen=True):
    sub: str
    session: str
    queue: str
    credit: int
    ack_none: bool = False


class Credit(Event, frozen=True):
    sub: str
    credit: int


class Unsubscribe(Event, frozen=True):
    sub: str


class Detach(Event, frozen=True):
    """Its client's connection broke: what it only reserved counts as delivered if it stays away."""

    sub: str


class Resume(Event, frozen=True):
    sub: str
    prefix: str = ""
    """Only what it holds under receipts that begin so, as far as their owner knows; empty: all."""


class SessionEnd(Event, frozen=True):
    session: str


class Idle(Event, frozen=True):
    """A consumer that could hold more got nothing since then, though nothing failed meanwhile."""

    sub: str
    queue: str
    since: int
    slack_ms: int = 0
    """How much longer than it should a delay may last: clocks were wrong."""


class Grant(Event, frozen=True):
    """A delivery. With `ack_none` it has no receipt, fence and attempt."""

    queue: str
    id: str
    uid: str
    """Empty where nobody looked whose body it is."""
    sub: str = ""
    session: str = ""
    receipt: str = ""
    fence: int = 0
    attempt: int = 1
    reserved: bool = False
    """Not started yet: a `start` follows, or it was given back unstarted."""
    ack_none: bool = False
    again: bool = False
    """Sent again under the same receipt, after a resume."""
    seq: int = 0


class Start(Event, frozen=True):
    """The server took the start of a reserved message: its attempt counts."""

    receipt: str


class Settle(Event, frozen=True):
    """A request to settle or extend a lease. `reject` is nack with dead: true.

    One that asks for no answer is followed by the verdict `unknown` at once.
    """

    op: int
    kind: Kind
    receipt: str
    session: str = ""
    """Who asks; empty when the transport has no sessions."""


class Verdict(Event, frozen=True):
    """The answer to a settle; `unknown` when there will be none."""

    op: int
    result: Result


class LeaseLost(Event, frozen=True):
    """The server decided that a lease is over (and told its holder, if there is one)."""

    receipt: str
    unseen: bool = False
    """It never came to its holder: the delivery that began it is no attempt."""


class Void(Event, frozen=True):
    """A grant ended without a settle, durably. -1 says that a count is not known."""

    queue: str
    id: str
    fence: int
    attempts: int = -1
    deliveries: int = -1
    delay_ms: int = 0
    """How long it is held back before it may be granted again."""


class Leaving(Event, frozen=True):
    """A message is on its way to another queue: not granted here again, unless a void follows,
    which says that it came back."""

    queue: str
    id: str
    cause: str
    to: str
    """Empty: no queue takes it. Another `leaving` follows when it is offered to one again."""
    number: int = 0
    """Its place among those of its shard that leave; 0 is not known."""


class Moved(Event, frozen=True):
    """A leaving message was appended to its target."""

    queue: str
    id: str
    to: str
    new_id: str
    uid: str
    """Empty where nobody looked."""
    seq: int = 0


class Ended(Event, frozen=True):
    """A message ended here. `acked` is optional: an answered ack says the same."""

    queue: str
    id: str
    how: How
    cause: str = ""
    """Why it is dead, where dead letters go nowhere (else its `leaving` says it)."""


class Crash(Event, frozen=True):
    """A process is over, by a crash or an orderly stop. What it was about to do, it won't."""

    node: str
    clean: bool = False


class Open(Event, frozen=True):
    """A node owns (a shard, or everything) under this epoch, and serves."""

    node: str
    epoch: int
    shard: str = ""
    """What the ids of its messages begin with (`shard_of_id`); empty: it owns everything."""


class Fault(Event, frozen=True):
    """A fault was injected. The kind `damage` excuses dead letters as damaged."""

    kind: str


class Bound(Event, frozen=True):
    """A sample of something that has a limit."""

    name: str
    value: int
    limit: int


class Quiesce(Event, frozen=True):
    """Faults stopped and consumers are well: these queues must be empty by the deadline."""

    queues: list[str]
    deadline: int


class Drained(Event, frozen=True):
    """The end of the wait that `quiesce` began: how many messages are left."""

    left: int = 0


class Stored(Event, frozen=True):
    """A part of the final dump of a queue: what has not ended. An empty queue is dumped empty."""

    queue: str
    ids: list[str] = []
    uids: list[str] = []


AnyEvent = (
    Begin
    | Gap
    | QueueSet
    | Deleted
    | Allow
    | Publish
    | Published
    | PublishFailed
    | Subscribe
    | Credit
    | Unsubscribe
    | Detach
    | Resume
    | SessionEnd
    | Idle
    | Grant
    | Start
    | Settle
    | Verdict
    | LeaseLost
    | Void
    | Leaving
    | Moved
    | Ended
    | Crash
    | Open
    | Fault
    | Bound
    | Quiesce
    | Drained
    | Stored
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


class DamagedHistory(Exception):
    """A line of a history is not an event."""


def decode(line: bytes | str) -> AnyEvent:
    """The event of a line."""
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError as error:
        raise DamagedHistory(str(error)) from error


def write(file: BinaryIO, events: Iterable[Event]) -> None:
    """Append events to a file, a line each."""
    iterator = iter(events)
    while chunk := list(islice(iterator, _CHUNK)):
        file.write(_encoder.encode_lines(chunk))


def read(file: BinaryIO) -> Iterator[AnyEvent]:
    """The events of a file. A last line without its end was cut off by a crash: left out."""
    for number, line in enumerate(file, 1):
        if not line.endswith(b"\n"):
            return
        try:
            yield decode(line)
        except DamagedHistory as error:
            raise DamagedHistory(f"line {number}: {error}") from error
