"""A message's life: every state, every event, every transition, in this one table.

A pair that is not in the table can't happen: meeting it is our bug and ends in a KeyError. The
diagram in docs/architecture.md is made from here (tools/generated.py).

States in which something is being written (SETTLING, VOIDING, LEAVING, MOVED, ENDING) exist
because nothing counts before it is durable: an acked message is not forgotten, and a returned
one not granted again, until the settlement log says so.
"""

from collections.abc import Iterable, Sequence
from enum import Enum, IntEnum
from typing import Protocol


class State(IntEnum):
    """Where a message stands. The last five are ends."""

    READY = 0
    RESERVED = 1
    LEASED = 2
    SETTLING = 3
    VOIDING = 4
    DELAYED = 5
    RETRYING = 6
    BLOCKED = 7
    LEAVING = 8
    MOVED = 9
    ENDING = 10
    ACKED = 11
    DEAD = 12
    EXPIRED = 13
    DROPPED = 14
    PURGED = 15


class Event(Enum):
    """What moves a message from one state to the next."""

    RESERVE = "pushed, not started"
    LEASE = "pushed and started"
    START = "start"
    TAKE = "taken by ack: none"
    ACK = "ack"
    RETURN = "nack, lease expired, connection lost"
    REQUEUE = "void durable"
    POSTPONE = "void durable, backoff"
    BLOCK = "void durable, its key is taken"
    DUE = "not_before reached"
    UNBLOCK = "its key is free"
    LEAVE = "to another queue"
    MOVE = "stored there"
    REFUSE = "refused there"
    END = "expired, dropped or purged"
    SETTLED = "settlement durable"
    SETTLED_EXPIRED = "settlement durable: expired"
    SETTLED_DROPPED = "settlement durable: dropped"
    SETTLED_PURGED = "settlement durable: purged"


TABLE: dict[tuple[State, Event], State] = {
    (State.READY, Event.RESERVE): State.RESERVED,
    (State.READY, Event.LEASE): State.LEASED,
    (State.READY, Event.TAKE): State.SETTLING,
    (State.RESERVED, Event.START): State.LEASED,
    (State.RESERVED, Event.ACK): State.SETTLING,
    (State.LEASED, Event.ACK): State.SETTLING,
    (State.SETTLING, Event.SETTLED): State.ACKED,
    (State.RESERVED, Event.RETURN): State.VOIDING,
    (State.LEASED, Event.RETURN): State.VOIDING,
    (State.VOIDING, Event.REQUEUE): State.READY,
    (State.VOIDING, Event.POSTPONE): State.RETRYING,
    (State.VOIDING, Event.BLOCK): State.BLOCKED,
    (State.RETRYING, Event.DUE): State.READY,
    (State.DELAYED, Event.DUE): State.READY,
    (State.BLOCKED, Event.UNBLOCK): State.READY,
    (State.READY, Event.LEAVE): State.LEAVING,
    (State.RESERVED, Event.LEAVE): State.LEAVING,
    (State.LEASED, Event.LEAVE): State.LEAVING,
    (State.BLOCKED, Event.LEAVE): State.LEAVING,
    (State.DELAYED, Event.LEAVE): State.LEAVING,
    (State.RETRYING, Event.LEAVE): State.LEAVING,
    (State.LEAVING, Event.MOVE): State.MOVED,
    (State.LEAVING, Event.REFUSE): State.VOIDING,
    (State.MOVED, Event.SETTLED): State.DEAD,
    (State.RESERVED, Event.END): State.ENDING,
    (State.LEASED, Event.END): State.ENDING,
    (State.READY, Event.END): State.ENDING,
    (State.DELAYED, Event.END): State.ENDING,
    (State.RETRYING, Event.END): State.ENDING,
    (State.BLOCKED, Event.END): State.ENDING,
    (State.LEAVING, Event.END): State.ENDING,
    (State.ENDING, Event.SETTLED): State.DEAD,
    (State.ENDING, Event.SETTLED_EXPIRED): State.EXPIRED,
    (State.ENDING, Event.SETTLED_DROPPED): State.DROPPED,
    (State.ENDING, Event.SETTLED_PURGED): State.PURGED,
}

ENDS = {
    "expired": Event.SETTLED_EXPIRED,
    "dropped": Event.SETTLED_DROPPED,
    "purged": Event.SETTLED_PURGED,
}
"""How an ENDING message's cause names its end; every other cause is a death."""

IN_FLIGHT = frozenset((State.RESERVED, State.LEASED))
WAITING = frozenset((State.DELAYED, State.RETRYING, State.BLOCKED))
PURGEABLE = frozenset((State.READY, *WAITING))
HELD = (State.RESERVED, State.LEASED, State.VOIDING, *WAITING)
"""Neither ready nor on its way out."""


class Living(Protocol):
    """What the table needs of an entry."""

    state: State
    since: int


_SETTLING, _MOVED, _ENDING = int(State.SETTLING), int(State.MOVED), int(State.ENDING)
"""Asked for with every publish, and names of an enumeration are looked up slowly."""


class Life:
    """Moves messages by the table and counts them by state."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = [0] * len(State)

    def born(self, state: State, count: int = 1) -> None:
        """Messages came into memory in this state."""
        self.counts[state] += count

    def move(self, entries: Sequence[Living], event: Event, now: int) -> None:
        """Move messages that all stand in the same state."""
        source = entries[0].state
        target = TABLE[source, event]
        for entry in entries:
            assert entry.state is source
            entry.state = target
            entry.since = now
        self.counts[source] -= len(entries)
        self.counts[target] += len(entries)

    def move_mixed(self, entries: Iterable[Living], event: Event, now: int) -> None:
        """Move messages that may stand in different states."""
        counts = self.counts
        for entry in entries:
            source = entry.state
            target = TABLE[source, event]
            entry.state = target
            entry.since = now
            counts[source] -= 1
            counts[target] += 1

    def going(self) -> int:
        """Messages that are as good as gone: they don't count against the queue's limits."""
        counts = self.counts
        return counts[_SETTLING] + counts[_MOVED] + counts[_ENDING]

    def leaving(self) -> int:
        """Messages that are as good as gone, or on their way to another queue."""
        return self.going() + self.counts[State.LEAVING]

    def departing(self) -> int:
        """Messages that are on their way to another queue."""
        return self.counts[State.LEAVING] + self.counts[_MOVED]


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    births = ("READY", "DELAYED", "BLOCKED")
    lines = ["stateDiagram-v2", *(f"    [*] --> {name}: stored" for name in births)]
    lines += [
        f"    {source.name} --> {target.name}: {event.value.replace(':', ' -')}"
        for (source, event), target in TABLE.items()
    ]
    ends = sorted({state for state in State if state >= State.ACKED})
    lines += [f"    {end.name} --> [*]" for end in ends]
    return "\n".join(lines)
