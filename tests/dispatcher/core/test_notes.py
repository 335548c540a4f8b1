"""A producer's last numbers are known whatever becomes of their buckets, also to the next owner."""

import pytest

from pushlane_dispatcher.core.bounds import TRANSFER_WINDOW_MS, Bounds
from pushlane_dispatcher.core.effects import Append, Page, PublishTicket, Transfer, WriteNote
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueConfig
from pushlane_storage.settlement import BucketState, fold
from tests.dispatcher.core.harness import LANE, Rig

MINUTE = 60_000
PLACE = tuple[int, int]


def publish(rig: Rig, number: int, producer: str = "p") -> PublishTicket:
    return rig.send([Message(b"x", rig.wall, producer=producer, producer_seq=number)])


def settle(rig: Rig) -> None:
    (consumer,) = rig.consumers.values()
    consumer.ack(*consumer.numbers)
    consumer.take()


def slowly(rig: Rig, *numbers: int, every_ms: int = 7 * MINUTE) -> dict[int, PLACE]:
    """Published and acked one by one, with pauses in which the buckets before are dropped."""
    rig.subscribe()
    places = {}
    for number in numbers:
        ticket = publish(rig, number)
        places[number] = (LANE, ticket.seqs[0])
        settle(rig)
        rig.wait(every_ms)
    return places


def places_of(rig: Rig, *numbers: int) -> dict[int, PLACE | None]:
    return {number: publish(rig, number).duplicates[0] for number in numbers}


@pytest.mark.parametrize("window", [300_000, 1_000])
@pytest.mark.parametrize("crashes", [1, 3])
def test_a_number_whose_bucket_was_dropped_is_a_duplicate_with_its_id(
    window: int, crashes: int
) -> None:
    rig = Rig(QueueConfig(dedup_window_ms=window))
    places = slowly(rig, *range(1, 12))
    assert len(rig.drops) >= 5
    for _ in range(crashes):
        assert places_of(rig, *places) == places
        rig.crash()
        rig.wait(window)
    assert places_of(rig, *places) == places
    assert rig.stats.stored == 0


def test_a_number_between_that_was_never_there_is_new() -> None:
    rig = Rig()
    slowly(rig, 1, 2, 4, 5, 6)
    assert rig.drops
    rig.crash()
    assert publish(rig, 3).duplicates == {}
    assert 0 in publish(rig, 4).duplicates


def test_what_is_older_than_the_newest_is_a_duplicate_without_an_id_for_the_next_owner() -> None:
    rig = Rig(bounds=Bounds(producer_seqs=4))
    places = slowly(rig, *range(1, 12))
    rig.crash()
    assert places_of(rig, 1, 4) == {1: None, 4: None}
    assert places_of(rig, 8, 11) == {8: places[8], 11: places[11]}


def test_a_busy_producer_needs_no_note() -> None:
    rig = Rig(bounds=Bounds(producer_seqs=4, bucket_messages=4, drained_buckets=99))
    slowly(rig, *range(1, 40), every_ms=0)
    rig.wait(299_999)
    publish(rig, 40)
    publish(rig, 41)
    publish(rig, 42)
    publish(rig, 43)
    rig.wait(1)
    assert len(rig.drops) == 9
    note = rig.tables.outline(rig.key).note
    assert note is not None
    assert (note.n, note.kept) == (0, [])


def test_a_producer_that_was_silent_for_a_day_is_forgotten() -> None:
    rig = Rig()
    slowly(rig, 1, 2)
    rig.wait(TRANSFER_WINDOW_MS)
    publish(rig, 1, "other")
    assert publish(rig, 1).duplicates == {}
    rig.wait(MINUTE * 20)
    rig.crash()
    assert publish(rig, 2).duplicates == {}


