"""What the HTTP API is sent and answers, as types: decoded, encoded and documented from here.

They are the protocol's own objects wherever it has them. Unlike there, unknown fields of what is
sent are refused: a mistyped one would silently do nothing (`hints` says what was meant). Only pipes
ignore them: what they carry is the protocol.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field
from msgspec.structs import fields

from pushlane.wire.frames import (
    Count,
    DeliverMessage,
    Failed,
    Id,
    Millis,
    Part,
    PublishMessage,
    Token,
)
from pushlane.wire.limits import MAX_INT
from pushlane_dispatcher.port import (
    MOST_BUCKETS,
    BucketName,
    ClusterStatus,
    ConsumerInfo,
    Explanation,
    Message,
    QueueConfig,
    QueueRow,
    Standing,
    Stats,
    UsagePoint,
)
from pushlane_dispatcher.port import Dropped as RetentionAnswer
from pushlane_gateway.session.delivery import message_object

__all__ = ["ClusterStatus", "ConsumerInfo", "Explanation", "RetentionAnswer", "Stats"]

BILLS = 1_000
"""Of one request."""
Page = Annotated[int, Meta(ge=1, le=1_000)]
Cause = Literal[
    "max_attempts", "max_deliveries", "expired", "rejected", "overflow", "no_queue", "late",
    "damaged",
]  # fmt: skip
"""Why messages become dead letters."""
CloseCode = Annotated[int, Meta(ge=1_000, le=4_999)]


class Asked(Part, forbid_unknown_fields=True):
    """Something that is sent."""


class ErrorObject(Part):
    """An error: the code is for programs, the message for people."""

    code: str
    message: str
    retry_ms: Millis | None = None


class ErrorAnswer(Part):
    """The answer to every request that failed."""

    error: ErrorObject
    failed: list[Failed] = field(default_factory=list)


class Nothing(Part):
    """An object without fields."""


class NoBody(Asked):
    """Nothing is to be said: an empty object."""


# Usage


class UsageQuery(Asked):
    """Times are Unix milliseconds or ISO 8601; without them, the last 24 hours."""

    queue: str | None = None
    since: str | None = None
    until: str | None = None
    by: Literal["minute", "hour", "day"] = "hour"


class UsageAnswer(Part, omit_defaults=False):
    """By queue and time; what has no queue is the tenant's own."""

    since: int
    until: int
    by: str
    usage: list[UsagePoint]


class Bill(Asked):
    """What a queue, or with an empty name the tenant itself, owes for a window."""

    queue: str
    minute: Annotated[int, Meta(ge=1, le=MAX_INT)]
    """The window's first: Unix time in minutes."""
    costs: dict[
        Annotated[str, Meta(pattern=r"^billing\.[a-z_.]{1,100}$")],
        Annotated[int, Meta(ge=-MAX_INT, le=MAX_INT)],
    ]
    """In millionths of the currency, such as `billing.day.total`."""


class BillsBody(Asked):
    """Bills of a tenant. Each takes the place of the one before it."""

    tenant: str
    bills: Annotated[list[Bill], Meta(max_length=BILLS)]


# The cluster


class DrainBody(Asked):
    """Which node is to give its slots to the others; with `undo` it takes some again."""

    node: Annotated[str, Meta(min_length=1, max_length=255)]
    """By its name."""
    undo: bool = False


# Messages in


class NewMessage(PublishMessage, forbid_unknown_fields=True):
    """A message to store: exactly one of body and data."""


class PublishBody(Asked):
    """Messages to store."""

    messages: list[NewMessage]


class PublishAnswer(Part):
    """An id for each message, null for those in `failed` and for very old duplicates."""

    ids: list[Token | None]
    duplicates: list[Count] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)


# Messages out


class ReceiveBody(Asked):
    """How many messages, how long to wait for the first, and for how long to lease them."""

    max: Annotated[int, Meta(ge=1, le=MAX_INT)] = 1
    wait_ms: Millis = 20_000
    lease_ms: Millis | None = None


class MessagesAnswer(msgspec.Struct):
    """Messages, perhaps none."""

    messages: list[DeliverMessage]


# Pipes


class PipeBody(Part):
    """Frames to send (`n`), an answer to wait for (`after`), a close; without `pipe`: open one."""

    pipe: Token | None = None
    n: Id | None = None
    frames: list[Raw] | None = None
    after: Count | None = None
    wait_ms: Millis | None = None
    close: CloseCode | None = None


class PipeClose(Part):
    """How the server closed a pipe: the codes of a WebSocket."""

    code: int
    reason: str


class PipeAnswer(Part):
    """The name of the pipe that was opened, or frames with the number of their answer."""

    pipe: Token | None = None
    n: Count | None = None
    frames: list[Raw] | None = None
    close: PipeClose | None = None


# Settling


class AckBody(Asked):
    """Messages are done."""

    receipts: list[str]


class NackBody(Asked):
    """Messages failed (or, with `dead`, never will succeed)."""

    receipts: list[str]
    delay_ms: Millis | None = None
    error: str | None = None
    dead: bool = False


class ExtendBody(Asked):
    """Leases end `lease_ms` from now."""

    receipts: list[str]
    lease_ms: Millis


class SettleAnswer(Part):
    """What did not succeed; all other receipts did."""

    lease_lost: list[str] = field(default_factory=list)
    duplicate: list[str] = field(default_factory=list)


class PeekAnswer(msgspec.Struct, omit_defaults=True):
    """Messages, perhaps none; `next` is the `after` of the next page."""

    messages: list[DeliverMessage]
    next: str | None = None


class StoredMessage(DeliverMessage):
    """A message as it is stored, with where it stands. `attempt` says how often it was started."""

    state: str = ""
    deliver_at: Millis | None = None
    expires_at: Millis | None = None
    event_at: Millis | None = None


