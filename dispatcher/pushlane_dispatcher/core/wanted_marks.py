"""Which buckets' dedup marks a new owner reads.

Those whose ids are younger than their window, and those with the newest numbers of a producer. Of
a backlog of millions that are a few: the rest is behind every producer's newest numbers, and of
that it is enough to know how far it goes.
"""

from __future__ import annotations

from pushlane_dispatcher.core.bounds import TRANSFER_WINDOW_MS
from pushlane_dispatcher.core.recovered import Recovered
from pushlane_storage.bucket import Bucket


def wanted_marks(
    recovered: Recovered, dedup_window_ms: int, wall: int, producer_seqs: int, dedup_ids: int
) -> list[Bucket]:
    """The closed buckets to read, the newest first; `recovered` learns what is left out.

    When time can't tell which ids are too old (`wall` is 0), their number does.
    """
    known: dict[str, int] = {}
    """By producer: how many of its numbers will have been read."""
    wanted: list[Bucket] = []
    ids = 0
    rows = [*recovered.drained, *(found.row for found in recovered.buckets)]
    for row in sorted(rows, key=_newest_first):
        if not row.closed:  # these were read, to find their end
            _count(row, known)
        elif (ids < dedup_ids and _has_ids(row, dedup_window_ms, wall)) or _has_numbers(
            row, known, max(dedup_window_ms, TRANSFER_WINDOW_MS), wall, producer_seqs
        ):
            wanted.append(row)
            ids += row.marks.ids + row.marks.transfers
            _count(row, known)
        else:
            _leave_out(row, known, recovered.floors)
    return wanted


def _newest_first(row: Bucket) -> tuple[int, int]:
    return -row.key.epoch, -row.key.start


def _has_ids(row: Bucket, dedup_window_ms: int, wall: int) -> bool:
    marks = row.marks
    if marks.transfers and row.last_at > wall - TRANSFER_WINDOW_MS:
        return True
    return marks.ids > 0 and row.last_at > wall - dedup_window_ms


def _has_numbers(
    row: Bucket, known: dict[str, int], window_ms: int, wall: int, producer_seqs: int
) -> bool:
    if row.last_at <= wall - window_ms:
        return False
    producers = row.marks.producers
    return producers is None or any(known.get(name, 0) < producer_seqs for name in producers)


def _count(row: Bucket, known: dict[str, int]) -> None:
    for name, (count, _) in (row.marks.producers or {}).items():
        known[name] = known.get(name, 0) + count


def _leave_out(row: Bucket, known: dict[str, int], floors: dict[str, int]) -> None:
    for name, (_, high) in (row.marks.producers or {}).items():
        if name in known:
            floors[name] = max(high, floors.get(name, 0))