def test_a_note_of_too_many_producers_knows_that_some_are_missing() -> None:
    rig = Rig(bounds=Bounds(kept_runs=5))
    rig.subscribe()
    for name in "abcdefgh":
        publish(rig, 1, name)
        publish(rig, 2, name)
        settle(rig)
        rig.wait(10)
    rig.wait(20 * MINUTE)
    for name in "abcdefgh":
        publish(rig, 4, name)
        settle(rig)
        rig.wait(10)
    rig.wait(20 * MINUTE)
    note = rig.tables.outline(rig.key).note
    assert note is not None
    assert not note.whole
    assert [kept.producer for kept in note.kept] == ["h", "g", "f"]
    assert [len(kept.runs) for kept in note.kept] == [2, 2, 0]
    publish(rig, 5, "a")
    publish(rig, 5, "h")
    rig.crash()
    assert publish(rig, 1, "h").duplicates[0] is not None
    assert publish(rig, 3, "h").duplicates == {}
    assert publish(rig, 1, "a").duplicates == {0: None}, "below all that is known of it"
    assert publish(rig, 6, "a").duplicates == {}


def test_numbers_that_there_is_no_room_for_are_known_without_their_places() -> None:
    rig = Rig(bounds=Bounds(kept_runs=2))
    rig.subscribe()
    for number in (1, 2, 3):
        publish(rig, number, "p")
        publish(rig, number, "q")
        settle(rig)
        rig.wait(15 * MINUTE)
    rig.wait(15 * MINUTE)
    rig.crash()
    found = {name: publish(rig, 2, name).duplicates for name in "pq"}
    assert found == {"p": {0: None}, "q": {0: None}}


def test_of_a_bucket_with_too_many_producers_all_are_noted() -> None:
    rig = Rig(bounds=Bounds(bucket_producers=1))
    rig.subscribe()
    for number in (1, 2):
        for name in "ab":
            publish(rig, number, name)
        settle(rig)
        rig.wait(20 * MINUTE)
    assert rig.drops
    rig.crash()
    assert publish(rig, 1, "a").duplicates[0] is not None
    assert publish(rig, 1, "b").duplicates[0] is not None


def test_notes_are_written_now_and_then() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=1_000), Bounds(bucket_messages=1, note_ms=30_000))
    rig.subscribe()
    for number in range(1, 20):
        publish(rig, number)
        settle(rig)
        rig.wait(5_000)
    note = rig.tables.outline(rig.key).note
    assert note is not None
    assert 2 <= note.n <= 5
    assert len(rig.drops) >= 12


def test_what_is_archived_is_noted_and_not_dropped() -> None:
    rig = Rig(QueueConfig(archive="parquet"))
    slowly(rig, *range(1, 12))
    assert rig.drops == []
    for bucket in rig.buckets():
        if bucket.drained and bucket.last_at + 6 * MINUTE < rig.wall:
            rig.tables.drop(rig.key, bucket.key)
    rig.crash()
    assert 0 in publish(rig, 5).duplicates


# When the shard must be open


def due(rig: Rig) -> int | None:
    note = rig.tables.outline(rig.key).note
    return None if note is None else note.due


def test_a_message_that_expires_is_noted_before_it_is_stored() -> None:
    rig = Rig()
    rig.hold = {WriteNote}
    ticket = rig.publish("x", expires_at=rig.wall + 500)
    assert rig.segments() == []
    rig.hold = set()
    rig.finish()
    assert due(rig) == rig.wall + 500
    assert rig.published == [ticket]
    assert len(rig.segments()) == 1


def test_the_note_is_written_again_only_for_what_is_due_earlier() -> None:
    rig = Rig()
    for ms in (500, 700, 500):
        rig.publish("x", expires_at=rig.wall + ms)
    rig.publish("x")
    note = rig.tables.outline(rig.key).note
    assert note is not None
    assert (note.n, note.due) == (0, rig.wall + 500)
    rig.publish("x", expires_at=rig.wall + 300)
    assert due(rig) == rig.wall + 300


def test_messages_that_expire_earlier_and_earlier_are_stored_all_the_same() -> None:
    rig = Rig()
    rig.hold = {WriteNote}
    tickets = []
    for number in range(300):
        tickets.append(rig.publish("x", expires_at=rig.wall + 600_000 - number))
        for write in rig.held(WriteNote)[:1]:
            rig.finish(write)
        assert len(rig.held(WriteNote)) <= 1
    assert len(rig.published) >= 290
    rig.hold = set()
    rig.finish()
    assert rig.published == tickets
    noted = due(rig)
    assert noted is not None
    assert noted <= rig.wall + 600_000 - 299


