"""The live buckets of a shard, and how to find them among all that were ever dropped.

Each dropped bucket leaves a tombstone in its lane's partition of `buckets`. A busy lane drops one
every other second, so whoever opened it after a week would walk over hundreds of thousands of them.
So there are skips: the row for bucket P says "behind P, the next one that may live is N", and the
row for `FRONT` where the lane begins. A reader takes the skips first and reads only between them.

A skip states that everything between was dropped. That stays true, and a later one only says more,
so it doesn't matter who wrote it, or when it lands: the greater one wins.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.cassandra import stamps
from pushlane_storage.cassandra.ring import Delete, Write
from pushlane_storage.cassandra.tables import SKIPS, keyed

Mark = tuple[int, int]
"""Epoch and start: a bucket within its lane."""
FRONT: Mark = (0, 0)


class LiveLane:
    def __init__(self, marks: Iterable[Mark] = (), skips: Iterable[Mark] = ()) -> None:
        self.marks = sorted(marks)
        self.skips = set(skips)
        """Those that have a row."""

    def add(self, mark: Mark) -> None:
        if mark not in self:
            insort(self.marks, mark)

    def __contains__(self, mark: Mark) -> bool:
        index = bisect_left(self.marks, mark)
        return index < len(self.marks) and self.marks[index] == mark

    def around(self, mark: Mark) -> tuple[Mark, Mark]:
        """The live bucket before one that is dropped, and where the next may be."""
        index = bisect_left(self.marks, mark)
        before = self.marks[index - 1] if index else FRONT
        if index < len(self.marks) and self.marks[index] == mark:
            index += 1
        # Buckets come with growing starts and epochs: a new one is never below.
        return before, self.marks[index] if index < len(self.marks) else (mark[0], mark[1] + 1)

    def drop(self, mark: Mark) -> None:
        if mark in self:
            self.marks.remove(mark)
        self.skips.discard(mark)


class Live:
    """All lanes of a shard."""

    def __init__(self) -> None:
        self.lanes: dict[int, LiveLane] = {}
        self.closed: set[BucketKey] = set()
        """Those that are known to be closed: every segment of theirs was confirmed."""

    def add(self, key: BucketKey) -> None:
        self.lanes.setdefault(key.lane, LiveLane()).add((key.epoch, key.start))

    def note(self, key: BucketKey, *, is_closed: bool) -> None:
        """A bucket was read."""
        self.add(key)
        if is_closed:
            self.closed.add(key)

    def __contains__(self, key: BucketKey) -> bool:
        lane = self.lanes.get(key.lane)
        return lane is not None and (key.epoch, key.start) in lane

    def drop(self, shard: ShardKey, key: BucketKey) -> list[Write | Delete]:
        """Forget a bucket; what to write so that others needn't look for it."""
        self.closed.discard(key)
        lane = self.lanes.setdefault(key.lane, LiveLane())
        mark = (key.epoch, key.start)
        before, after = lane.around(mark)
        row = keyed(SKIPS, (*shard, key.lane, *before), next=after)
        writes: list[Write | Delete] = [Write(SKIPS, [row], stamps.ONCE)]
        if mark in lane.skips:  # what it said, the one before it says too
            writes.append(Delete(SKIPS, (*shard, key.lane, *mark), stamps.ONCE_GONE))
        lane.drop(mark)
        lane.skips.add(before)
        return writes


def pieces(skips: dict[Mark, Mark]) -> Iterator[tuple[Mark, Mark | None]]:
    """The ranges of a lane in which live buckets may be, both ends included; None: no end."""
    low = skips.get(FRONT, FRONT)
    for mark in sorted(skips):
        if mark != FRONT and mark >= low and skips[mark] > low:
            yield low, mark
            low = skips[mark]
    yield low, None
