"""What one shard keeps in the in-memory store.

Rows are kept as they are handed in: nothing is packed or copied, and no message is looked at
before somebody reads. So an append costs the same whether its segment holds one message or a
thousand, and the simulator spends its time in the code that it is there to test.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.interface import Due
from pushlane_storage.message import Message
from pushlane_storage.note import Note
from pushlane_storage.seal import Seal
from pushlane_storage.segment import Segment
from pushlane_storage.seq import epoch_of
from pushlane_storage.settlement import Settlement
from pushlane_storage.slot import slot_of

_due = attrgetter("due")


class Schedule:
    """The schedule index of a shard.

    Reads are rare (the owner pages in what comes due soon) and appends are not, so segments are
    only put aside when they come, and looked through and sorted when the index is read.
    """

    __slots__ = ("_buckets", "_entries", "_unread")

    def __init__(self) -> None:
        self._entries: list[Due] = []
        self._buckets: set[BucketKey] = set()
        self._unread: dict[BucketKey, list[Segment]] = {}

    def add(self, segment: Segment) -> None:
        self._unread.setdefault(segment.bucket, []).append(segment)

    def drop(self, bucket: BucketKey) -> None:
        self._unread.pop(bucket, None)
        if bucket in self._buckets:
            self._buckets.remove(bucket)
            self._entries = [entry for entry in self._entries if entry.bucket != bucket]

    def window(self, start: int, end: int, limit: int) -> list[Due]:
        self._read()
        first = bisect_left(self._entries, start, key=_due)
        last = bisect_left(self._entries, end, first, key=_due)
        return self._entries[first : min(last, first + limit)]

    def _read(self) -> None:
        new = [
            entry
            for segments in self._unread.values()
            for segment in segments
            for entry in _dues_of(segment)
        ]
        self._unread = {}
        if new:
            self._buckets.update(entry.bucket for entry in new)
            self._entries += new
            self._entries.sort()


class BucketTable:
    """One bucket: its row, its segments by first seq, its settlement rows by (owner, n).

    The row may be missing: flushes overlap, so a later segment may land before the one that
    opens the bucket, and a paused predecessor may write to a bucket that was dropped.
    """

    __slots__ = ("_firsts", "_segments", "_settlements", "row")

    def __init__(self) -> None:
        self.row: Bucket | None = None
        self._firsts: list[int] = []
        self._segments: list[Segment] = []
        self._settlements: dict[tuple[int, int], Settlement] = {}

    def open(self, row: Bucket) -> None:
        self.row = row if self.row is None else merge(self.row, row)

    def add_segment(self, segment: Segment) -> bool:
        """Store a segment; False says that it was there."""
        firsts, segments = self._firsts, self._segments
        index = bisect_left(firsts, segment.first)
        if index < len(firsts) and firsts[index] == segment.first:
            assert segments[index] == segment, f"segment {segment.first} again, with other content"
            return False
        assert segment.messages, "an empty segment"
        assert epoch_of(segment.first) == segment.bucket.epoch, "a seq of another epoch"
        assert index == 0 or segments[index - 1].last < segment.first, "segments overlap"
        assert index == len(firsts) or segment.last < firsts[index], "segments overlap"
        firsts.insert(index, segment.first)
        segments.insert(index, segment)
        return True

    def segments_from(self, start: int) -> Iterator[Segment]:
        """The segments that hold seqs from `start` on, in order."""
        index = max(bisect_right(self._firsts, start) - 1, 0)
        if index < len(self._segments) and self._segments[index].last < start:
            index += 1
        for position in range(index, len(self._segments)):
            yield self._segments[position]

    def message(self, seq: int) -> Message | None:
        index = bisect_right(self._firsts, seq) - 1
        if index < 0 or seq > self._segments[index].last:
            return None
        segment = self._segments[index]
        return segment.messages[seq - segment.first]

    def add_settlement(self, row: Settlement) -> None:
        known = self._settlements.setdefault((row.owner, row.n), row)
        assert known is row or known == row, f"flush {row.owner}.{row.n} again, with other content"

    def drop_settlements(self, flushes: Iterable[tuple[int, int]]) -> None:
        for flush in flushes:
            self._settlements.pop(flush, None)

    def settlements(self) -> list[Settlement]:
        return [row for _, row in sorted(self._settlements.items(), key=lambda item: item[0])]


class ShardTable:
    __slots__ = ("buckets", "lowest", "note", "schedule", "seals", "slot")

    def __init__(self, key: ShardKey) -> None:
        self.slot = slot_of(key)
        self.lowest = 0
        """The epoch with which it was last opened again within a tenure."""
        self.buckets: dict[BucketKey, BucketTable] = {}
        self.seals: dict[int, Seal] = {}
        self.note: Note | None = None
        self.schedule = Schedule()

    def bucket(self, key: BucketKey) -> BucketTable:
        """A bucket to write to."""
        table = self.buckets.get(key)
        if table is None:
            table = self.buckets[key] = BucketTable()
        return table

    def append(self, segment: Segment, opens: Bucket | None) -> None:
        table = self.bucket(segment.bucket)
        if opens is not None:
            assert opens.key == segment.bucket, "a segment opens its own bucket only"
            table.open(opens)
        if table.add_segment(segment):
            self.schedule.add(segment)

    def drop(self, key: BucketKey) -> None:
        table = self.buckets.get(key)
        if table is None:
            return
        assert table.row is None or table.row.drained, f"{key} is not drained"
        del self.buckets[key]
        self.schedule.drop(key)


def merge(old: Bucket, new: Bucket) -> Bucket:
    """A bucket's row after it was written again: flags only rise, the first close's counts stand.

    The writer may hold an older copy of the row than the store does.
    """
    assert old.first == new.first, f"{old.key} opened at {old.first} and at {new.first}"
    counts = old if old.closed else new
    return Bucket(
        old.key,
        old.first,
        closed=old.closed or new.closed,
        drained=old.drained or new.drained,
        count=counts.count,
        size=counts.size,
        last_at=counts.last_at,
        marks=counts.marks,
    )


def _dues_of(segment: Segment) -> Iterator[Due]:
    bucket = segment.bucket
    for seq, message in enumerate(segment.messages, segment.first):
        if message.not_before:
            yield Due(message.not_before, bucket.lane, bucket, seq)
