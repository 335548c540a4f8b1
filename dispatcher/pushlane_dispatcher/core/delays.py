"""Delays: what waits for its `not_before`.

The first of the delayed messages wait in memory, as bare positions when room is low. Those that
are later stand in the store's schedule index only. It is read ahead: all that is due before
`read_until` is in memory. Every delayed message is in the index, so that any of them can be left to
it again. Retrying messages are not, and stay in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from pushlane_dispatcher.core.bodies import Bodies
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Effect, Schedule
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import LiveBucket
from pushlane_dispatcher.core.life import Life, State
from pushlane_storage.interface import Due

Item = tuple[int, int, int, Entry]
"""When it is due, its seq, its lane's number, and itself."""

TIMED = (State.DELAYED, State.RETRYING)


class Delays:
    __slots__ = (
        "_bodies", "_bounds", "_effects", "_ended", "_life", "far", "heap", "read_until", "reading",
    )  # fmt: skip

    def __init__(self, bounds: Bounds, life: Life, bodies: Bodies, effects: list[Effect]) -> None:
        self._bounds = bounds
        self._life = life
        self._bodies = bodies
        self._effects = effects
        self.heap: list[Item] = []
        """Those in memory."""
        self._ended = 0
        """How many of them have ended before they were due."""
        self.far = 0
        """Messages that only the schedule index knows of."""
        self.read_until = 0
        """Wall clock: no delayed message in memory is due later, none in the index earlier."""
        self.reading = False

    # In memory

    def add(self, entry: Entry) -> None:
        """A message waits for its `not_before`."""
        heappush(self.heap, (entry.not_before, entry.seq, entry.lane.number, entry))

    def ended(self, count: int) -> None:
        """So many have just ended before they were due: they are taken out as it pays."""
        self._ended += count
        if self._ended * 2 > len(self.heap):
            self.heap = [item for item in self.heap if item[3].state in TIMED]
            heapify(self.heap)
            self._ended = 0

    def next_due(self) -> int | None:
        """Wall clock: when the next waiting message is due."""
        heap = self.heap
        while heap and heap[0][3].state not in TIMED:
            heappop(heap)
            self._ended -= 1
        return heap[0][0] if heap else None

    def due(self, wall: int) -> list[Entry]:
        """Take out what is due."""
        found = []
        while (at := self.next_due()) is not None and at <= wall:
            found.append(heappop(self.heap)[3])
        return found

    def purge(self) -> None:
        self.heap.clear()
        self._ended = self.far = 0

    # Leaving some to the index

    def leave_to_index(self, bucket: LiveBucket, due: int, wall: int) -> bool:
        """Whether a delayed message that comes in is so late that the index is to keep it."""
        if not self.far:
            self.read_until = max(self.read_until, wall + self._bounds.horizon_ms)
        if due < self.read_until:
            return False
        bucket.far += 1
        self.far += 1
        return True

    def trim(self) -> None:
        """When too many wait in memory, leave the later half of the delayed ones to the index."""
        if self._life.counts[State.DELAYED] <= self._bounds.delayed:
            return
        delayed = sorted(item for item in self.heap if item[3].state is State.DELAYED)
        late = delayed[len(delayed) // 2 :]
        for _, seq, _, entry in late:
            bucket = entry.lane.bucket_of(seq)
            assert bucket is not None  # an unsettled message's bucket is not drained
            bucket.far += 1
            del entry.lane.entries[seq]
            self._bodies.thin(entry)
        self.far += len(late)
        self._life.born(State.DELAYED, -len(late))
        self.read_until = late[0][0]
        retrying = [item for item in self.heap if item[3].state is State.RETRYING]
        self.heap = [*delayed[: -len(late)], *retrying]
        heapify(self.heap)
        self._ended = 0

    # Reading it

    def read(self, wall: int) -> None:
        """Read the index ahead, as far as it knows of anything."""
        at = self.next_read()
        if at is None or wall < at:
            return
        start, self.read_until = self.read_until, wall + self._bounds.horizon_ms
        self.reading = True
        self._effects.append(Schedule(start, self.read_until, self._bounds.page_messages))

    def next_read(self) -> int | None:
        """Wall clock: when the index is to be read; None: not because time passes."""
        if self.reading or not self.far or self._crowded():
            return None
        return self.read_until - self._bounds.horizon_ms // 2

    def _crowded(self) -> bool:
        """Enough of them wait: for their time, or as ready ones for their bodies.

        All that waits in memory is due before what the index has, so nothing comes late by it.
        """
        bounds = self._bounds
        waiting = self._life.counts[State.DELAYED]
        return waiting * 2 >= bounds.delayed or self._bodies.bare >= bounds.positions

    def found(self, read: Schedule, found: Sequence[Due]) -> Iterator[Due]:
        """What to take in of what the index had."""
        self.reading = False
        return (due for due in found if due.due < self.read_until)

    def read_on(self, read: Schedule, found: Sequence[Due]) -> None:
        """It is taken in: is there more to read?"""
        if len(found) < read.limit:
            return
        last = found[-1].due
        if self._crowded():
            self.read_until = min(self.read_until, last)  # go on from there when some are due
            return
        # There is more. Where all are due at once, only a longer read gets behind them.
        limit = read.limit * 2 if last == read.start else self._bounds.page_messages
        self.reading = True
        self._effects.append(Schedule(last, read.end, limit))