@pytest.mark.parametrize("share", [0.9, 0.5, 0.1])
def test_however_fast_their_times_fall_a_few_notes_are_enough(share: float) -> None:
    rig = Rig()
    rig.hold = {WriteNote}
    left = 14 * 24 * 60 * MINUTE
    notes = 0
    while left > 1:
        rig.publish("x", expires_at=rig.wall + left)
        left = int(left * share)
    for left in range(200, 0, -1):
        rig.publish("x", expires_at=rig.wall + left)
        for write in rig.held(WriteNote):
            notes += 1
            rig.finish(write)
        stored = [message for segment in rig.segments() for message in segment.messages]
        assert all(due(rig) <= message.expires_at for message in stored)  # type: ignore[operator]
    assert notes <= 32
    assert rig.stats.pending == 0


def test_nothing_is_stored_before_the_note_that_it_needs() -> None:
    rig = Rig()
    rig.hold = {WriteNote}
    rig.publish("x", expires_at=rig.wall + 1_000)
    rig.publish("y", expires_at=rig.wall + 500)
    (first,) = rig.held(WriteNote)
    rig.finish(first)
    assert rig.segments() == []
    (second,) = rig.held(WriteNote)
    assert (second.holding, second.note.due) == (True, rig.wall + 250)
    rig.finish(second)
    assert rig.held(WriteNote) == []
    assert len(rig.published) == 2


def test_what_is_stored_is_due_when_its_retention_ends() -> None:
    rig = Rig(QueueConfig(retention_ms=1_000_000))
    rig.publish("x")
    assert due(rig) == rig.wall + 1_000_000
    rig.wait(1_000)
    rig.publish("x")
    assert due(rig) == rig.wall - 1_000 + 1_000_000


def test_what_is_leaving_is_due_at_once_and_noted_before_it_leaves() -> None:
    rig = Rig()
    rig.hold = {WriteNote, Transfer}
    consumer = rig.subscribe()
    rig.publish("x")
    rig.finish(*rig.held(WriteNote))
    at = rig.wall
    consumer.nack(1, dead=True)
    assert all(not state.leaving for state in states(rig))
    rig.finish(*rig.held(WriteNote))
    assert due(rig) == at
    assert any(state.leaving for state in states(rig))


def states(rig: Rig) -> list[BucketState]:
    rows = [rig.tables.settlements(rig.key, bucket.key) for bucket in rig.buckets()]
    return [fold(found) for found in rows]


def part(rig: Rig) -> int | None:
    rig.shard.part(rig.now)
    rig.run()
    return due(rig)


def test_a_shard_that_closes_notes_what_is_left() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("x", expires_at=rig.wall + 5_000)
    rig.publish("y", expires_at=rig.wall + 9_000)
    consumer.ack(1)
    assert due(rig) == rig.wall + 5_000
    assert part(rig) == rig.wall + 9_000
    consumer.ack(2)
    rig.wait(20 * MINUTE)
    assert part(rig) is None


def test_a_note_that_is_far_too_early_is_left_alone_until_then() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("x")
    noted = due(rig)
    consumer.ack(1)
    rig.wait(20 * MINUTE)
    assert part(rig) == noted is not None


SMALL = Bounds(window_messages=4, page_messages=2)


def filled(rig: Rig) -> int:
    """More than the window takes, and behind it what expires in ten minutes; when that is."""
    for _ in range(20):
        rig.publish("x")
    expires_at = rig.wall + 10 * MINUTE
    rig.publish("y", expires_at=expires_at)
    assert due(rig) == expires_at
    return expires_at


@pytest.mark.parametrize("crash", [False, True])
def test_what_expires_in_the_backlog_stays_noted(crash: bool) -> None:
    rig = Rig(bounds=SMALL)
    expires_at = filled(rig)
    if crash:
        rig.crash()
    assert part(rig) == expires_at


def test_a_shard_that_closes_before_its_first_page_leaves_the_note_alone() -> None:
    rig = Rig()
    expires_at = rig.wall + 10 * MINUTE
    rig.publish("y", expires_at=expires_at)
    rig.hold = {Page}
    rig.crash()
    assert part(rig) == expires_at
    rig.now += 11 * MINUTE
    assert part(rig) == expires_at, "it is still being read"


def test_what_could_not_be_looked_at_in_time_is_due_within_the_hour() -> None:
    rig = Rig(bounds=SMALL)
    filled(rig)
    rig.wait(11 * MINUTE)
    assert part(rig) == rig.wall + 60 * MINUTE
    rig.wait(30 * MINUTE)
    noted = due(rig)
    assert part(rig) == noted
    rig.wait(31 * MINUTE)
    assert part(rig) == rig.wall + 60 * MINUTE


