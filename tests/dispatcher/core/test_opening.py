"""Opening: what is read and written, in which order, and which marks are enough."""

from __future__ import annotations

from typing import Any

import msgspec

from pushlane_dispatcher.core.bounds import TRANSFER_WINDOW_MS, Bounds
from pushlane_dispatcher.core.effects import WriteNote
from pushlane_dispatcher.core.opening import (
    AskTime,
    ClaimLeases,
    Opening,
    ReadHeads,
    ReadMessages,
    ReadOutline,
    ReadSettlements,
    ReadTally,
    RecallMarks,
    SpendEpoch,
    Step,
    Table,
    WriteSeal,
    look_at_shard,
    open_shard,
    wanted_marks,
)
from pushlane_dispatcher.core.recovered import Recovered, RecoveredBucket
from pushlane_dispatcher.core.shard import Setup, Shard
from pushlane_leases.interface import LeaseRun
from pushlane_storage.bucket import CONTROL, Bucket, BucketKey, MarkSummary
from pushlane_storage.note import Note
from pushlane_storage.seal import Outline
from pushlane_storage.settlement import BucketState
from pushlane_storage.tally import Tally
from tests.dispatcher.core.harness import LANE, Rig
from tests.opened import carry_out, reading


class Openings:
    """Opens a rig's shard once more, step by step, with some answers of the test's own."""

    def __init__(self, rig: Rig, **changes: Any) -> None:
        self.rig = rig
        self.setup: Setup = msgspec.structs.replace(rig.setup, epoch=rig.epoch + 1, **changes)
        self.steps: list[Step] = []
        self.answers: Table = {WriteSeal: lambda _: None, ClaimLeases: lambda _: []}

    @property
    def kinds(self) -> list[type[Step]]:
        return [type(step) for step in self.steps]

    def run(self, opening: Opening[Any]) -> Any:
        """What comes of it."""
        table = reading(self.rig.tables, self.rig.key, lambda: self.rig.moment) | self.answers

        def note(step: Step) -> Any:
            self.steps.append(step)
            return table[type(step)](step)

        return carry_out(opening, dict.fromkeys(table, note))

    def open(self) -> Shard | None:
        shard: Shard | None = self.run(open_shard(self.setup))
        return shard


def filled() -> Rig:
    """Three buckets: one that is drained, one with two messages of four, and one that is open."""
    rig = Rig(bounds=Bounds(bucket_messages=4))
    consumer = rig.subscribe(100)
    rig.publish("a", producer="p", producer_seq=1)
    rig.publish(*"bcd")
    rig.publish(*"efgh")
    consumer.ack(1, 2, 3, 4)
    consumer.ack(5, 6)
    rig.publish("i")
    return rig


# The order


def test_the_steps_of_an_opening() -> None:
    rig = filled()
    drained, closed, cut_off = rig.buckets()
    assert (drained.drained, closed.closed, cut_off.closed) == (True, True, False)
    opened = Openings(rig)
    assert opened.open() is not None
    assert opened.steps[:6] == [
        ReadOutline(),
        ReadHeads(cut_off.key),
        ReadSettlements(closed.key),
        ReadSettlements(cut_off.key),
        ReadSettlements(CONTROL),
        SpendEpoch(),
    ]
    assert opened.kinds[6:] == [
        ReadTally, AskTime, RecallMarks, ReadHeads, WriteSeal, ClaimLeases, AskTime,
    ]  # fmt: skip
    assert opened.steps[8:10] == [RecallMarks(drained), ReadHeads(drained.key)]


def test_a_slot_that_was_lost_meanwhile_is_left_alone() -> None:
    opened = Openings(filled())
    opened.answers[SpendEpoch] = lambda _: False
    assert opened.open() is None
    assert opened.kinds[-1] is SpendEpoch, "nothing is written after it"


