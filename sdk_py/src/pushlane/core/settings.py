"""Every bound of the client, with its default and its reason, in one place.

The server's own limits (`welcome.limits`) come on top: whichever is lower counts. Durations are
milliseconds. A `Settings` that exists is valid: a bad one is the caller's bug, hence a ValueError.

An option that nobody knows is most likely a mistake: it is refused, with the nearest one.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from msgspec import Struct
from msgspec.structs import fields

from pushlane.wire.errors import BadRequest
from pushlane.wire.limits import HOUR, MIB, MINUTE, SECOND


class Settings(Struct, frozen=True, kw_only=True):
    """What a client may do at most, and how long it may take."""

    connect_ms: int = 10 * SECOND
    """How long `connect` goes on trying before it fails: long enough for a server that starts."""
    dial_ms: int = 10 * SECOND
    """One attempt, from the first packet to `welcome`; a silent proxy must not hold us longer."""
    backoff_base_ms: int = 100
    """Before the n-th attempt (from 0) it waits a random part of base · 2^n, at most the max."""
    backoff_max_ms: int = 10 * SECOND
    upgrade_ms: int = 3 * SECOND
    """One attempt at a WebSocket where polling is the alternative: proxies may swallow it."""
    upgrade_tries: int = 3
    """Attempts in a row that were cut or stood still before it is polling."""
    cut_ms: int = MINUTE
    """A WebSocket that is cut before it is this old may be cut by a proxy: after `upgrade_tries` in
    a row it is polling."""
    probe_base_ms: int = 10 * SECOND
    """Between probes of a WebSocket while polling; backoff as above."""
    probe_max_ms: int = 5 * MINUTE
    stable_ms: int = 5 * SECOND
    """When a connection that lived this long is lost, the backoff starts over."""

    publish_ms: int = 2 * MINUTE
    """How long a publish may wait for its answer, reconnects included. Then it fails."""
    retry_ms: int = 30 * SECOND
    """How long something that was throttled or unavailable is repeated before its error counts."""
    retry_base_ms: int = 100
    """Between repeats where the server gives no retry_ms; backoff as above."""
    retry_max_ms: int = 5 * SECOND

    producer_window: int = 1000
    """From the oldest unanswered message of a queue to the newest sent. A server remembers the
    last 1,024 sequence numbers of a producer: a repeat of an older one can't be recognized."""
    waiting_messages: int = 10_000
    """Messages published and not yet sent; past it `publish` waits before it takes one in."""
    waiting_bytes: int = 64 * MIB
    producer_queues: int = 10_000
    """Queues whose sequence is remembered; past it idle ones start over, at a higher number."""
    settle_reserve: int = 64
    """Of the server's `unanswered`, kept free from publishes so that acks always get through."""

    buffered: int = 10_000
    """Messages of an `ack="none"` subscription that wait for their taker; past it the newest are
    dropped and counted. With explicit acks, credit is the bound."""
    extend_for_ms: int = HOUR
    """How long a lease is extended on its own: a handler that hangs must lose its message."""
    close_ms: int = 30 * SECOND
    """How long `close` waits for handlers, answers and acks."""
    away_ms: int = 5 * SECOND
    """How long `close` waits for a server that is not there, when publishes or acks have no answer
    yet: long enough for one that restarts."""
    hangup_ms: int = 2 * SECOND
    """How long the other side may take to answer a close, and the goodbye of subscriptions before
    it, until the socket is cut."""

    receive_bytes: int = 64 * MIB
    """The largest frame we take: the most that a server may be set to."""
    http_ms: int = 30 * SECOND
    """One HTTP request, from connecting to the last byte of its answer."""
    http_bytes: int = 64 * MIB
    """The largest HTTP answer we take."""
    poll_wait_ms: int = 20 * SECOND
    """How long a receive waits for frames: many proxies cut what is silent for 30 s."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} is {getattr(self, field.name)}: at least 1")
        if self.producer_window > 1024:
            raise ValueError(f"producer_window is {self.producer_window}: at most 1024")


DEFAULTS = Settings()

EXTEND_AT = 0.5
"""The part of a lease after which it is extended: half of it is left for a reconnect."""
SILENCE = 2.5
"""Times heartbeat_ms without a byte from the server: the connection is taken for dead."""


def no_option(name: str, known: Iterable[str]) -> BadRequest:
    """The error for an option that there isn't."""
    return BadRequest(f"no option {name!r}{hint(name, known)}")


def hint(name: str, known: Iterable[str]) -> str:
    """What was meant, or else what there is."""
    names = list(known)
    near = [one for one in names if one.startswith(name)] or get_close_matches(name, names, 1, 0.5)
    return f": did you mean {near[0]!r}?" if near else f": there are {', '.join(names)}"
