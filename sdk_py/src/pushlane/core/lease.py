"""A delivered message and our right to it, from its delivery to its end.

RESERVED: delivered, nobody has taken it. STARTED: somebody works on it and the lease runs.
SETTLING: an ack or nack is on its way; the answer decides. OVER: settled, given back or lost.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from pushlane.wire.frames import DeliverMessage

if TYPE_CHECKING:
    from .subscription import Subscription


class Phase(Enum):
    RESERVED = 1
    STARTED = 2
    SETTLING = 3
    OVER = 4


class Lease:
    """One message in our hands. `owner` is the shell's: its task or message object."""

    __slots__ = (
        "deadline", "extend_at", "is_unknown", "kept_until", "lost", "message", "number", "owner",
        "phase", "prefix", "subscription",
    )  # fmt: skip

    def __init__(self, subscription: Subscription, message: DeliverMessage) -> None:
        self.subscription = subscription
        self.message = message
        self.phase = Phase.RESERVED
        self.lost = False
        self.deadline = 0.0
        """When it ends by our own clock, unless an extension is confirmed before; 0 before it was
        taken."""
        self.extend_at = 0.0
        self.kept_until: float | None = None
        """It is extended on its own until then; None: nobody asked for that."""
        self.is_unknown = False
        """A settle of it was sent, and its answer is lost."""
        self.owner: Any = None
        self.prefix = ""
        self.number = 0
        if message.receipt is not None:
            prefix, _, number = message.receipt.rpartition(".")
            self.prefix = prefix
            self.number = int(number)
