"""Overflow: what happens when a queue is full.

`reject` refuses the publish. `drop_oldest` and `dead_letter` make room by the oldest ready
messages; what is in flight is never taken away, so a queue full of leased messages refuses too.
"""

from __future__ import annotations

from pushlane.wire.errors import PushlaneError, QueueFull
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.journal import Journal
from pushlane_dispatcher.core.lane import LiveBucket
from pushlane_dispatcher.core.life import Life, State
from pushlane_dispatcher.core.verdicts import Verdicts
from pushlane_dispatcher.core.window import Window


class Overflow:
    __slots__ = (
        "_bounds", "_journal", "_life", "_verdicts", "_window", "bytes", "limit", "messages",
    )  # fmt: skip

    def __init__(
        self, bounds: Bounds, life: Life, journal: Journal, window: Window, verdicts: Verdicts
    ) -> None:
        self._bounds = bounds
        self._life = life
        self._journal = journal
        self._window = window
        self._verdicts = verdicts
        self.messages = 0
        """Stored and not settled."""
        self.bytes = 0
        """The same in bytes."""
        self.limit = 0
        """`max_messages`, as far as `auto_expand` raised it."""

    def recount(self, bucket: LiveBucket) -> None:
        """A bucket has other messages, or other ends, than before."""
        before, now = bucket.noted, bucket.unsettled()
        self.messages += now[0] - before[0]
        self.bytes += now[1] - before[1]
        bucket.noted = now

    def configured(self) -> None:
        self.limit = self._verdicts.config.max_messages

    @property
    def used(self) -> int:
        """Messages that count: stored or about to be, and not about to go."""
        return self.messages + self._journal.pending_messages - self._life.leaving()

    @property
    def used_bytes(self) -> int:
        """The same in bytes; what is about to go counts for the average."""
        held = self.bytes
        if held:
            held -= held * self._life.leaving() // self.messages
        return held + self._journal.pending_size

    def has_room(self, count: int, size: int) -> bool:
        config = self._verdicts.config
        if config.auto_expand:
            self._expand(self.used + count)
        if config.max_bytes is not None and self.used_bytes + size > config.max_bytes:
            return False
        return self.used + count <= self.limit

    def _expand(self, wanted: int) -> None:
        """Double the limit at 80 %, halve it again below 20 %."""
        floor = self._verdicts.config.max_messages
        top = max(floor, self._bounds.max_limit)
        while wanted * 5 > self.limit * 4 and self.limit < top:
            self.limit = min(max(2 * self.limit, 1), top)
        while wanted * 5 < self.limit and self.limit > floor:
            self.limit = max(self.limit // 2, floor)

    def make_room(self, count: int, size: int, now: int, wall: int) -> PushlaneError | None:
        """Room for messages of this size in all, or why there is none; then nothing changes."""
        policy = self._verdicts.config.overflow
        victims: list[Entry] = []
        freed = 0
        while not self.has_room(count - len(victims), size - freed):
            entry = self._victim(policy, len(victims))
            if entry is None:
                for victim in victims:
                    victim.lane.put_back(victim)
                return self._full()
            victims.append(entry)
            freed += entry.size
        for victim in victims:
            if policy == "drop_oldest":
                self._verdicts.end(victim, "dropped", now)
            else:
                self._verdicts.kill(victim, "overflow", now, wall)
        return None

    def _victim(self, policy: str, chosen: int) -> Entry | None:
        """Take out the message that goes next; None when none may go."""
        if policy == "reject":
            return None
        if policy == "dead_letter":
            leaving = self._life.counts[State.LEAVING] + chosen
            if leaving >= self._bounds.leaving:
                return None
        entry = self._window.oldest_ready()
        if entry is not None:
            entry.lane.take(1)
        return entry

    def _full(self) -> PushlaneError:
        return QueueFull(
            f"the queue holds {self.used} messages, as many as it may",
            retry_ms=1_000,
            limit="max_messages",
        )
