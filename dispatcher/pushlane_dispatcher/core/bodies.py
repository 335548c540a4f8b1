"""Bodies: which messages have theirs in memory.

There is room for so many. A message that is in flight, or must wait, may give its body up, and it
is read again when it is needed. A higher lane always finds room: what lower lanes have ready gives
up its bodies for it, the last ones first.

Each shard has a window of its own, which is large, so that a busy queue is fast; and a server may
have thousands open. So all of them share a budget. A half of it is for whoever comes first, and the
other half is dealt out evenly: once the first is spent, a shard keeps only its own part. That is
enough to go on with, one read of the store after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Effect, Fetch
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import Lane, LiveBucket
from pushlane_dispatcher.core.life import IN_FLIGHT, WAITING, State
from pushlane_storage.message import Message, size_of

EVERYTHING = 1 << 62
FETCHES = 4
"""Reads of single messages under way at once."""
YIELD = 100
"""Messages of a lower lane that make room at once."""


class Budget:
    """How many bytes of bodies all windows of a server keep in memory together."""

    __slots__ = ("free", "least", "refused", "squeezes", "used")

    def __init__(self, most_bytes: int = EVERYTHING, shards: int = 1, window: int = 0) -> None:
        """For so many shards, each with a window of so many bytes."""
        enough = window * shards <= most_bytes
        self.free = most_bytes if enough else most_bytes // 2
        """What is for whoever comes first."""
        self.least = max(1, most_bytes // 2 // shards)
        """What a shard may always keep."""
        self.used = 0
        self.refused: set[object] = set()
        """Whose window wanted to have more than its part since somebody last looked."""
        self.squeezes = 0
        """How often a shard had to give bodies up."""

    @property
    def spent(self) -> bool:
        """Each shard has its own part only."""
        return self.used >= self.free


class Bodies:
    __slots__ = (
        "_bounds", "_budget", "_effects", "_fetching", "_order", "_reading", "bare", "resident",
        "resident_bytes", "urgent",
    )  # fmt: skip

    def __init__(self, bounds: Bounds, order: list[Lane], effects: list[Effect]) -> None:
        self._bounds = bounds
        self._order = order
        self._effects = effects
        self.resident = 0
        """Messages with their body in memory."""
        self.resident_bytes = 0
        self._budget = Budget()
        self.bare = 0
        """Ready messages, in all lanes, whose bodies are to be read again as room comes up."""
        self.urgent: deque[Entry] = deque()
        """What is in flight or leaves, and needs its body: few, and somebody waits for them."""
        self._fetching = 0
        self._reading = 0
        """Messages in the reads under way."""

    def count(self, messages: int, size: int) -> None:
        """So many more bodies are in memory, or fewer."""
        self.resident += messages
        self.resident_bytes += size
        self._budget.used += size

    def join(self, budget: Budget) -> None:
        """Share a budget with other shards from now on."""
        self._budget.used -= self.resident_bytes
        self._budget.refused.discard(self)
        self._budget = budget
        budget.used += self.resident_bytes

    @property
    def most_bytes(self) -> int:
        """What may be in memory, as things are."""
        most = self._bounds.window_bytes
        return min(most, self._budget.least) if self._budget.spent else most

    @property
    def full(self) -> bool:
        return (
            self.resident >= self._bounds.window_messages or self.resident_bytes >= self.most_bytes
        )

    @property
    def tight(self) -> bool:
        """Room runs low: only what is ready keeps its body."""
        bounds = self._bounds
        if self.resident * 2 > bounds.window_messages:
            return True
        scarce = self._budget.used >= self._budget.free
        most = self.most_bytes if scarce else bounds.window_bytes
        return self.resident_bytes * 2 > most

    def takes(self, lane: Lane, size: int) -> bool:
        """Whether messages of a lane that were stored just now come in at once."""
        bounds = self._bounds
        if (
            self._budget.used < self._budget.free
            and self.resident < bounds.window_messages
            and self.resident_bytes < bounds.window_bytes
        ):
            return True
        return self.room_for(lane) and self._fits(size)

    def room_for(self, lane: Lane) -> bool:
        """Whether more of a lane may come in, after lower lanes made room for it."""
        if self.full:
            self._squeeze()
        if not self.full:
            return True
        for lower in self._below(lane):
            while lower.ready and self.full:
                for entry in lower.take_last(YIELD):
                    self.thin(entry)
                    self.want(entry)
        return not self.full

    def _fits(self, size: int) -> bool:
        """Whether messages of this size may come in at once. While there is a budget left, what
        has room at all may go beyond it."""
        return not self._budget.spent or self.resident_bytes + size <= self.most_bytes

    def fitting(self, messages: list[Message]) -> list[Message]:
        """The first of some messages that fit, at least one."""
        if not self._budget.spent:
            return messages
        left = self.most_bytes - self.resident_bytes
        for count, message in enumerate(messages):
            left -= size_of(message)
            if left < 0:
                return messages[: max(1, count)]
        return messages

    def _squeeze(self) -> None:
        """Where the budget is spent, what is in flight or must wait does without its body: else a
        shard whose consumers hold much would get nothing new."""
        if not self._budget.spent:
            return
        self._budget.refused.add(self)
        if self.resident == sum(lane.ready for lane in self._order):
            return
        before = self.resident
        for lane in self._order:
            for entry in lane.entries.values():
                if entry.state in IN_FLIGHT or entry.state in WAITING:
                    self.thin(entry)
        if self.resident < before:
            self._budget.squeezes += 1

    def spare(self, lane: Lane, bucket: LiveBucket) -> int:
        """How many more messages of a lane's bucket could come in, and are worth to be read."""
        room = self._bounds.window_messages - self.resident
        room += sum(lower.ready for lower in self._below(lane))
        fitting = (self.most_bytes - self.resident_bytes) * bucket.count // max(1, bucket.size)
        return max(1, min(room, fitting))

    def _below(self, lane: Lane) -> Iterator[Lane]:
        """Lower lanes, the lowest first."""
        return (lower for lower in reversed(self._order) if lower.number < lane.number)

    # Giving them up

    def thin(self, entry: Entry) -> None:
        """Let go of a body; it can be read again."""
        if entry.message is not None:
            entry.message = None
            self.count(-1, -entry.size)

    def thin_all(self, entries: Iterable[Entry]) -> None:
        """Let go of the bodies of messages that all have theirs."""
        messages = size = 0
        for entry in entries:
            entry.message = None
            messages += 1
            size += entry.size
        self.count(-messages, -size)

    def forget(self, entries: Iterable[Entry]) -> None:
        """Messages have ended durably."""
        messages = size = 0
        for entry in entries:
            del entry.lane.entries[entry.seq]
            if entry.message is not None:
                messages += 1
                size += entry.size
        self.count(-messages, -size)

    # Getting them back

    def want(self, entry: Entry) -> None:
        """A bare position whose body is needed."""
        if entry.state is State.READY:
            heappush(entry.lane.bare, (entry.seq, entry))
            self.bare += 1
        else:
            self.urgent.append(entry)

    def want_nothing_ready(self) -> None:
        """What was ready is being purged."""
        for lane in self._order:
            lane.bare.clear()
        self.bare = 0

    def fetch_urgent(self) -> None:
        urgent = self.urgent
        while urgent and self._fetching < FETCHES:
            count = min(self._bounds.fetch_messages, len(urgent))
            self._fetch([urgent.popleft() for _ in range(count)])

    def fetch(self, lane: Lane, enough: int) -> None:
        """Read bodies of a lane's ready messages, as far as there is room.

        Where it has `enough` at hand, only of those that come before them: what just made room for
        a higher lane would have to do so again for the next message of that one.
        """
        bare = lane.bare
        head = lane.head() if lane.ready >= enough else None
        end = lane.stored if head is None else head.seq
        while bare and bare[0][0] < end and self._fetching < FETCHES and self.room_for(lane):
            room = self._bounds.window_messages - self.resident - self._reading
            count = min(self._bounds.fetch_messages, room)
            if count <= 0:
                return
            wanted: list[Entry] = []
            while bare and bare[0][0] < end and len(wanted) < count:
                wanted.append(heappop(bare)[1])
            self.bare -= len(wanted)
            self._fetch(wanted)

    def _fetch(self, wanted: list[Entry]) -> None:
        """Bucket by bucket."""
        groups: dict[LiveBucket, list[Entry]] = {}
        for entry in wanted:
            if entry.lane.entries.get(entry.seq) is not entry:
                continue  # it ended meanwhile
            bucket = entry.lane.bucket_of(entry.seq)
            assert bucket is not None  # an unsettled message's bucket is not drained
            groups.setdefault(bucket, []).append(entry)
        for bucket, entries in groups.items():
            self._fetching += 1
            self._reading += len(entries)
            self._effects.append(Fetch(bucket.key, entries))

    def fetched(
        self, fetch: Fetch, messages: dict[int, Message]
    ) -> tuple[list[tuple[Entry, Message]], set[Entry]]:
        """Bodies came: which, and of whom the store has none."""
        self._fetching -= 1
        self._reading -= len(fetch.entries)
        complete, damaged = [], set()
        for entry in fetch.entries:
            message = messages.get(entry.seq)
            if entry.message is not None or entry.lane.entries.get(entry.seq) is not entry:
                continue
            if message is None:
                damaged.add(entry)
                continue
            entry.message = message
            entry.size = size_of(message)  # a bare position did not know it
            self.count(1, entry.size)
            entry.expires_at = message.expires_at
            complete.append((entry, message))
        return complete, damaged
