"""Drained buckets on their way out.

A drained bucket is dropped when its dedup marks are no longer needed. Until then, and a little
longer than need be, it stays, so that `explain` can say how its messages ended. But only a few do
so for that reason alone: a busy queue would fill the disk with what nobody will ask for. What must
outlive it is noted first.
"""

from __future__ import annotations

from bisect import insort
from typing import NamedTuple

from pushlane_dispatcher.core.bounds import TRANSFER_WINDOW_MS, Bounds
from pushlane_dispatcher.core.dedup import Dedup
from pushlane_dispatcher.core.effects import Drop, Effect
from pushlane_dispatcher.core.notes import Notes
from pushlane_storage.bucket import Bucket


class Waiting(NamedTuple):
    due: int
    """Monotonic: then its marks count no more, whatever they are."""
    number: int
    bucket: Bucket


class Drops:
    __slots__ = (
        "_bounds", "_dedup", "_effects", "_next_note", "_notes", "_number", "archived",
        "waiting",
    )  # fmt: skip

    def __init__(self, bounds: Bounds, effects: list[Effect], dedup: Dedup, notes: Notes) -> None:
        self._bounds = bounds
        self._effects = effects
        self._dedup = dedup
        self._notes = notes
        self._next_note = 0
        self.archived = False
        """They wait for an archive: whoever wrote it drops them."""
        self.waiting: list[Waiting] = []
        """The first one due first."""
        self._number = 0

    def add(self, bucket: Bucket, age: int, now: int) -> None:
        """A bucket is drained; its newest message was published `age` ago."""
        window = self._dedup.window_ms
        if bucket.marks.transfers:
            window = max(window, TRANSFER_WINDOW_MS)
        self._number += 1
        insort(self.waiting, Waiting(now + max(0, window - age), self._number, bucket))
        if len(self.waiting) > self._bounds.drained_buckets and not self.archived:
            self._drop_spare()

    def _drop_spare(self) -> None:
        too_many = len(self.waiting) - self._bounds.drained_buckets
        kept: list[Waiting] = []
        for waiting in self.waiting:
            if too_many and self._spare(waiting.bucket):
                too_many -= 1
                self._effects.append(Drop(waiting.bucket.key))
            else:
                kept.append(waiting)
        self.waiting = kept

    def _spare(self, bucket: Bucket) -> bool:
        """Nobody can need its marks, although their window is not over."""
        marks = bucket.marks
        if marks.ids or marks.transfers or marks.producers is None:
            return False
        return all(
            self._dedup.producers.passed(name, high) for name, (_, high) in marks.producers.items()
        )

    def tick(self, now: int, wall: int) -> None:
        ripe: list[Waiting] = []
        while self.waiting and self.waiting[0].due <= now:
            ripe.append(self.waiting.pop(0))
        lasting = [waiting for waiting in ripe if self._notes.concerns(waiting.bucket)]
        if lasting and now < self._next_note:
            for waiting in lasting:
                ripe.remove(waiting)
                insort(self.waiting, waiting._replace(due=self._next_note))
        elif lasting:
            for waiting in lasting:
                self._notes.keep(waiting.bucket)
            self._notes.write(now, wall)
            self._next_note = now + self._bounds.note_ms
        if not self.archived:
            self._effects += [Drop(waiting.bucket.key) for waiting in ripe]
