"""Why a shard stopped."""

from enum import Enum


class Stop(Enum):
    CLOSED = "the shard was closed"
    MOVED = "the queue moves to another server"
    DELETED = "the queue was deleted"
    FENCED = "somebody else owns the slot"
    STALE = "the lease cache knows a newer owner"
    UNDECIDED = "the store did not say in time what became of a write"
    DAMAGED = "what the store keeps of this shard is damaged"
    CANCELLED = "the dispatcher was stopped"

    @property
    def code(self) -> str:
        """The wire's code for those who are told."""
        return "not_found" if self is Stop.DELETED else "unavailable"

    @property
    def gives_up(self) -> bool:
        """Whether what it was about to store is left undecided."""
        return self in (Stop.FENCED, Stop.STALE, Stop.UNDECIDED, Stop.DAMAGED)