def test_marks_in_the_cache_save_reading_heads() -> None:
    rig = filled()
    drained, _, cut_off = rig.buckets()
    opened = Openings(rig)
    opened.answers[RecallMarks] = lambda step: rig.tables.heads(rig.key, step.bucket.key)
    shard = opened.open()
    assert [step for step in opened.steps if type(step) is ReadHeads] == [ReadHeads(cut_off.key)]
    assert shard is not None
    ticket = shard.publish([rig.message("a", producer="p", producer_seq=1)], rig.now)
    assert ticket.duplicates == {0: (LANE, drained.first)}


def test_bodies_are_read_of_what_is_out_and_was_not_ended() -> None:
    rig = filled()
    _, closed, _ = rig.buckets()
    run = LeaseRun(
        "P", 5, 4, LANE, closed.first, 9, "session", 0, 0, True, 30_000, rig.wall + 1_000, rig.epoch
    )
    others = [
        msgspec.structs.replace(run, prefix="old", owner=rig.epoch + 7),
        msgspec.structs.replace(run, prefix="lane", lane=LANE + 1),
        msgspec.structs.replace(run, prefix="far", seq=closed.first + 1_000),
    ]
    opened = Openings(rig)
    opened.answers[ClaimLeases] = lambda _: [run, *others]
    shard = opened.open()
    unsettled = [closed.first + 2, closed.first + 3]
    assert ReadMessages(closed.key, unsettled) in opened.steps
    assert opened.kinds.count(ReadMessages) == 1
    assert shard is not None
    assert list(shard.consumers.subscriptions) == ["P"]
    held = shard.consumers.subscriptions["P"].held
    assert [(n, entry.seq) for n, entry in held.items()] == [(7, unsettled[0]), (8, unsettled[1])]


def test_a_lease_cache_that_can_not_be_asked_is_gone_without() -> None:
    rig = filled()
    opened = Openings(rig)
    opened.answers[ClaimLeases] = lambda _: None
    shard = opened.open()
    assert shard is not None
    assert not shard.consumers.subscriptions
    assert ReadMessages not in opened.kinds
    assert shard.stats().ready == 3, "what was out is ready again"


def test_a_lease_whose_message_can_not_be_read_is_none() -> None:
    rig = filled()
    first = rig.buckets()[1].first + 2
    run = LeaseRun("P", 1, 1, LANE, first, 9, "s", 0, 0, True, 1, rig.wall, rig.epoch)
    opened = Openings(rig)
    opened.answers |= {ClaimLeases: lambda _: [run], ReadMessages: lambda _: {}}
    shard = opened.open()
    assert shard is not None
    assert shard.consumers.subscriptions == {}


def test_what_was_counted_before_is_known() -> None:
    opened = Openings(filled())
    opened.answers[ReadTally] = lambda _: Tally(1, {}, {"acked": 4})
    shard = opened.open()
    assert shard is not None
    assert shard.lifetime()["acked"] == 4 + 2


# A note that a predecessor may write over


def noted(due: int | None, *, shared: bool) -> list[Note]:
    """What the new owner notes at once."""
    rig = Rig()
    rig.tables.write_note(rig.key, Note(1, 5, "", "q", due))
    opened = Openings(rig, shared=shared)
    shard = opened.open()
    assert shard is not None
    return [effect.note for effect in shard.effects(rig.now) if isinstance(effect, WriteNote)]


def test_where_others_may_still_write_a_note_is_repeated_by_its_new_owner() -> None:
    (note,) = noted(77, shared=True)
    assert (note.owner, note.due) == (2, 77)
    assert noted(77, shared=False) == []
    assert noted(None, shared=True) == []


# Looking


def test_looking_writes_nothing_and_claims_nothing() -> None:
    rig = filled()
    looked = Openings(rig)
    shard = looked.run(look_at_shard(looked.setup))
    assert not {SpendEpoch, WriteSeal, ClaimLeases, RecallMarks} & set(looked.kinds)
    assert shard.stats().stored == rig.stats.stored == 3
    assert shard.epoch == rig.epoch + 1


