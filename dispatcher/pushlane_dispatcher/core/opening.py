"""Opening a shard: what its owner reads and writes before it serves, and in which order.

The slot is claimed before this begins, so that everything is there which a predecessor confirmed.
The seal is durable before the shard serves anybody: from then on nothing that a predecessor still
writes exists. The lease cache is asked after it; when it can't answer, what was out is simply ready
again, earlier than need be.

An opening is a generator. It yields what it wants done, one `Step` after the other, and is sent
the answers. Whoever carries it out has a table with a function for each kind of step: the
dispatcher on trio (`pushlane_dispatcher.shard.opening`), the simulator and the tests without it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from pushlane_dispatcher.core.bounds import TRANSFER_WINDOW_MS
from pushlane_dispatcher.core.recovered import Recovered, RecoveredLease, recover, remember
from pushlane_dispatcher.core.shard import Moment, Setup, Shard
from pushlane_dispatcher.core.snapshot import lease_runs
from pushlane_leases.interface import LeaseRun
from pushlane_storage.bucket import CONTROL, Bucket, BucketKey
from pushlane_storage.message import Message
from pushlane_storage.seal import Outline, Seal, ShardRows
from pushlane_storage.segment import SegmentHead
from pushlane_storage.settlement import Settlement

K = TypeVar("K")
T = TypeVar("T")


class Step(msgspec.Struct, frozen=True):
    """Something that an opening wants done. Each kind says what its answer is."""


Opening = Generator[Step, Any, T]
Table = dict[type[Step], Callable[[Any], Any]]
"""How each kind of step is carried out."""


class Together(Step, frozen=True):
    """No answer. All of these are to be carried out, in any order and several at once."""

    openings: list[Opening[None]]


class ReadOutline(Step, frozen=True):
    """`Outline`"""


class ReadHeads(Step, frozen=True):
    """`list[SegmentHead]`"""

    bucket: BucketKey


class ReadSettlements(Step, frozen=True):
    """`list[Settlement]`"""

    bucket: BucketKey


class ReadMessages(Step, frozen=True):
    """`dict[int, Message]`, by seq, of those that are stored."""

    bucket: BucketKey
    seqs: Sequence[int]


class AskTime(Step, frozen=True):
    """`Moment`"""


class SpendEpoch(Step, frozen=True):
    """`bool`: whether the slot is still ours. If so, the shard never opens under this epoch again:
    from here on others may see it."""


class ReadTally(Step, frozen=True):
    """`Tally | None`, when it is stored what happened before, and somebody counts on."""


class RecallMarks(Step, frozen=True):
    """`list[SegmentHead] | None`: what the lease cache has in place of the heads in the store."""

    bucket: Bucket


class WriteSeal(Step, frozen=True):
    """No answer, but it is durable."""

    seal: Seal


class ClaimLeases(Step, frozen=True):
    """`list[LeaseRun] | None`: what is out, as far as the lease cache knows; None: there is none
    that could be asked. Older owners are refused there from now on."""


def open_shard(setup: Setup) -> Opening[Shard | None]:
    """The shard, sealed and ready to serve. None: the slot was lost while its rows were read."""
    rows = yield from read_rows()
    if not (yield SpendEpoch()):
        return None
    seal, recovered = recover(rows, setup.epoch)
    recovered.tally = yield ReadTally()  # after the buckets, see `read_standing`
    yield from _read_marks(setup, recovered)
    yield WriteSeal(seal)
    recovered.leases = yield from _read_leases(setup, recovered)
    shard = Shard(setup, recovered, (yield AskTime()))
    if setup.shared and rows.note is not None and rows.note.due is not None:
        shard.notes.repeat(rows.note)
    return shard


def look_at_shard(setup: Setup) -> Opening[Shard]:
    """The shard as an owner would find it by now, for somebody who will not be one.

    Nothing is written, and the epoch of `setup` doesn't matter.
    """
    rows = yield from read_rows()
    outline: Outline = yield ReadOutline()
    there = {bucket.key for bucket in outline.buckets}
    # One that was dropped while we read has no settlements any more: nothing of it is left.
    rows.buckets = [bucket for bucket in rows.buckets if bucket.key in there]
    used = [*(seal.owner for seal in rows.seals), *(bucket.key.epoch for bucket in rows.buckets)]
    setup = msgspec.structs.replace(setup, epoch=1 + max(used, default=0))
    _, recovered = recover(rows, setup.epoch)
    return Shard(setup, recovered, (yield AskTime()))


def read_rows() -> Opening[ShardRows]:
    """What says which messages there are, and what became of them. Bodies are not read."""
    outline: Outline = yield ReadOutline()
    buckets = outline.buckets
    # A bucket that is closed says itself how much of it there is.
    cut_off = [bucket.key for bucket in buckets if not bucket.closed]
    heads: dict[BucketKey, list[SegmentHead]] = yield from _each(
        {key: ReadHeads(key) for key in cut_off}
    )
    undrained = [bucket.key for bucket in buckets if not bucket.drained]
    settlements: dict[BucketKey, list[Settlement]] = yield from _each(
        {key: ReadSettlements(key) for key in (*undrained, CONTROL)}
    )
    return ShardRows(outline.seals, buckets, heads, settlements, outline.note)


def _each(steps: Mapping[K, Step]) -> Opening[dict[K, Any]]:
    """The answers to several steps, in the order of the steps."""
    found: dict[K, Any] = {}

    def one(key: K, step: Step) -> Opening[None]:
        found[key] = yield step

    yield Together([one(key, step) for key, step in steps.items()])
    return {key: found[key] for key in steps}


# Dedup marks


def _read_marks(setup: Setup, recovered: Recovered) -> Opening[None]:
    """One bucket after the other is taken in, so that all heads are never there at once."""
    moment: Moment = yield AskTime()
    wall = 0 if moment.doubted else moment.wall  # at 0 none is too old
    bounds = setup.bounds
    wanted = wanted_marks(
        recovered, setup.config.dedup_window_ms, wall, bounds.producer_seqs, bounds.dedup_ids
    )

    def take_in(bucket: Bucket) -> Opening[None]:
        heads: list[SegmentHead] | None = yield RecallMarks(bucket)
        if heads is None:
            heads = yield ReadHeads(bucket.key)
        remember(recovered, bucket, heads)

    yield Together([take_in(bucket) for bucket in wanted])


def wanted_marks(
    recovered: Recovered, dedup_window_ms: int, wall: int, producer_seqs: int, dedup_ids: int
) -> list[Bucket]:
    """The closed buckets whose marks are read, the newest first; `recovered` learns what is left
    out.

    Those whose ids are younger than their window, and those with the newest numbers of a producer.
    Of a backlog of millions that are a few: the rest is behind every producer's newest numbers, and
    of that it is enough to know how far it goes. When time can't tell which ids are too old (`wall`
    is 0), their number does.
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


