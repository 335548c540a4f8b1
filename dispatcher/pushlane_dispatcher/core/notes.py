"""The shard's note: what the next owner must know, and when there has to be one.

A bucket goes when its window is over, but a producer that is still there may repeat a number of it:
so what is known of such producers is noted before the bucket is dropped. Of a busy producer that is
nothing, its newest numbers are in newer buckets; of a slow one it is a few runs.

A message expires, and one that is leaving goes, also when nobody uses the queue. So the note says
by when the shard must be open. That may be too early, never too late: it is written before what it
is about, and while the shard is open only when something comes up that is due earlier still.
"""

from __future__ import annotations

from msgspec.structs import replace

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Effect, WriteNote
from pushlane_dispatcher.core.producers import Producers
from pushlane_storage.bucket import Bucket
from pushlane_storage.note import KeptNumbers, Note

_SOON_MS = 3_600_000
"""A note that is too early by more than this is left as it is when the shard closes; and so long a
shard may stay closed in which something may be due that nobody could look at."""


class Notes:
    __slots__ = ("_bounds", "_effects", "_kept", "_note", "_outdone", "_producers", "holding")

    def __init__(
        self, bounds: Bounds, effects: list[Effect], producers: Producers, blank: Note
    ) -> None:
        """`blank`: the first note of this owner, with nothing in it."""
        self._bounds = bounds
        self._effects = effects
        self._producers = producers
        self._note = blank
        self._kept: dict[str, int] = {}
        """By producer: the highest of its numbers in a bucket that is dropped."""
        self.holding: WriteNote | None = None
        """Nothing is to be stored or settled before this is durable."""
        self._outdone = False
        """While it was under way, something came up that is due earlier still."""

    def restore(self, note: Note, now: int, wall: int) -> None:
        """Recovery: what the predecessors left. It comes before what buckets say."""
        self._note = replace(self._note, due=note.due)
        for kept in note.kept:
            self._producers.restore(kept, now - max(0, wall - kept.last_at), now)
            numbers = [low + count - 1 for low, count, _, _ in kept.runs]
            self._kept[kept.producer] = max(numbers, default=kept.floor)

    def repeat(self, note: Note) -> None:
        """Say once more, in the name of this owner, what a predecessor's note said.

        Where a predecessor may still be writing, a last note of its own could land after this one
        was read, and stand with a later time than is noted here.
        """
        self._effects.append(WriteNote(replace(note, owner=self._note.owner, n=self._note.n)))
        self._note = replace(self._note, n=self._note.n + 1)

    def concerns(self, bucket: Bucket) -> bool:
        """Whether something has to be noted before a bucket is dropped."""
        producers = bucket.marks.producers
        if producers is None:  # too many to list: some of them will be there
            return len(self._producers) > 0
        return any(not self._producers.passed(name, high) for name, (_, high) in producers.items())

    def keep(self, bucket: Bucket) -> None:
        """The next note has what is known of the bucket's producers."""
        producers = bucket.marks.producers
        if producers is None:
            self._kept = {name: numbers.end - 1 for name, numbers in self._producers.by_last_use()}
            return
        for name, (_, high) in producers.items():
            self._kept[name] = max(high, self._kept.get(name, 0))

    def remind(self, due: int, now: int, wall: int, *, hold: bool) -> bool:
        """Something is due by then, which the note must say. `hold`: before anything is written.

        False: not yet, ask again when the one is durable that all wait for. Only one of these is
        under way at a time. Were each that comes up due earlier than the one before, nothing would
        ever be stored: so when that happens, the next note is earlier than it need be.
        """
        if self._note.due is not None and self._note.due <= due:
            return True
        if not hold:
            self._note = replace(self._note, due=due)
            self.write(now, wall)
            return True
        if self.holding is not None:
            self._outdone = True
            return False
        if self._outdone:
            self._outdone = False
            due = min(due, wall + (due - wall) // 2)
        self._note = replace(self._note, due=due)
        self.holding = self.write(now, wall, holding=True)
        return True

    def part(
        self, due: int | None, now: int, wall: int, *, unseen: bool = False, reading: bool = False
    ) -> None:
        """The shard closes: what is too early in the note, and soon, would open it for nothing.

        `unseen`: there are messages of which nobody knows when they are due. The note was written
        for them, too, so it stands until its time comes. If there was no room to look at them even
        then, there will be none at once; but while they are being read, there is.
        """
        noted = self._note.due
        if unseen:
            kept = noted if noted is not None and (reading or noted > wall) else wall + _SOON_MS
            due = kept if due is None else min(due, kept)
        if noted == due:
            return
        if noted is None or noted < wall + _SOON_MS or (due is not None and due < noted):
            self._note = replace(self._note, due=due)
            self.write(now, wall)

    def written(self, write: WriteNote) -> None:
        if self.holding is write:
            self.holding = None

    def write(self, now: int, wall: int, holding: bool = False) -> WriteNote:
        """Before every drop that is asked for after this."""
        kept, whole = self._gather(now, wall)
        write = WriteNote(replace(self._note, kept=kept, whole=whole), holding)
        self._effects.append(write)
        self._note = replace(self._note, n=self._note.n + 1)
        return write

    def _gather(self, now: int, wall: int) -> tuple[list[KeptNumbers], bool]:
        """Those that were used last, as many as there is room for."""
        producers = self._producers
        needed = [
            (numbers.last_at, name, high)
            for name, high in self._kept.items()
            if (numbers := producers.get(name)) is not None and not producers.passed(name, high)
        ]
        needed.sort(reverse=True)
        self._kept = {name: high for _, name, high in needed}
        kept: list[KeptNumbers] = []
        room = self._bounds.kept_runs
        for _, name, high in needed:
            found = producers.keep(name, wall, now)
            if len(found.runs) > room:  # that they were there is better than nothing
                found = KeptNumbers(name, found.last_at, max(found.floor, high), [])
            room -= max(1, len(found.runs))
            if room < 0:
                return kept, False
            kept.append(found)
        return kept, True