def test_looking_at_what_nobody_ever_opened() -> None:
    rig = Rig()
    looked = Openings(rig)
    looked.answers[ReadOutline] = lambda _: Outline([], [], None)
    assert looked.run(look_at_shard(looked.setup)).epoch == 1


def test_a_bucket_that_is_dropped_while_somebody_looks_is_gone() -> None:
    rig = filled()
    looked = Openings(rig)
    before = rig.tables.outline(rig.key)
    there = [before, before._replace(buckets=before.buckets[2:])]
    looked.answers[ReadOutline] = lambda _: there.pop(0)
    assert looked.run(look_at_shard(looked.setup)).stats().stored == 1


# Which marks are enough

WALL = 10 * TRANSFER_WINDOW_MS
WINDOW = 1_000
KEEP = 10
IDS = 1_000


def bucket(
    start: int, marks: MarkSummary, age: int = 0, epoch: int = 1, closed: bool = True
) -> Bucket:
    key = BucketKey(4, epoch, start)
    return Bucket(key, start, closed, count=9, last_at=WALL - age, marks=marks)


def numbers(**producers: tuple[int, int]) -> MarkSummary:
    return MarkSummary(producers=producers)


def wanted(
    *rows: Bucket, drained: tuple[Bucket, ...] = (), wall: int = WALL
) -> tuple[list[int], dict[str, int]]:
    recovered = Recovered(
        buckets=[RecoveredBucket(row, BucketState()) for row in rows], drained=list(drained)
    )
    found = wanted_marks(recovered, WINDOW, wall, KEEP, IDS)
    return [row.key.start for row in found], recovered.floors


def test_nothing_without_marks() -> None:
    assert wanted(bucket(1, MarkSummary())) == ([], {})


def test_ids_within_their_window() -> None:
    young, old = bucket(2, MarkSummary(ids=1), 999), bucket(1, MarkSummary(ids=1), 1_000)
    assert wanted(young, old) == ([2], {})
    assert wanted(drained=(young, old)) == ([2], {})


def test_as_many_ids_as_are_kept_when_time_can_not_tell() -> None:
    ids, transfers = MarkSummary(ids=IDS - 2), MarkSummary(transfers=1)
    rows = [bucket(4, ids), bucket(3, transfers, WALL), bucket(2, ids, WALL), bucket(1, ids)]
    assert wanted(*rows, wall=0) == ([4, 3, 2], {})


def test_transfers_of_a_day() -> None:
    marks = MarkSummary(transfers=1)
    young = bucket(2, marks, TRANSFER_WINDOW_MS - 1)
    assert wanted(young, bucket(1, marks, TRANSFER_WINDOW_MS)) == ([2], {})


def test_the_newest_numbers_of_every_producer() -> None:
    rows = [
        bucket(1, numbers(p=(9, 9), q=(1, 5))),
        bucket(2, numbers(p=(9, 18))),
        bucket(3, numbers(p=(9, 27))),
        bucket(4, numbers(p=(9, 36))),
    ]
    assert wanted(*rows) == ([4, 3, 1], {"p": 18})


def test_a_newer_epoch_is_newer() -> None:
    old, new = bucket(9, numbers(p=(10, 10))), bucket(1, numbers(p=(10, 20)), epoch=2)
    assert wanted(old, new) == ([1], {"p": 10})


def test_what_was_read_already_counts() -> None:
    cut_off = bucket(2, numbers(p=(10, 20)), closed=False)
    assert wanted(bucket(1, numbers(p=(10, 10))), cut_off) == ([], {"p": 10})


def test_too_many_producers_to_list() -> None:
    many = MarkSummary(producers=None)
    assert wanted(bucket(1, many), bucket(2, many, TRANSFER_WINDOW_MS)) == ([1], {})


def test_producers_that_were_silent_for_long_are_forgotten() -> None:
    old = bucket(1, numbers(p=(3, 3), q=(3, 3)), TRANSFER_WINDOW_MS)
    assert wanted(old) == ([], {})
    assert wanted(old, bucket(2, numbers(p=(1, 4)))) == ([2], {"p": 3})
