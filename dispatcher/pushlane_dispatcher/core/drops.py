"""Drained buckets on their way out.

A drained bucket is dropped when its dedup marks are no longer needed. Until then, and a little
longer than need be, it stays, so that `explain` can say how its messages ended. But only a few do
so for that reason alone: a busy queue would fill the disk with what nobody will ask for.
"""

from __future__ import annotations

from bisect import insort
from typing import NamedTuple

from pushlane_dispatcher.core.bounds import TRANSFER_WINDOW_MS, Bounds
from pushlane_dispatcher.core.dedup import Dedup
from pushlane_dispatcher.core.effects import Drop, Effect
from pushlane_storage.bucket import Bucket


class Waiting(NamedTuple):
    due: int
    """Monotonic: then its marks count no more, whatever they are."""
    number: int
    bucket: Bucket


class Drops:
    __slots__ = ("_bounds", "_dedup", "_effects", "_number", "_waiting")

    def __init__(self, bounds: Bounds, effects: list[Effect], dedup: Dedup) -> None:
        self._bounds = bounds
        self._effects = effects
        self._dedup = dedup
        self._waiting: list[Waiting] = []
        """The first one due first."""
        self._number = 0

    def add(self, bucket: Bucket, age: int, now: int) -> None:
        """A bucket is drained; its newest message was published `age` ago."""
        window = self._dedup.window_ms
        if bucket.marks.transfers:
            window = max(window, TRANSFER_WINDOW_MS)
        self._number += 1
        insort(self._waiting, Waiting(now + max(0, window - age), self._number, bucket))
        if len(self._waiting) > self._bounds.drained_buckets:
            self._drop_spare()

    def _drop_spare(self) -> None:
        too_many = len(self._waiting) - self._bounds.drained_buckets
        kept: list[Waiting] = []
        for waiting in self._waiting:
            if too_many and self._spare(waiting.bucket):
                too_many -= 1
                self._effects.append(Drop(waiting.bucket.key))
            else:
                kept.append(waiting)
        self._waiting = kept

    def _spare(self, bucket: Bucket) -> bool:
        """Nobody can need its marks, although their window is not over."""
        marks = bucket.marks
        if marks.ids or marks.transfers or marks.producers is None:
            return False
        return all(self._dedup.passed(name, high) for name, (_, high) in marks.producers.items())

    def tick(self, now: int) -> None:
        while self._waiting and self._waiting[0].due <= now:
            self._effects.append(Drop(self._waiting.pop(0).bucket.key))

    def clear(self) -> None:
        """They wait for an archive: whoever wrote it drops them."""
        self._waiting.clear()

    def next(self) -> int | None:
        """Monotonic: when `tick` has something to do."""
        return self._waiting[0].due if self._waiting else None
