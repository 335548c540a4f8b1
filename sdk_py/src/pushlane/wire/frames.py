"""The frames of `pushlane.v1` as data: what a client and what a server may say.

Each frame is one object; `op` says which and may stand anywhere in it. Unknown fields are ignored.
`X | None = None` is an optional field: `null` means the same as leaving it out, and it is left out
when it is encoded. Only `body` tells the two apart (UNSET is absent, `Raw(b"null")` is a body).

What every implementation must agree on (integers up to 2^53-1, the values of `ack` and `start`) is
in the types, where msgspec checks it while decoding. What a server can set is in `validate`.

`body` is JSON text in a `msgspec.Raw` in memory, whatever the encoding: a JSON frame holds it as it
is, MessagePack as a bin (codec.py wraps and unwraps it). A decoded Raw may be a view of its whole
frame: `body.copy_body` before keeping it. `data` is bytes: bin, or padded base64 in JSON. Headers
are strings to strings, in no order; their names are case-sensitive.

Fields that a server fills with words (`code`, `reason`, `cause`) are plain strings here, so that a
client can read what a newer server says. Frames are never part of a cycle, hence gc=False.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from .errors import BadFrame, PushlaneError
from .limits import DEFAULTS, LIMITS, MAX_INT

Id: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_INT)]
Sub: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_INT)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INT)]
Millis: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INT)]
Token: TypeAlias = Annotated[str, Meta(min_length=1, max_length=DEFAULTS.id)]
Receipts: TypeAlias = Annotated[list[str], Meta(max_length=LIMITS["settle"].maximum)]
"""Of a request. Here is what any server may allow; MessagePack is refused by the head of a list,
before there is one object for each byte of it."""
Held: TypeAlias = dict[str, Annotated[list[str], Meta(max_length=DEFAULTS.held)]]
"""Receipts by sub; the sub is a string, as map keys are in both encodings."""


class Part(Struct, gc=False, omit_defaults=True):
    """Something inside a frame."""


class Frame(Struct, gc=False, omit_defaults=True, tag_field="op"):
    """Anything that is sent."""


# What a client sends.


class Resume(Part):
    """The session to take up again, and all receipts the client still has of it."""

    session: Token
    held: Held = {}


class Hello(Frame, tag="hello"):
    """The first frame of a session."""

    token: str | None = None
    client: Token | None = None
    producer: Token | None = None
    resume: Resume | None = None


class PublishMessage(Part):
    """A message on its way in: exactly one of body and data."""

    body: Raw | UnsetType = UNSET
    data: bytes | None = None
    key: str | None = None
    dedup: str | None = None
    priority: Annotated[int, Meta(ge=0, le=DEFAULTS.priority_max)] | None = None
    delay_ms: Millis | None = None
    ttl_ms: Annotated[int, Meta(ge=1, le=MAX_INT)] | None = None
    headers: dict[str, str] | None = None
    seq: Annotated[int, Meta(ge=1, le=MAX_INT)] | None = None
    event_at: Millis | None = None


class Publish(Frame, tag="publish"):
    """Store messages; answered by `published`."""

    id: Id
    to: str
    messages: Annotated[list[PublishMessage], Meta(max_length=LIMITS["batch"].maximum)]


class Subscribe(Frame, tag="subscribe"):
    """Ask for messages; answered by `subscribed`, then `deliver` as credit allows."""

    id: Id
    from_: str = field(name="from")
    credit: Count
    ack: Literal["explicit", "none"] = "explicit"
    start: Literal["delivery", "explicit"] = "delivery"
    lease_ms: Millis | None = None


class Start(Frame, tag="start"):
    """Work on reserved messages begins: now the lease runs and the attempt counts."""

    sub: Sub
    receipts: Receipts
    id: Id | None = None


class Ack(Frame, tag="ack"):
    """Messages are done."""

    sub: Sub
    receipts: Receipts
    id: Id | None = None


class Nack(Frame, tag="nack"):
    """Messages failed (or, with `dead`, never will succeed)."""

    sub: Sub
    receipts: Receipts
    delay_ms: Millis | None = None
    error: str | None = None
    dead: bool = False
    id: Id | None = None


class Extend(Frame, tag="extend"):
    """Leases end `lease_ms` from now."""

    sub: Sub
    receipts: Receipts
    lease_ms: Millis
    id: Id | None = None


class Credit(Frame, tag="credit"):
    """How many unsettled messages the subscription may hold from now on; 0 pauses it."""

    sub: Sub
    credit: Count


class Unsubscribe(Frame, tag="unsubscribe"):
    """No more deliveries; what is leased stays leased."""

    id: Id
    sub: Sub


# What a server sends.


class Welcome(Frame, tag="welcome"):
    """The answer to hello."""

    session: Token
    node: str
    server: str
    resumed: bool
    now: Millis
    resume_ms: Millis
    heartbeat_ms: Millis
    limits: dict[str, int]
    lost: Held = {}


class Failed(Part):
    """One message of a batch that was not stored."""

    index: Count
    code: str
    message: str
    retry_ms: Millis | None = None


class Published(Frame, tag="published"):
    """The answer to publish: an id for each message, null for those in `failed`.

    A duplicate of something very old has none either.
    """

    id: Id
    ids: list[Token | None]
    duplicates: list[Count] = []
    failed: list[Failed] = []


class Subscribed(Frame, tag="subscribed"):
    """The answer to subscribe; comes before the first `deliver`."""

    id: Id
    sub: Sub


class Done(Frame, tag="done"):
    """The answer to start, ack, nack, extend and unsubscribe: what is not listed succeeded."""

    id: Id
    lease_lost: list[str] = []
    duplicate: list[str] = []


class DeadInfo(Part):
    """Why a message became a dead letter, and where it came from."""

    cause: str
    queue: str
    id: Token
    attempts: Count
    dead_at: Millis
    error: str | None = None


class DeliverMessage(Part):
    """A message on its way out. Without receipt, fence and lease_ms where ack is "none"."""

    id: Token
    attempt: Count
    published_at: Millis
    body: Raw | UnsetType = UNSET
    data: bytes | None = None
    receipt: Token | None = None
    fence: Count | None = None
    lease_ms: Millis | None = None
    key: str | None = None
    headers: dict[str, str] | None = None
    dead: DeadInfo | None = None


class Deliver(Frame, tag="deliver"):
    """Messages for a subscription; `dropped` counts what a slow ephemeral one missed before."""

    sub: Sub
    messages: list[DeliverMessage]
    dropped: Count = 0


class LeaseLostFrame(Frame, tag="lease_lost"):
    """These receipts are no longer valid: stop work on their messages."""

    sub: Sub
    receipts: list[str]


class Ended(Frame, tag="ended"):
    """The subscription is over: queue deleted, right withdrawn."""

    sub: Sub
    code: str
    message: str


class Beat(Frame, tag="beat"):
    """A sign of life."""

    now: Millis


class Goaway(Frame, tag="goaway"):
    """The server will close soon: `drain`, `slow_consumer`, `token_expired` or `overload`."""

    reason: str
    reconnect_ms: Millis


class ErrorFrame(Frame, tag="error"):
    """The answer to a request that failed, or to a bad frame.

    `request` is the op of what failed: `op` itself is taken, it says "error".
    """

    code: str
    message: str
    retry_ms: Millis | None = None
    id: Id | None = None
    request: str | None = None
    sub: Sub | None = None


ClientFrame: TypeAlias = (
    Hello | Publish | Subscribe | Start | Ack | Nack | Extend | Credit | Unsubscribe
)
ServerFrame: TypeAlias = (
    Welcome | Published | Subscribed | Done | Deliver | LeaseLostFrame | Ended | Beat | Goaway
    | ErrorFrame
)  # fmt: skip
AnyFrame: TypeAlias = ClientFrame | ServerFrame


def error_frame(
    error: PushlaneError,
    *,
    id: int | None = None,
    request: str | None = None,
    sub: int | None = None,
) -> ErrorFrame:
    """The frame that tells a client of an error; a BadFrame knows by itself what it answers."""
    if isinstance(error, BadFrame):
        id, request, sub = error.id, error.op, error.sub
    return ErrorFrame(error.code, error.message, error.retry_ms, id, request, sub)
