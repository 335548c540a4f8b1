"""An entry: one stored, unsettled message in a shard's memory.

An entry exists from the moment its message enters the window until its end is durable. Without
its body (`message is None`) it is a bare position; the body is read again when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pushlane_dispatcher.core.life import State
from pushlane_storage.message import Message

if TYPE_CHECKING:
    from pushlane_dispatcher.core.lane import Lane
    from pushlane_dispatcher.core.subscription import Subscription


class Entry(msgspec.Struct, eq=False, gc=False):
    """Not seen by the garbage collector: there are many of them, and following them all costs a
    tenth of a busy process. So the knots they make (with lane and holder) must be cut when a
    shard is over: `Shard.dispose`.
    """

    seq: int
    lane: Lane
    message: Message | None
    size: int
    state: State
    since: int
    key: str | None = None
    expires_at: int = 0
    not_before: int = 0
    attempts: int = 0
    """How often a consumer started it."""
    deliveries: int = 0
    """How often its client's connection broke before it was started."""
    fence: int = 0
    """Of its last grant: the epoch, and below it how often it was granted in this one."""
    error: str | None = None
    holder: Subscription | None = None
    n: int = 0
    """Its receipt number with its holder."""
    deadline: int = 0
    """Monotonic: when its lease or reservation ends."""
    cause: str = ""
    """Why it leaves or ends."""
    to: str = ""
    """The queue it leaves for."""
    number: int = 0
    """Its number among those that leave; 0: it has none yet, or an older version sent it off."""

    @property
    def order(self) -> tuple[int, int]:
        return self.lane.number, self.seq