def test_without_a_note_the_backlog_is_due_within_the_hour() -> None:
    rig = Rig(bounds=SMALL)
    filled(rig)
    rig.tables._shards[rig.key].note = None
    rig.crash()
    assert part(rig) == rig.wall + 60 * MINUTE


def test_a_far_delay_that_expires_stays_noted() -> None:
    rig = Rig()
    expires_at = rig.wall + 30 * MINUTE
    rig.publish("x", not_before=rig.wall + 20 * MINUTE, expires_at=expires_at)
    assert rig.shard.window.delays.far == 1
    assert part(rig) == expires_at
    rig.wait(20 * MINUTE - 10_000)
    assert rig.shard.window.delays.far == 0
    assert part(rig) == expires_at, "its position came from the index"


def test_a_key_that_was_passed_over_and_expires_stays_noted() -> None:
    rig = Rig(bounds=Bounds(key_positions=1))
    rig.subscribe(1)
    expires_at = rig.wall + 30 * MINUTE
    for number in range(5):
        rig.publish("x", key="k", expires_at=expires_at - number)
    assert rig.shard.window.keys.passed > 0
    assert part(rig) == expires_at - 4


def test_what_is_being_stored_while_the_shard_closes_stays_noted() -> None:
    rig = Rig()
    rig.hold = {Append}
    expires_at = rig.wall + 10 * MINUTE
    rig.publish("x", expires_at=expires_at)
    assert part(rig) == expires_at
    rig.finish()
    assert part(rig) == expires_at


def test_an_earlier_time_is_always_noted() -> None:
    rig = Rig()
    rig.publish("x")
    rig.wait(20 * MINUTE)
    noted = due(rig)
    assert noted is not None
    day = 24 * 60 * MINUTE
    rig.shard.configure(QueueConfig(retention_ms=day), None)
    assert part(rig) == noted - 13 * day


def test_a_shorter_retention_is_noted_while_the_shard_is_open() -> None:
    rig = Rig()
    rig.publish("x")
    rig.wait(20 * MINUTE)
    noted = due(rig)
    assert noted is not None
    day = 24 * 60 * MINUTE
    rig.configure(retention_ms=day)
    rig.tick()
    assert due(rig) == noted - 13 * day


def test_a_shard_without_a_note_gets_one_when_it_closes() -> None:
    rig = Rig()
    rig.publish("x")
    rig.tables._shards[rig.key].note = None
    rig.crash()
    assert part(rig) == rig.wall + rig.config.retention_ms


def test_what_leaves_while_the_shard_closes_is_due() -> None:
    rig = Rig()
    rig.refusing = True
    consumer = rig.subscribe()
    rig.publish("x")
    consumer.nack(1, dead=True)
    at = rig.wall
    rig.wait(5_000)
    assert part(rig) == rig.wall == at + 5_000


def test_a_new_owner_takes_the_note_over() -> None:
    rig = Rig()
    rig.publish("x", expires_at=rig.wall + 500)
    rig.crash()
    rig.publish("y", expires_at=rig.wall + 600)
    note = rig.tables.outline(rig.key).note
    assert note is not None
    assert note.owner == 1


def test_a_predecessor_s_late_note_does_not_replace_what_its_successor_repeats() -> None:
    rig = Rig()
    expires_at = rig.wall + 10 * MINUTE
    rig.publish("x", expires_at=expires_at)
    rig.hold = {WriteNote}
    rig.shard.notes.part(expires_at + MINUTE, rig.now, rig.wall)
    rig.run()
    (late,) = rig.held(WriteNote)
    read = rig.tables.outline(rig.key).note
    assert read is not None
    rig.hold = set()
    rig.crash()
    rig.tables._shards[rig.key].note = late.note  # it landed when the other one was read
    rig.shard.notes.repeat(read)
    rig.run()
    assert due(rig) == expires_at
    rig.publish("y", expires_at=expires_at - 1)
    note = rig.tables.outline(rig.key).note
    assert note is not None
    assert (note.owner, note.n, note.due) == (rig.epoch, 1, expires_at - 1)
