"""What the dedup marks of a bucket are about, gathered while it is written."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from pushlane_storage.bucket import MarkSummary
from pushlane_storage.message import TRANSFER
from pushlane_storage.segment import DedupMark


class Marks:
    __slots__ = ("_most", "ids", "producers", "transfers")

    def __init__(self, most: int, summary: MarkSummary | None = None) -> None:
        """`most`: so many producers are listed. A summary to start from is one of this bucket."""
        self._most = most
        summary = summary or MarkSummary()
        self.ids = summary.ids
        self.transfers = summary.transfers
        self.producers = None if summary.producers is None else dict(summary.producers)
        self._limit()

    def add(self, marks: Iterable[DedupMark]) -> None:
        for mark in marks:
            if mark.dedup is not None:
                if mark.dedup.startswith(TRANSFER):
                    self.transfers += 1
                else:
                    self.ids += 1
            if mark.producer is not None and self.producers is not None:
                count, high = self.producers.get(mark.producer, (0, 0))
                high = max(high, mark.producer_seq + mark.count - 1)
                self.producers[mark.producer] = count + mark.count, high
                self._limit()

    def _limit(self) -> None:
        if self.producers is not None and len(self.producers) > self._most:
            self.producers = None

    def summary(self) -> MarkSummary:
        producers = None if self.producers is None else dict(self.producers)
        return MarkSummary(self.ids, self.transfers, producers)


def summarize(marks: Iterable[DedupMark]) -> MarkSummary:
    """What some marks are about, however many producers that are."""
    gathered = Marks(sys.maxsize)
    gathered.add(marks)
    return gathered.summary()