# Queues


QueueBody: Any = msgspec.defstruct(
    "QueueBody",
    [
        *((one.name, one.type, one.default) for one in fields(QueueConfig) if one.name != "paused"),
        ("paused", bool | None, None),
        ("name", str | None, None),
        ("version", Annotated[int, Meta(ge=1, le=MAX_INT)] | None, None),
    ],
    namespace={
        "__doc__": "A queue's configuration. What is not given gets its default, but for `paused`: "
        "that stays as it is."
    },
    forbid_unknown_fields=True,
    kw_only=True,
)
QueueObject: Any = msgspec.defstruct(
    "QueueObject",
    [
        ("name", str),
        ("version", int),
        *((one.name, one.type, one.default) for one in fields(QueueConfig)),
        ("deleting", bool, False),
    ],
    namespace={"__doc__": "A queue: its configuration, and the version that changes with it."},
    kw_only=True,
)
NewQueue: Any = msgspec.defstruct(
    "NewQueue",
    [("name", str), *((one.name, one.type | UnsetType, UNSET) for one in fields(QueueConfig))],
    namespace={"__doc__": "A queue to make; what is not given gets its default."},
    forbid_unknown_fields=True,
    kw_only=True,
)
QueueChanges: Any = msgspec.defstruct(
    "QueueChanges",
    [(one.name, one.type | None | UnsetType, UNSET) for one in fields(QueueBody)],
    namespace={"__doc__": "What is to change of a queue's configuration; null is the default."},
    forbid_unknown_fields=True,
    kw_only=True,
)


QueueListed: Any = msgspec.defstruct(
    "QueueListed",
    [("stats", Standing | None | UnsetType, UNSET)],
    bases=(QueueObject,),
    namespace={"__doc__": "A queue of a list, with `stats` where they were asked for."},
    kw_only=True,
)


class QueuePage(msgspec.Struct, omit_defaults=True):
    """Queues in order of name; `next` is the `after` of the next page."""

    queues: list[QueueListed]
    next: str | None = None


class ConsumersAnswer(msgspec.Struct):
    """Who consumes a queue."""

    consumers: list[ConsumerInfo]


class PurgeAnswer(msgspec.Struct):
    """How many messages went."""

    purged: Count


class RedriveBody(Asked):
    """Which dead letters to send back: at most `max`, those with this `cause`, from this `queue`,
    with this `key`, and that died from `from_at` on and before `until_at`. `to` sends them to
    another queue instead, and `rate` limits how many are sent per second. `after` is the `next` of
    the last answer.
    """

    max: Annotated[int, Meta(ge=1, le=MAX_INT)] = 10_000
    to: str | None = None
    dry_run: bool = False
    cause: Cause | None = None
    queue: str | None = None
    key: str | None = None
    from_at: Millis | None = None
    until_at: Millis | None = None
    rate: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    after: str = ""


class RedriveAnswer(msgspec.Struct, omit_defaults=True):
    """How many are on their way (or would be). With `next` there may be more: repeat the request
    with it as `after`. What died after the first request is not redriven.
    """

    redriven: Count
    next: str | None = None


class RetentionBody(Asked):
    """Which buckets to drop of the queue with this id. What is not drained, or whose dedup window
    is not over, is kept. An empty list only opens the queue: what is past its retention ends.
    """

    queue_id: Token
    drop: Annotated[list[BucketName], Meta(max_length=MOST_BUCKETS)] = field(default_factory=list)


# Tokens


class TokenBody(Asked):
    """A token with some of your rights, such as `publish:orders*`; `subject` says who it is for."""

    rules: list[str]
    ttl_ms: Millis | None = None
    subject: Annotated[str, Meta(min_length=1, max_length=120)] | None = None


class TokenAnswer(msgspec.Struct):
    """It is shown this once."""

    token: str
    expires_at: Millis


# The server


class LimitsAnswer(msgspec.Struct):
    """What `welcome` tells a session: the limits, and how long a session waits and is silent."""

    limits: dict[str, int]
    resume_ms: Millis
    heartbeat_ms: Millis


# Queries


class NoQuery(Asked):
    """Nothing may stand behind the path."""


class ListQuery(Asked):
    after: str = ""
    limit: Page = 100
    stats: bool = False


class CreateQuery(Asked):
    ensure: bool = False
    """Leave a queue alone that is there."""


class PeekQuery(Asked):
    limit: Page = 10
    after: str = ""


class DeleteQuery(Asked):
    confirm: str


# Making them


def queue_object(row: QueueRow) -> Any:
    config = msgspec.structs.asdict(row.config)
    return QueueObject(**config, name=row.name, version=row.version, deleting=row.deleting)


def listed_object(row: QueueRow, stats: Standing | UnsetType | None) -> Any:
    return QueueListed(**msgspec.structs.asdict(queue_object(row)), stats=stats)


def config_of(body: Any, old: QueueConfig | None) -> QueueConfig:
    """Only who says so pauses or resumes a queue that is there."""
    values = msgspec.structs.asdict(body)
    if values["paused"] is None:
        values["paused"] = old is not None and old.paused
    return QueueConfig(**{name: values[name] for name in QueueConfig.__struct_fields__})


def given(body: Any) -> dict[str, Any]:
    """What was said of a queue's configuration."""
    said = msgspec.structs.asdict(body).items()
    return {name: value for name, value in said if value is not UNSET}


def stored_message(id: str, message: Message, attempt: int, state: str) -> StoredMessage:
    shown = message_object(id, message, attempt)
    return StoredMessage(
        **msgspec.structs.asdict(shown),
        state=state,
        deliver_at=message.not_before or None,
        expires_at=message.expires_at or None,
        event_at=message.event_at,
    )
