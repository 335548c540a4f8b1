"""A shard's meter: counts of which a crash may lose the last few seconds, and latencies.

Messages come and go in batches, mostly in order of time, and bins are wide: when the first and the
last one of a batch fall into the same bin, so do those between. So a batch costs what a message
does. Where the order is not kept, a few land in a neighbour's bin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TypeVar

from pushlane_dispatcher.core.entry import Entry
from pushlane_storage.message import MESSAGE_OVERHEAD, Message
from pushlane_storage.usage import bin_of

T = TypeVar("T")


class Meter:
    __slots__ = ("_ack", "_counts", "_delivery", "_publish", "offset")

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        """How far the wall clock is ahead of `now`."""
        self._clear()

    def _clear(self) -> None:
        self._counts: dict[str, int] = defaultdict(int)
        self._publish: dict[int, int] = defaultdict(int)
        self._delivery: dict[int, int] = defaultdict(int)
        self._ack: dict[int, int] = defaultdict(int)

    def stored(self, messages: Sequence[Message], size: int, now: int) -> None:
        """A flush of messages is stored. `size` has an overhead for each."""
        self._counts["bytes_in"] += size - len(messages) * MESSAGE_OVERHEAD
        _spread(self._publish, messages, _published_at, now + self.offset, 0, len(messages))

    def delivered(self, entries: Sequence[Entry], fresh: bool, now: int) -> None:
        """Messages of one lane go to a consumer; `fresh`: for the first time."""
        self._counts["delivered"] += len(entries)
        size = sum([entry.size for entry in entries])
        self._counts["bytes_out"] += size - len(entries) * MESSAGE_OVERHEAD
        if fresh:
            _spread(self._delivery, entries, _due_at, now + self.offset, 0, len(entries))

    def started(self, count: int) -> None:
        self._counts["started"] += count

    def retried(self) -> None:
        self._counts["retried"] += 1

    def acked(self, entries: Sequence[Entry], now: int) -> None:
        """Before they move on: `since` is when their consumer got them, or took them up."""
        _spread(self._ack, entries, _since, now, 0, len(entries))

    def take(self) -> dict[str, int]:
        """What was counted since the last time, by name."""
        found = dict(self._counts)
        histograms = (
            ("publish_ms", self._publish), ("delivery_ms", self._delivery), ("ack_ms", self._ack),
        )  # fmt: skip
        for name, bins in histograms:
            found |= {f"{name}.{number}": count for number, count in bins.items()}
        self._clear()
        return found


def _spread(
    bins: dict[int, int], items: Sequence[T], begin: Callable[[T], int], end: int, low: int,
    high: int,
) -> None:  # fmt: skip
    """Enter how long it took from each item's begin to the end, for items low to high - 1."""
    first = bin_of(end - begin(items[low]))
    if first == bin_of(end - begin(items[high - 1])):
        bins[first] += high - low
        return
    middle = (low + high) // 2
    _spread(bins, items, begin, end, low, middle)
    _spread(bins, items, begin, end, middle, high)


_published_at = attrgetter("published_at")
_since = attrgetter("since")


def _due_at(entry: Entry) -> int:
    """When it could have been delivered for the first time."""
    assert entry.message is not None  # what is granted has its body
    return max(entry.message.published_at, entry.not_before)
