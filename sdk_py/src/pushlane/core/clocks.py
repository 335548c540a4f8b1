"""The clocks of started leases: when to extend, and when to give up.

Leases are settled far more often than they run out, so no timer is kept for each: there is one
time at which to look at all that run, and looking finds the next. Extensions that are due soon go
along with those that are due now.
"""

from __future__ import annotations

from collections.abc import Callable

from .lease import Lease
from .settings import EXTEND_AT

_TOGETHER = 0.1
"""The part of a lease by which an extension may come early, to share a frame with others."""
_NEVER = float("inf")


class Clocks:
    """The started leases of a client."""

    def __init__(self, extend_for_ms: int) -> None:
        self._extend_for_ms = extend_for_ms
        self.running: dict[Lease, None] = {}
        self._look_at = _NEVER

    def start(self, lease: Lease, now: float) -> None:
        """Somebody begins to work on it."""
        self.running[lease] = None
        self.wind(lease, now, lease.message.lease_ms)

    def wind(self, lease: Lease, since: float, lease_ms: int | None) -> None:
        """The lease starts over from then: when we sent the word for it, which is no later than
        when the server heard it."""
        if lease_ms is None:
            lease.deadline = lease.extend_at = _NEVER
            return
        lease.deadline = since + lease_ms
        lease.extend_at = since + lease_ms * EXTEND_AT
        self.look_by(lease.extend_at)

    def stop(self, lease: Lease) -> None:
        self.running.pop(lease, None)

    def resume(self, lease: Lease) -> None:
        """Its settle was refused: it runs on as it did."""
        self.running[lease] = None
        self.look_by(lease.deadline)

    def keep(self, lease: Lease, now: float) -> None:
        """Extend it when due, for a bounded time."""
        lease.kept_until = now + self._extend_for_ms
        self.look_by(lease.extend_at)

    def look_by(self, at: float) -> None:
        """Look at all of them no later than then."""
        self._look_at = min(self._look_at, at)

    def forgive(self, now: float) -> None:
        """There is a connection again: what was not extended meanwhile is due now."""
        for lease in self.running:
            part = (lease.message.lease_ms or 0) * (1 - EXTEND_AT)
            lease.extend_at = min(lease.extend_at, lease.deadline - part)
        self.look_by(now)

    def wake_at(self) -> float | None:
        """When to look."""
        return self._look_at if self.running and self._look_at != _NEVER else None

    def look(
        self, now: float, *, can_extend: bool, extend: Callable[[Lease], None],
        lose: Callable[[Lease], None],
    ) -> None:  # fmt: skip
        """Extend what is kept and due, lose what ran out."""
        if now < self._look_at:
            return
        self._look_at = _NEVER
        for lease in list(self.running):
            if now >= lease.deadline:
                lose(lease)
                continue
            is_kept = lease.kept_until is not None and now < lease.kept_until
            early = (lease.message.lease_ms or 0) * _TOGETHER
            if is_kept and can_extend and lease.extend_at <= now + early:
                lease.extend_at = lease.deadline  # until the answer says otherwise
                extend(lease)
            is_ahead = is_kept and lease.extend_at > now
            self.look_by(lease.extend_at if is_ahead else lease.deadline)

    @property
    def is_kept(self) -> bool:
        """Whether somebody works on a message that is kept for them."""
        return any(lease.kept_until is not None for lease in self.running)
