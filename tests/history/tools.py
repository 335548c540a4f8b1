"""Short words for hand-written histories."""

from collections.abc import Sequence
from typing import Any

from pushlane_history.checker import check
from pushlane_history.event import (
    Begin,
    Event,
    Grant,
    Kind,
    Open,
    Publish,
    Published,
    Result,
    Settle,
    Stored,
    Verdict,
    Void,
)

History = list[Event]
CLIENT = Begin(0, "client")
E1, E2 = 1 << 20, 2 << 20
"""The fences of epochs 1 and 2 start behind these."""


def server(*events: Event | Sequence[Event]) -> History:
    """A history that begins with an owner; lists in it are flattened."""
    return flat(Open(0, "n1", 1), *events)


def client(*events: Event | Sequence[Event]) -> History:
    return flat(CLIENT, *events)


def flat(*events: Event | Sequence[Event]) -> History:
    found: History = []
    for event in events:
        found += [event] if isinstance(event, Event) else event
    return found


def broken(history: History) -> set[str]:
    return set(check(history).broken)


def published(n: int, *, at: int = 0, id: str = "", **fields: Any) -> History:
    """Message n, published and acknowledged: op n, uid un, id mn, seq n."""
    return [
        Publish(at, n, fields.pop("queue", "q"), fields.pop("uid", f"u{n}"), **fields),
        Published(at, n, id or f"m{n}", seq=n),
    ]


def grant(n: int, receipt: str, fence: int = E1 + 1, attempt: int = 1, **fields: Any) -> Grant:
    queue = fields.pop("queue", "q")
    id, uid = fields.pop("id", f"m{n}"), fields.pop("uid", f"u{n}")
    sub, session = fields.pop("sub", ""), fields.pop("session", "S")
    return Grant(0, queue, id, uid, sub, session, receipt, fence, attempt, **fields)


def settle(op: int, receipt: str, kind: Kind = "ack", result: Result = "ok") -> History:
    return [Settle(0, op, kind, receipt, "S"), Verdict(0, op, result)]


def void(n: int, fence: int = E1 + 1, attempts: int = 1, deliveries: int = 0) -> Void:
    return Void(0, "q", f"m{n}", fence, attempts, deliveries)


def nack(n: int, op: int, receipt: str, fence: int = E1 + 1, attempts: int = 1) -> History:
    asked, answered = settle(op, receipt, "nack")
    return [asked, void(n, fence, attempts), answered]


def stored(*numbers: int, queue: str = "q") -> Stored:
    return Stored(0, queue, [f"m{n}" for n in numbers], [f"u{n}" for n in numbers])
