"""The log: how the ends of leases and messages become durable.

Decisions gather here, bucket by bucket, while the flush before them is under way: one flush at a
time, so that a reader finds at most the last one cut off. What must not happen before its row is
durable (forgetting, regranting, answering) stands in the batch and is done when it is.

Acks that nobody waits for are patient: they go with the next publish, whose commit costs the same
with or without them, and alone only after a few milliseconds.
"""

from __future__ import annotations

import msgspec

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Effect, Settle, SettleTicket
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.lane import Lane, LiveBucket
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_storage.bucket import CONTROL, BucketKey
from pushlane_storage.ranges import Range
from pushlane_storage.settlement import Gone, Leaving, Purge, Settlement, Void


class Row(msgspec.Struct, eq=False):
    """What one flush will say of one bucket."""

    bucket: LiveBucket
    acked: list[Range] = []
    gone: list[Gone] = []
    voids: list[Void] = []
    leaving: list[Leaving] = []


class Batch(msgspec.Struct, eq=False):
    """One flush: its rows, and what happens when they are durable."""

    hurried: bool = False
    """Something or somebody waits for it."""
    patient_until: int | None = None
    """Monotonic: when it no longer waits for company."""
    barrier: bool = False
    """Nothing comes into the window before it is durable."""
    rows: dict[BucketKey, Row] = {}
    purges: list[Purge] = []
    acked: list[Entry] = []
    taken: list[tuple[Subscription, list[Entry]]] = []
    voided: list[Entry] = []
    leaving: list[Entry] = []
    ended: list[Entry] = []
    tickets: list[SettleTicket] = []


