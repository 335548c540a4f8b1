"""Settles: ack, nack and extend, made from what users say, gathered by kind and sent as runs of
receipts.

A tick's acks of a subscription leave in one frame, and since most messages are settled in the order
of their delivery the frame names most of them as one run, `P.N-M`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pushlane.wire.frames import Ack, Extend, Nack
from pushlane.wire.receipts import compress, parse

from .lease import Lease

if TYPE_CHECKING:
    from .subscription import Subscription
from pushlane.wire.errors import BadRequest
from pushlane.wire.limits import Limits

Entry: TypeAlias = tuple[Lease, Any]
"""A lease, and the ticket of who waits for the answer (None: nobody)."""


class Key(NamedTuple):
    """What settles of one frame have in common."""

    op: str
    delay_ms: int | None = None
    error: str | None = None
    dead: bool = False
    lease_ms: int | None = None


ACK = Key("ack")
GIVE_BACK = Key("nack", delay_ms=0)
"""For what was never started: it goes back at once, and no attempt is counted."""


class Settle(NamedTuple):
    """Settles of one kind on their way."""

    subscription: Subscription
    number: int
    """The server's number of the subscription when these were delivered."""
    key: Key
    entries: list[Entry]

    def frame(self, id: int) -> Ack | Nack | Extend:
        """The frame that says so."""
        key = self.key
        receipts = runs(lease for lease, _ in self.entries)
        if key.op == "ack":
            return Ack(self.number, receipts, id)
        if key.op == "nack":
            return Nack(self.number, receipts, key.delay_ms, key.error, key.dead, id)
        assert key.lease_ms is not None
        return Extend(self.number, receipts, key.lease_ms, id)


def runs(leases: Iterable[Lease]) -> list[str]:
    """The fewest receipts that name these leases."""
    numbers: dict[str, list[int]] = {}
    for lease in leases:
        numbers.setdefault(lease.prefix, []).append(lease.number)
    found: list[str] = []
    for prefix, counts in numbers.items():
        found += compress(prefix, sorted(set(counts)))
    return found


def expand(receipts: Iterable[str]) -> Iterator[str]:
    """Each receipt of these runs."""
    for receipt in receipts:
        prefix, low, high = parse(receipt)
        for number in range(low, high + 1):
            yield f"{prefix}.{number}"


def nack(error: object, delay_ms: int | None, limits: Limits) -> Key:
    """It failed: deliver it again, after the queue's backoff or `delay_ms`."""
    if delay_ms is not None and not 0 <= delay_ms <= limits.delay_ms_max:
        raise BadRequest(f"delay_ms is {delay_ms}: 0 to {limits.delay_ms_max}")
    return Key("nack", delay_ms=delay_ms, error=_summary(error, limits))


def reject(error: object, limits: Limits) -> Key:
    """It will never succeed: to the dead letters."""
    return Key("nack", error=_summary(error, limits), dead=True)


def extend(lease_ms: int, limits: Limits) -> Key:
    """Work takes longer."""
    if not limits.lease_ms_min <= lease_ms <= limits.lease_ms_max:
        least, most = limits.lease_ms_min, limits.lease_ms_max
        raise BadRequest(f"lease_ms is {lease_ms}: {least} to {most}")
    return Key("extend", lease_ms=lease_ms)


def _summary(error: object, limits: Limits) -> str | None:
    """A text of at most error_bytes: the exception's type and message, or what was given."""
    if error is None:
        return None
    text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
    data = text.encode(errors="replace")[: limits.error_bytes]
    return data.decode(errors="ignore")
