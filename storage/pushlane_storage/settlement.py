"""The settlement log: what became of stored messages, append-only.

An owner writes one flush at a time: number n, dense from 0 in each owner epoch. A flush is one
row per bucket that it touches, and every row names all the buckets of its flush (`parts`), so
that a new owner can tell a whole flush from one that was cut off half-way. Rows of a bucket are
ordered by (owner epoch, n). A checkpoint row carries the whole folded state of its bucket:
readers need nothing before it.

`BucketState` is that fold. The running owner applies a row when it is durable, a new owner
applies the rows it read: the same code, so they can't disagree.
"""

from collections.abc import Iterable

import msgspec

from pushlane_storage.bucket import BucketKey
from pushlane_storage.ranges import Range, Ranges


class Void(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A grant ended without a settle. Only when this is durable may the message go out again."""

    seq: int
    fence: int
    """The newest grant that this ends; older ones are ended too."""
    attempts: int
    deliveries: int
    not_before: int = 0
    error: str | None = None


class Leaving(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message on its way to another queue: not granted here again, unless a void says that it
    came back."""

    seq: int
    cause: str
    to: str
    attempts: int
    error: str | None
    at: int
    number: int = 0
    """Its number among all that left this shard, in order; the other queue takes it once. 0: of
    a version that knew no numbers, or of one that no queue takes (`to` is empty)."""
    deliveries: int = 0
    fence: int = 0


class Gone(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Messages that ended other than by an ack: dead, expired, dropped, purged, redriven."""

    cause: str
    low: int
    high: int


class Purge(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Every message of a lane up to a seq is gone, but for those that were in flight."""

    lane: int
    upto: int
    spared: list[int] = []


class Checkpoint(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The folded state of a bucket before the row that carries it."""

    acked: list[Range]
    gone: list[Gone]
    voids: list[Void]
    leaving: list[Leaving]


class Settlement(msgspec.Struct, frozen=True):
    """One row: what one flush says of one bucket."""

    bucket: BucketKey
    owner: int
    n: int
    parts: list[BucketKey]
    acked: list[Range] = []
    gone: list[Gone] = []
    voids: list[Void] = []
    leaving: list[Leaving] = []
    purges: list[Purge] = []
    checkpoint: Checkpoint | None = None


class BucketState:
    """What is known of a bucket's messages: the fold of its settlement rows."""

    __slots__ = ("acked", "gone", "leaving", "settled", "voids")

    def __init__(self) -> None:
        self.acked = Ranges()
        self.gone: dict[str, Ranges] = {}
        self.settled = Ranges()
        self.voids: dict[int, Void] = {}
        self.leaving: dict[int, Leaving] = {}

    def apply(self, row: Settlement) -> None:
        """Take in one row. Rows come in order; the first word on a message's end stands."""
        if row.checkpoint is not None:
            self._load(row.checkpoint)
        for void in row.voids:
            if void.seq not in self.settled:
                self.voids[void.seq] = void
                self.leaving.pop(void.seq, None)
        for leaving in row.leaving:
            if leaving.seq not in self.settled:
                self.leaving[leaving.seq] = leaving
                self.voids.pop(leaving.seq, None)
        for low, high in row.acked:
            self._end(self.acked, low, high)
        for gone in row.gone:
            self.end(gone.cause, gone.low, gone.high)

    def end(self, cause: str, low: int, high: int) -> None:
        """Messages low..high ended for this cause, as far as they had not ended before."""
        self._end(self.gone.setdefault(cause, Ranges()), low, high)

    def purge(self, purge: Purge, first: int, last: int) -> None:
        """Take in a purge as far as it concerns this bucket's seqs first..last."""
        spared = Ranges((seq, seq) for seq in purge.spared if first <= seq <= last)
        for low, high in spared.gaps(first, min(purge.upto, last)):
            self.end("purged", low, high)

    def cause_of(self, seq: int) -> str | None:
        """How a message ended: acked, or the cause; None when it has not."""
        if seq in self.acked:
            return "acked"
        return next((cause for cause, ranges in self.gone.items() if seq in ranges), None)

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(
            list(self.acked),
            [Gone(cause, *span) for cause, ranges in self.gone.items() for span in ranges],
            list(self.voids.values()),
            list(self.leaving.values()),
        )

    def _load(self, checkpoint: Checkpoint) -> None:
        self.acked = Ranges(checkpoint.acked)
        self.settled = Ranges(checkpoint.acked)
        self.gone = {}
        for gone in checkpoint.gone:
            self.gone.setdefault(gone.cause, Ranges()).add(gone.low, gone.high)
            self.settled.add(gone.low, gone.high)
        self.voids = {void.seq: void for void in checkpoint.voids}
        self.leaving = {leaving.seq: leaving for leaving in checkpoint.leaving}

    def _end(self, into: Ranges, low: int, high: int) -> None:
        settled = self.settled
        if settled.add(low, high) == high - low + 1:  # nothing of it had ended before
            into.add(low, high)
        else:
            known = Ranges(
                span
                for ranges in (self.acked, *self.gone.values())
                for span in ranges
                if span[0] <= high and span[1] >= low
            )
            for gap in known.gaps(low, high):
                into.add(*gap)
        for notes in (self.voids, self.leaving):
            if not notes:
                continue
            if len(notes) <= high - low:
                for seq in [seq for seq in notes if low <= seq <= high]:
                    del notes[seq]
            else:
                for seq in range(low, high + 1):
                    notes.pop(seq, None)


def fold(rows: Iterable[Settlement]) -> BucketState:
    """The state after these rows of one bucket, in any order."""
    state = BucketState()
    for row in sorted(rows, key=lambda row: (row.owner, row.n)):
        state.apply(row)
    return state
