"""Telling the server what became of messages: start, ack, nack, extend.

Acks and nacks are repeated until they are answered or the session is gone; then nobody can say
whether they counted, and whoever waits gets ConnectionLost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pushlane.wire import frames
from pushlane.wire.errors import Conflict, ConnectionLost, LeaseLost, PushlaneError
from pushlane.wire.limits import DEFAULTS as DEFAULT_LIMITS
from pushlane.wire.limits import Limits

from .clocks import Clocks
from .effects import AnyEffect, Lost, Reject, Resolve
from .lease import Lease, Phase
from .requests import Requests, SettleRequest
from .settle import Key, Settle, expand, runs
from .subscription import Subscription

T = TypeVar("T")

_RECEIPT_BYTES = 160
"""More than a receipt takes in a frame."""
_LOST = "the lease is lost: the message will be delivered again"


class Settler:
    """What the server is to be told of leases, and its answers."""

    def __init__(self, effects: list[AnyEffect], clocks: Clocks) -> None:
        self._effects = effects
        self._clocks = clocks
        self.limits: Limits = DEFAULT_LIMITS
        self.dirty: dict[Subscription, None] = {}
        """Those with something to tell the server."""
        self.pending = 0
        """Acks and nacks without an answer yet."""

    def settle(self, lease: Lease, key: Key, ticket: Any) -> None:
        """Ack, nack or extend a message that was taken."""
        if lease.lost:
            self.reject(ticket, LeaseLost(_LOST))
        elif lease.phase is Phase.STARTED:
            self.add(lease, key, ticket)
        else:
            what = "was settled before" if lease.prefix else "has no lease"
            self.reject(ticket, Conflict(f"the message {what}"))

    def add(self, lease: Lease, key: Key, ticket: Any) -> None:
        """Ack, nack or extend a message in whatever phase."""
        if key.op != "extend":
            lease.phase = Phase.SETTLING
            self._clocks.stop(lease)
            self.pending += 1
        subscription = lease.subscription
        entries = subscription.settles.get(key)
        if entries is None:
            entries = subscription.settles[key] = []
        entries.append((lease, ticket))
        self.dirty[subscription] = None

    # Frames to send

    def starts(self, subscription: Subscription, number: int) -> Iterator[frames.Start]:
        """What was taken since the last flush."""
        taken = [lease for lease in subscription.starts if lease.phase is not Phase.OVER]
        subscription.starts.clear()
        for part in _parts(taken, self._most):
            yield frames.Start(number, runs(part))

    def settles(
        self, subscription: Subscription, number: int, requests: Requests, now: float
    ) -> Iterator[frames.ClientFrame]:
        """What was settled since the last flush, as far as the server's window allows."""
        for key, entries in list(subscription.settles.items()):
            del subscription.settles[key]
            for part in _parts(entries, self._most):
                if len(requests) >= self.limits.unanswered:
                    subscription.settles.setdefault(key, []).extend(part)
                    self.dirty[subscription] = None
                    continue
                settle = Settle(subscription, number, key, part)
                yield settle.frame(requests.add(SettleRequest(settle, now)))

    @property
    def _most(self) -> int:
        return max(1, min(self.limits.settle, self.limits.frame_bytes // _RECEIPT_BYTES))

    # Answers

    def done(self, request: SettleRequest, frame: frames.Done) -> None:
        """What the answer doesn't list succeeded."""
        settle = request.settle
        lost = set(expand(frame.lease_lost)) if frame.lease_lost else ()
        finish = self._extended if settle.key.op == "extend" else self._settled
        effects = self._effects
        for lease, ticket in settle.entries:
            if lost and lease.message.receipt in lost:
                self.pending -= settle.key.op != "extend"
                self.lose(lease)
                self.reject(ticket, lost_error(lease))
                continue
            finish(lease, request)
            if ticket is not None:
                effects.append(Resolve(ticket))

    def _settled(self, lease: Lease, request: SettleRequest) -> None:
        self.pending -= 1
        lease.phase = Phase.OVER
        lease.subscription.held.pop(lease.message.receipt or "", None)

    def _extended(self, lease: Lease, request: SettleRequest) -> None:
        if lease.phase is Phase.STARTED:
            self._clocks.wind(lease, request.sent_at, request.settle.key.lease_ms)

    def refused(self, settle: Settle, error: PushlaneError, now: float) -> None:
        """It stays refused: the lease is ours as before."""
        for lease, ticket in settle.entries:
            if settle.key.op == "extend":
                lease.extend_at = now + (settle.key.lease_ms or 0) / 8
                self._clocks.look_by(lease.extend_at)
            else:
                self.pending -= 1
                self._take_back(lease)
            self.reject(ticket, error)

    def _take_back(self, lease: Lease) -> None:
        if lease.phase is not Phase.SETTLING:
            return  # the answer to another settle said meanwhile that it is lost
        if lease.deadline:
            lease.phase = Phase.STARTED
            self._clocks.resume(lease)
        else:  # nobody had taken it, so nobody wants it: the server's clock ends it
            self.lose(lease)

    def again(self, settle: Settle) -> None:
        """Send it again, before what came later. Its outcome is unknown until then."""
        subscription, key, entries = settle.subscription, settle.key, settle.entries
        if key.op == "extend":  # nobody waits for the client's own: they come again when due
            entries = [entry for entry in entries if entry[1] is not None]
        else:
            for lease, _ in entries:
                lease.is_unknown = True
        if entries:
            subscription.settles.setdefault(key, [])[:0] = entries
            self.dirty[subscription] = None

    # Losing

    def lose_receipts(self, subscription: Subscription, receipts: list[str]) -> None:
        """The server says that these are no longer ours."""
        for receipt in expand(receipts):
            lease = subscription.held.get(receipt)
            # Of what we are settling the answer decides: it may have been done.
            if lease is not None and lease.phase is not Phase.SETTLING:
                self.lose(lease)

    def lose(self, lease: Lease) -> None:
        """A lease is over without our settling it."""
        was_started = lease.phase is Phase.STARTED
        lease.phase = Phase.OVER
        lease.lost = True
        self._clocks.stop(lease)
        lease.subscription.held.pop(lease.message.receipt or "", None)
        if was_started:
            self._effects.append(Lost(lease))

    def lose_all(self, subscription: Subscription, error: Callable[[Lease], PushlaneError]) -> None:
        """The session is gone, and with it all that the subscription held."""
        for key, entries in subscription.settles.items():
            for lease, ticket in entries:
                self.pending -= key.op != "extend"
                self.reject(ticket, error(lease))
        subscription.settles.clear()
        subscription.starts.clear()
        for lease in list(subscription.held.values()):
            self.lose(lease)

    def reject(self, ticket: Any, error: PushlaneError) -> None:
        """Tell whoever waits."""
        if ticket is not None:
            self._effects.append(Reject(ticket, error))


def lost_error(lease: Lease) -> PushlaneError:
    """Why a settle failed whose lease is lost, or its session gone.

    An earlier try may have counted without our hearing of it: a server that took over since knows
    nothing of it.
    """
    if lease.is_unknown:
        return ConnectionLost("the connection was lost before the answer came")
    return LeaseLost(_LOST)


def _parts(items: list[T], most: int) -> Iterator[list[T]]:
    if len(items) <= most:
        if items:
            yield items
        return
    for start in range(0, len(items), most):
        yield items[start : start + most]
