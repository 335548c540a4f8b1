"""Every limit of the wire, with its default, its unit, the range it may be set to, and the reason.

`LIMITS` is the table, `Limits` a set of values for one server (its defaults are the table's). A
`Limits` that exists is valid: ranges are checked when it is made, directly or with
`msgspec.convert`; a bad one is a configuration error, hence a ValueError.

Where minimum and maximum are the same the protocol fixes the value: it stands here so that it has
a name and a reason, and clients may rely on it.

`welcome.limits` carries all but three of them, as a flat object of integers under these very names
(`Limits.wire`). `hello_ms` would come too late there; `heartbeat_ms` and `resume_ms` are fields of
the welcome itself. Clients ignore names they don't know and take the default of a name that is
missing (`limits_from_wire`): so limits can be added without a new protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct, ValidationError, convert

KIB = 1024
MIB = 1024 * KIB
SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
YEAR = 365 * DAY
MAX_INT = 2**53 - 1
"""The largest integer that every JSON implementation keeps exactly."""


class LimitInfo(NamedTuple):
    """One limit."""

    name: str
    default: int
    unit: str
    minimum: int
    maximum: int
    reason: str


# fmt: off
_ROWS = (
    # One frame, one message.
    LimitInfo("frame_bytes", 4 * MIB, "bytes", 64 * KIB, 64 * MIB,
        "A frame is held in memory whole, twice while it is decoded. Over it: close 1009."),
    LimitInfo("message_bytes", MIB, "bytes", KIB, 32 * MIB,
        "Body or data of one message, as bytes. A queue can only set less. Over it: too_large."),
    LimitInfo("header_bytes", 8 * KIB, "bytes", 0, 64 * KIB,
        "Names and values of one message's headers together: they stay in memory longer than "
        "bodies do."),
    LimitInfo("body_depth", 500, "levels", 500, 500,
        "Arrays and objects inside each other: deeper ones crash many parsers, and so consumers."),
    LimitInfo("key_bytes", 512, "bytes", 16, 4 * KIB,
        "A key is in memory while its message is in flight; 512 holds any path or composite id."),
    LimitInfo("dedup_bytes", 256, "bytes", 16, 4 * KIB,
        "Stored with the message, remembered as a hash; 256 holds two UUIDs, a digest and a name."),
    LimitInfo("delay_ms_max", YEAR, "ms", 0, 10 * YEAR,
        "A year: later is a calendar's business, and most likely an absolute time by mistake."),
    LimitInfo("ttl_ms_max", YEAR, "ms", 1, 10 * YEAR,
        "A year, as for delay_ms; a queue's retention is nearly always shorter."),
    LimitInfo("priority_max", 9, "level", 9, 9,
        "Priorities are 0 to 9, higher first: each is a lane with an order of its own."),
    LimitInfo("priority_default", 4, "level", 4, 4,
        "In the middle, so that there is room above and below."),
    # One request, one session.
    LimitInfo("batch", 1000, "messages", 1, 10_000,
        "Messages of one publish: all are checked before the next frame is looked at."),
    LimitInfo("settle", 10_000, "receipts", 1, 100_000,
        "Receipts that one start, ack, nack or extend covers, and one subscription holds; runs "
        "counted in full."),
    LimitInfo("credit", 10_000, "messages", 1, 100_000,
        "Unsettled messages of one subscription: all come again when their consumer dies."),
    LimitInfo("held", 2_000, "runs", 2_000, 2_000,
        "Receipts and runs of them in one hello. Leave out the others: what you have and don't "
        "name is sent again, under the same receipt."),
    LimitInfo("subs", 100, "subscriptions", 1, 10_000,
        "Open subscriptions of one session."),
    LimitInfo("unanswered", 1024, "requests", 1, 65_536,
        "Requests that wait for their answer; past it the server stops reading."),
    LimitInfo("inflight_bytes", 16 * MIB, "bytes", 64 * KIB, 1024 * MIB,
        "Published bytes that wait for their answer; past it the server stops reading."),
    LimitInfo("lease_ms_min", SECOND, "ms", 1, HOUR,
        "A shorter lease is lost to ordinary network delay."),
    LimitInfo("lease_ms_max", 12 * HOUR, "ms", SECOND, 7 * DAY,
        "How long a dead consumer can hold a message back. Longer work extends its lease."),
    LimitInfo("wait_ms", MINUTE, "ms", 0, 10 * MINUTE,
        "How long an HTTP receive may wait: proxies cut silent requests at about a minute."),
    LimitInfo("error_bytes", KIB, "bytes", 0, 64 * KIB,
        "nack.error is stored with every retry: a summary, not a stack trace."),
    LimitInfo("token_bytes", 8 * KIB, "bytes", 64, 64 * KIB,
        "hello.token: what common proxies allow for a header."),
    # Words.
    LimitInfo("run", 10_000, "receipts", 10_000, 10_000,
        "Receipts that one run P.N-M stands for."),
    LimitInfo("name", 120, "characters", 120, 120,
        "Names of queues, topics and tenants are parts of file names and URLs."),
    LimitInfo("id", 128, "characters", 128, 128,
        "Message ids, receipts, sessions, producers and client names."),
    # Times that the server keeps.
    LimitInfo("hello_ms", 5 * SECOND, "ms", 100, MINUTE,
        "A connection that says nothing costs memory; slow networks need some seconds."),
    LimitInfo("heartbeat_ms", 25 * SECOND, "ms", 100, 10 * MINUTE,
        "Proxies cut silent connections at 30 to 60 s."),
    LimitInfo("resume_ms", 30 * SECOND, "ms", 0, 10 * MINUTE,
        "How long a dropped session waits: what is reserved for it is stuck meanwhile."),
)
# fmt: on

LIMITS: dict[str, LimitInfo] = {row.name: row for row in _ROWS}

_NOT_IN_WELCOME = ("hello_ms", "heartbeat_ms", "resume_ms")


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of one server; `LIMITS` says what each of them means."""

    frame_bytes: int = LIMITS["frame_bytes"].default
    message_bytes: int = LIMITS["message_bytes"].default
    header_bytes: int = LIMITS["header_bytes"].default
    body_depth: int = LIMITS["body_depth"].default
    key_bytes: int = LIMITS["key_bytes"].default
    dedup_bytes: int = LIMITS["dedup_bytes"].default
    delay_ms_max: int = LIMITS["delay_ms_max"].default
    ttl_ms_max: int = LIMITS["ttl_ms_max"].default
    priority_max: int = LIMITS["priority_max"].default
    priority_default: int = LIMITS["priority_default"].default
    batch: int = LIMITS["batch"].default
    settle: int = LIMITS["settle"].default
    credit: int = LIMITS["credit"].default
    held: int = LIMITS["held"].default
    subs: int = LIMITS["subs"].default
    unanswered: int = LIMITS["unanswered"].default
    inflight_bytes: int = LIMITS["inflight_bytes"].default
    lease_ms_min: int = LIMITS["lease_ms_min"].default
    lease_ms_max: int = LIMITS["lease_ms_max"].default
    wait_ms: int = LIMITS["wait_ms"].default
    error_bytes: int = LIMITS["error_bytes"].default
    token_bytes: int = LIMITS["token_bytes"].default
    run: int = LIMITS["run"].default
    name: int = LIMITS["name"].default
    id: int = LIMITS["id"].default
    hello_ms: int = LIMITS["hello_ms"].default
    heartbeat_ms: int = LIMITS["heartbeat_ms"].default
    resume_ms: int = LIMITS["resume_ms"].default

    def __post_init__(self) -> None:
        for info in _ROWS:
            value = getattr(self, info.name)
            if not info.minimum <= value <= info.maximum:
                raise ValueError(f"{info.name} is {value}: {info.minimum} to {info.maximum}")
        if self.lease_ms_min > self.lease_ms_max:
            raise ValueError("lease_ms_min is greater than lease_ms_max")
        if self.message_bytes * 2 > self.frame_bytes:
            # The largest message must fit into a frame, as base64 and with all that is around it.
            raise ValueError("message_bytes is more than half of frame_bytes")

    def wire(self) -> dict[str, int]:
        """The limits as `welcome.limits` shows them."""
        return {name: getattr(self, name) for name in LIMITS if name not in _NOT_IN_WELCOME}


DEFAULTS = Limits()
DEFAULT_LANE = DEFAULTS.priority_default


def limits_from_wire(wire: Mapping[str, int]) -> Limits:
    """What a client goes by: the server's limits, and the default of each that it didn't name.

    A set that contradicts itself is taken for the defaults.
    """
    try:
        return convert({name: wire[name] for name in LIMITS if name in wire}, Limits)
    except ValidationError:
        return DEFAULTS