# What is out


def _read_leases(setup: Setup, recovered: Recovered) -> Opening[list[RecoveredLease]]:
    """By the predecessor's own word, if it left one, else by what the lease cache heard of it."""
    runs: list[LeaseRun] | None = yield ClaimLeases()
    snapshot = setup.snapshot
    if snapshot is not None and snapshot.epoch == recovered.predecessor:
        recovered.snapshot = snapshot
        runs = list(lease_runs(snapshot))
    if runs is None:
        return []
    places = list(_places(runs, recovered))
    wanted: dict[BucketKey, list[int]] = {}
    for _, seq, _, bucket in places:
        wanted.setdefault(bucket, []).append(seq)
    messages: dict[BucketKey, dict[int, Message]] = yield from _each(
        {bucket: ReadMessages(bucket, seqs) for bucket, seqs in wanted.items()}
    )
    return [
        RecoveredLease(run, n, seq, message)
        for run, seq, n, bucket in places
        if (message := messages[bucket].get(seq)) is not None
    ]


def _places(
    runs: Iterable[LeaseRun], recovered: Recovered
) -> Iterator[tuple[LeaseRun, int, int, BucketKey]]:
    """Run, seq, receipt number and bucket of all that counts and that the log has not ended."""
    for run in runs:
        if run.owner != recovered.predecessor:
            continue
        for found in recovered.buckets:
            row = found.row
            low = max(run.seq, row.first)
            high = min(run.seq + run.count, row.first + row.count)
            if row.key.lane == run.lane:
                for seq in range(low, high):
                    if seq not in found.state.settled:
                        yield run, seq, run.n + seq - run.seq, row.key
