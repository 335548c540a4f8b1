"""A lane: one priority level of a shard, with its seqs, its buckets and its ready messages.

Ready messages stand in order of seq. What has no past comes in that order by itself and waits in
`fresh`; what came back, or had to wait for its time or key, is put back into order by `again`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from operator import attrgetter

from pushlane_dispatcher.core.effects import Append, PublishTicket
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.marks import Marks
from pushlane_storage.bucket import Bucket, BucketKey, MarkSummary
from pushlane_storage.message import Message
from pushlane_storage.seq import make_seq
from pushlane_storage.settlement import BucketState

_first = attrgetter("first")


class LiveBucket:
    """A bucket that is not drained yet, as its owner knows it."""

    __slots__ = (
        "assigned", "assigned_size", "closed", "count", "far", "first", "key", "last_at", "marks",
        "noted", "opened_at", "passed", "rolled", "rows", "size", "state",
    )  # fmt: skip

    def __init__(self, key: BucketKey, first: int, opened_at: int, marks: Marks) -> None:
        self.key = key
        self.first = first
        self.opened_at = opened_at
        self.assigned = 0
        """Messages that were given a place in it; `count` of them are stored."""
        self.assigned_size = 0
        self.count = 0
        self.size = 0
        self.rolled = False
        """Nothing more will be assigned to it."""
        self.closed = False
        """Rolled, and all of it stored."""
        self.last_at = 0
        self.marks = marks
        self.state = BucketState()
        self.rows = 0
        """Settlement rows since its last checkpoint."""
        self.noted = (0, 0)
        """What `Overflow` counts it for: unsettled messages and their bytes."""
        self.far = 0
        """Messages below the cursor that only the schedule index knows of."""
        self.passed = 0
        """Messages below the cursor that were passed over: their key was blocked."""

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    def unsettled(self) -> tuple[int, int]:
        """Its unsettled messages and their bytes, by its average: single sizes are not kept."""
        unsettled = self.count - self.state.settled.count
        return unsettled, self.size * unsettled // self.count if unsettled else 0

    @property
    def drained(self) -> bool:
        return self.closed and self.state.settled.count == self.count

    def row(self, drained: bool = False) -> Bucket:
        marks = self.marks.summary() if self.closed else MarkSummary()
        return Bucket(
            self.key, self.first, self.closed, drained, self.count, self.size, self.last_at, marks
        )


class Lane:
    __slots__ = (
        "again", "bare", "buckets", "counter", "cursor", "entries", "epoch", "flights", "fresh",
        "last_start", "marked", "number", "open", "paging", "pending", "pending_size",
        "plain", "purged", "stored", "tickets",
    )  # fmt: skip

    def __init__(self, number: int, epoch: int) -> None:
        self.number = number
        self.epoch = epoch
        self.counter = 0
        """The next message's counter in this epoch."""
        self.stored = make_seq(epoch, 0)
        """Everything below is stored, in order."""
        self.cursor = 0
        """Everything below is in memory, settled, far in the schedule, or passed over because of
        its key; the rest is backlog."""
        self.purged = -1
        """A purge up to here is durable or being written."""
        self.paging = False
        self.entries: dict[int, Entry] = {}
        self.fresh: deque[Entry] = deque()
        self.again: list[tuple[int, Entry]] = []
        self.bare: list[tuple[int, Entry]] = []
        """Ready, but without their bodies (see `Bodies`)."""
        self.buckets: list[LiveBucket] = []
        """Undrained ones, by first seq."""
        self.open: LiveBucket | None = None
        """Where the next flush goes."""
        self.last_start = -1
        """The start of the newest bucket: the next one's is greater, whatever the clock says."""
        self.pending: list[Message] = []
        self.pending_size = 0
        self.plain = True
        """Nothing pending has a key, a delay, an expiry, headers or a dedup id."""
        self.marked = False
        """Something pending has a dedup id or a producer."""
        self.tickets: list[tuple[int, PublishTicket]] = []
        """Those who wait for what is pending, with the last seq that concerns them."""
        self.flights: deque[Append] = deque()

    @property
    def ready(self) -> int:
        return len(self.fresh) + len(self.again)

    @property
    def backlogged(self) -> bool:
        return self.cursor < self.stored

    def put_back(self, entry: Entry) -> None:
        """Make a message ready again, in its place."""
        heappush(self.again, (entry.seq, entry))

    def head(self) -> Entry | None:
        """The first ready message."""
        if self.again and (not self.fresh or self.again[0][0] < self.fresh[0].seq):
            return self.again[0][1]
        return self.fresh[0] if self.fresh else None

    def take(self, count: int) -> list[Entry]:
        """Up to `count` ready messages, in order of seq. All are without a past, or not."""
        fresh, again = self.fresh, self.again
        taken: list[Entry] = []
        if again and (not fresh or again[0][0] < fresh[0].seq):
            limit = fresh[0].seq if fresh else again[0][0] + (1 << 63)
            while again and len(taken) < count and again[0][0] < limit:
                taken.append(heappop(again)[1])
            return taken
        if not again:
            popleft = fresh.popleft
            return [popleft() for _ in range(min(count, len(fresh)))]
        while fresh and len(taken) < count and fresh[0].seq < again[0][0]:
            taken.append(fresh.popleft())
        return taken

    def take_last(self, count: int) -> list[Entry]:
        """Up to `count` ready messages from the end, the last one first."""
        fresh, again = self.fresh, self.again
        if fresh:
            return [fresh.pop() for _ in range(min(count, len(fresh)))]
        again.sort()  # then it is still a heap
        return [again.pop()[1] for _ in range(min(count, len(again)))]

    def remove(self, gone: Iterable[Entry]) -> None:
        """Take these out of the ready messages."""
        seqs = {entry.seq for entry in gone}
        self.fresh = deque(entry for entry in self.fresh if entry.seq not in seqs)
        self.again = [item for item in self.again if item[0] not in seqs]
        heapify(self.again)

    def bucket_of(self, seq: int) -> LiveBucket | None:
        """The live bucket that holds a stored message; None when it was drained."""
        index = bisect_right(self.buckets, seq, key=_first) - 1
        if index < 0:
            return None
        bucket = self.buckets[index]
        return bucket if seq < bucket.first + bucket.count else None

    def bucket_from(self, seq: int) -> LiveBucket | None:
        """The live bucket that holds this seq or, if none does, the next one."""
        index = max(0, bisect_right(self.buckets, seq, key=_first) - 1)
        while index < len(self.buckets):
            if self.buckets[index].last >= seq:
                return self.buckets[index]
            index += 1
        return None

    def unsettled_from(self, seq: int) -> tuple[LiveBucket, int, int] | None:
        """The next stretch of unsettled messages, from a seq on: its bucket, first and last."""
        while (bucket := self.bucket_from(seq)) is not None:
            gap = next(bucket.state.settled.gaps(max(seq, bucket.first), bucket.last), None)
            if gap is not None:
                return bucket, *gap
            seq = bucket.last + 1
        return None