class Log:
    __slots__ = ("_bounds", "_effects", "_flight", "_owner", "n", "next")

    def __init__(self, bounds: Bounds, effects: list[Effect], owner: int) -> None:
        self._bounds = bounds
        self._effects = effects
        self._owner = owner
        self.n = 0
        """The next flush's number."""
        self.next = Batch()
        """What gathers for the next flush."""
        self._flight: tuple[Settle, Batch] | None = None

    @property
    def idle(self) -> bool:
        """Nothing waits to be written and nothing is being written."""
        return self._flight is None and not self.next.rows and not self.next.purges

    @property
    def purging(self) -> bool:
        """Another purge, or one more barrier, waits behind the flush under way."""
        return self.next.barrier

    def hold(self) -> None:
        """What was decided last must be durable before anything comes into the window."""
        self.next.barrier = True

    def ack(self, entries: list[Entry], hurried: bool) -> None:
        """Entries in the order of their receipts: mostly one run of seqs."""
        self.next.hurried |= hurried
        self.next.acked += entries
        self._ack_ranges(entries)

    def take(self, subscription: Subscription, entries: list[Entry]) -> None:
        """Settle before they leave: `ack: "none"`."""
        self.next.hurried = True
        self.next.taken.append((subscription, entries))
        self._ack_ranges(entries)

    def _ack_ranges(self, entries: list[Entry]) -> None:
        lane, low = entries[0].lane, entries[0].seq
        high = low - 1
        for entry in entries:
            seq = entry.seq
            if seq != high + 1 or entry.lane is not lane:
                self._ack_range(lane, low, high)
                lane, low = entry.lane, seq
            high = seq
        self._ack_range(lane, low, high)

    def _ack_range(self, lane: Lane, low: int, high: int) -> None:
        while low <= high:
            row = self._row(lane, low)
            end = min(high, row.bucket.first + row.bucket.count - 1)
            if row.acked and row.acked[-1][1] == low - 1:
                row.acked[-1] = (row.acked[-1][0], end)
            else:
                row.acked.append((low, end))
            low = end + 1

    def void(self, entry: Entry) -> None:
        """A grant ended without a settle; the entry says how it goes on."""
        self.next.hurried = True
        self.next.voided.append(entry)
        self._row(entry.lane, entry.seq).voids.append(
            Void(
                entry.seq,
                entry.fence,
                entry.attempts,
                entry.deliveries,
                entry.not_before,
                entry.error,
            )
        )

    def leave(self, entry: Entry, wall: int) -> None:
        self.next.hurried = True
        self.next.leaving.append(entry)
        self._row(entry.lane, entry.seq).leaving.append(
            Leaving(
                entry.seq,
                entry.cause,
                entry.to,
                entry.attempts,
                entry.error,
                wall,
                entry.number,
                entry.deliveries,
                entry.fence,
            )
        )

    def end(self, entry: Entry) -> None:
        """It expired, was dropped, or died (after its transfer, when there was one)."""
        self.next.hurried = True
        self.next.ended.append(entry)
        gone = self._row(entry.lane, entry.seq).gone
        seq = entry.seq
        if gone and gone[-1].cause == entry.cause and gone[-1].high == seq - 1:
            gone[-1] = Gone(entry.cause, gone[-1].low, seq)
        else:
            gone.append(Gone(entry.cause, seq, seq))

    def purge(self, purges: list[Purge], entries: list[Entry]) -> None:
        self.next.hurried = True
        self.next.barrier = True
        self.next.purges = purges
        self.next.ended += entries

    def wait(self, ticket: SettleTicket) -> bool:
        """Answer this one when all that was decided before is durable; False: it is already."""
        if self._flight is None and not (self.next.rows or self.next.purges):
            return False
        self.next.tickets.append(ticket)
        if not ticket.silent:
            self.next.hurried = True
        return True

    def _row(self, lane: Lane, seq: int) -> Row:
        bucket = lane.bucket_of(seq)
        assert bucket is not None  # an unsettled message's bucket is not drained
        row = self.next.rows.get(bucket.key)
        if row is None:
            row = self.next.rows[bucket.key] = Row(bucket)
        return row

    def _waits(self, now: int) -> bool:
        """Whether the next flush has time to wait for company."""
        batch = self.next
        if len(batch.acked) >= self._bounds.patience_messages:
            return False
        if batch.patient_until is None:
            batch.patient_until = now + self._bounds.patience_ms
        return now < batch.patient_until

    def flush(self, now: int, company: bool) -> None:
        """Begin the next flush, unless one is under way or nothing waits for it.

        `company`: messages are being stored just now.
        """
        batch = self.next
        if self._flight is not None or not (batch.rows or batch.purges):
            return
        if not (company or batch.hurried) and self._waits(now):
            return
        parts = list(batch.rows)
        if batch.purges:
            parts.append(CONTROL)
        rows = [self._settlement(row, parts) for row in batch.rows.values()]
        if batch.purges:
            rows.append(Settlement(CONTROL, self._owner, self.n, parts, purges=batch.purges))
        settle = Settle(rows)
        self._flight = settle, batch
        self.next = Batch()
        self.n += 1
        self._effects.append(settle)

    def _settlement(self, row: Row, parts: list[BucketKey]) -> Settlement:
        bucket = row.bucket
        bucket.rows += 1
        checkpoint = None
        if bucket.rows >= self._bounds.checkpoint_rows:
            bucket.rows = 0
            checkpoint = bucket.state.checkpoint()
        return Settlement(
            bucket.key,
            self._owner,
            self.n,
            parts,
            row.acked,
            row.gone,
            row.voids,
            row.leaving,
            [],
            checkpoint,
        )

    def settled(self, settle: Settle) -> Batch:
        """A flush is durable: fold it, and say what may happen now."""
        assert self._flight is not None
        assert self._flight[0] is settle
        batch = self._flight[1]
        self._flight = None
        for row, built in zip(settle.rows, batch.rows.values(), strict=False):
            built.bucket.state.apply(row)
        if not (self.next.rows or self.next.purges):  # they waited for this flush only
            batch.tickets += self.next.tickets
            self.next.tickets = []
        return batch
