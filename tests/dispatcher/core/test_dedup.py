"""Idempotent publish: one id, one message, also across a change of owner."""

import pytest

from pushlane.wire.errors import Throttled, Unavailable
from pushlane_dispatcher.core.bounds import TRANSFER_WINDOW_MS, Bounds
from pushlane_dispatcher.core.dedup import Dedup
from pushlane_dispatcher.core.effects import Append, PublishTicket
from pushlane_dispatcher.core.numbers import SOMEWHERE, Place
from pushlane_storage.message import TRANSFER, Message
from pushlane_storage.queue import QueueConfig
from pushlane_storage.segment import DedupMark
from tests.dispatcher.core.harness import LANE, Rig


def duplicates(ticket: PublishTicket) -> dict[int, tuple[int, int] | None]:
    assert ticket.failed == {}
    return ticket.duplicates


# Dedup ids


def test_the_same_id_stores_one_message_and_answers_with_the_first_one() -> None:
    rig = Rig()
    first = rig.publish("a", dedup="d")
    repeat = rig.publish("again", dedup="d")
    assert duplicates(repeat) == {0: (LANE, first.seqs[0])}
    assert repeat.seqs == first.seqs
    assert rig.published == [first, repeat]
    assert rig.stats.stored == 1


def test_an_id_counts_for_its_key_only() -> None:
    rig = Rig()
    rig.publish("a", dedup="d", key="k")
    other = rig.publish("b", dedup="d", key="l")
    plain = rig.publish("c", dedup="d")
    assert duplicates(other) == duplicates(plain) == {}
    assert rig.stats.stored == 3


def test_the_same_id_inside_one_frame_is_a_duplicate() -> None:
    rig = Rig()
    ticket = rig.publish("a", "b", dedup="d")
    assert duplicates(ticket) == {1: (LANE, ticket.seqs[0])}
    assert ticket.seqs[0] == ticket.seqs[1]
    assert rig.published == [ticket]


def test_a_duplicate_is_found_in_another_lane() -> None:
    rig = Rig()
    first = rig.publish("a", lane=7, dedup="d")
    assert duplicates(rig.publish("b", dedup="d")) == {0: (7, first.seqs[0])}


def test_a_repeat_waits_for_the_outcome_of_the_first() -> None:
    rig = Rig()
    rig.hold = {Append}
    first = rig.publish("a", dedup="d")
    repeats = [rig.publish("a", dedup="d") for _ in range(2)]
    assert rig.published == []
    rig.finish()
    assert rig.published == [*repeats, first]
    for repeat in repeats:
        assert duplicates(repeat) == {0: (LANE, first.seqs[0])}
        assert repeat.seqs == first.seqs


def test_a_repeat_of_a_refused_first_fails_with_it_and_may_be_repeated() -> None:
    rig = Rig()
    rig.hold = {Append}
    first = rig.publish("a", dedup="d")
    repeat = rig.publish("a", dedup="d")
    assert rig.refuse(rig.held(Append)[0])
    assert rig.published == [repeat, first]
    for ticket in (first, repeat):
        assert isinstance(ticket.failed[0], Unavailable)
        assert ticket.seqs == [-1]
    rig.hold = set()
    third = rig.publish("a", dedup="d")
    assert duplicates(third) == {}
    assert rig.stats.stored == 1


def test_an_id_is_forgotten_after_the_window() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=1_000))
    first = rig.publish("a", dedup="d")
    rig.wait(999)
    assert duplicates(rig.publish("b", dedup="d")) == {0: (LANE, first.seqs[0])}
    rig.wait(1)
    assert duplicates(rig.publish("c", dedup="d")) == {}
    assert duplicates(rig.publish("d", dedup="d")) != {}, "the second one counts from now on"


def test_a_repeat_does_not_make_the_window_longer() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=1_000))
    rig.publish("a", dedup="d")
    rig.wait(900)
    rig.publish("a", dedup="d")
    rig.wait(100)
    assert duplicates(rig.publish("a", dedup="d")) == {}


def test_a_refused_first_does_not_keep_other_ids_beyond_their_window() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=1_000))
    rig.hold = {Append}
    rig.publish("a", dedup="refused")
    rig.refuse(rig.held(Append)[0])
    rig.hold = set()
    rig.publish("b", dedup="d")
    rig.wait(1_000)
    assert duplicates(rig.publish("c", dedup="d")) == {}
    assert len(rig.shard.dedup.ids) == 1


def test_a_pending_id_outlives_its_window() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=1_000))
    rig.hold = {Append}
    first = rig.publish("a", dedup="d")
    rig.wait(5_000)
    repeat = rig.publish("b", dedup="d")
    rig.hold = set()
    rig.finish()
    assert duplicates(repeat) == {0: (LANE, first.seqs[0])}


def test_at_the_limit_new_ids_are_throttled_and_known_ones_answered() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=1_000), Bounds(dedup_ids=2))
    first = rig.publish("a", dedup="1")
    rig.publish("b", dedup="2")
    third = rig.publish("c", dedup="3")
    assert isinstance(third.failed[0], Throttled)
    assert third.failed[0].retry_ms
    assert duplicates(rig.publish("a", dedup="1")) == {0: (LANE, first.seqs[0])}
    assert rig.publish("no id").failed == {}
    rig.wait(1_000)
    assert rig.publish("c", dedup="3").failed == {}


def test_ids_of_transfers_are_remembered_for_a_day() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=1_000))
    first = rig.publish("a", dedup=TRANSFER + "x")
    rig.publish("b", dedup="d")
    rig.wait(1_000)
    assert duplicates(rig.publish("b", dedup="d")) == {}
    assert duplicates(rig.publish("a", dedup=TRANSFER + "x")) == {0: (LANE, first.seqs[0])}
    rig.wait(TRANSFER_WINDOW_MS - 1_000)
    assert duplicates(rig.publish("a", dedup=TRANSFER + "x")) == {}


def test_a_window_that_is_configured_anew_holds_for_new_ids() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=1_000))
    rig.configure(dedup_window_ms=2_000)
    rig.publish("a", dedup="d")
    rig.wait(1_500)
    assert duplicates(rig.publish("b", dedup="d")) != {}


def test_a_wall_clock_that_steps_forgets_nothing_early() -> None:
    rig = Rig()
    rig.publish("a", dedup="d")
    rig.offset += 10 * 86_400_000
    rig.doubted = True
    rig.tick()
    assert duplicates(rig.publish("a", dedup="d")) != {}


# Producers' sequences


def test_the_same_producer_sequence_stores_one_message() -> None:
    rig = Rig()
    first = rig.publish("a", producer="p", producer_seq=5)
    assert duplicates(rig.publish("a", producer="p", producer_seq=5)) == {0: (LANE, first.seqs[0])}
    assert duplicates(rig.publish("b", producer="p", producer_seq=6)) == {}
    assert duplicates(rig.publish("c", producer="other", producer_seq=5)) == {}
    assert len(rig.shard.dedup.producers) == 2


def test_sequences_may_come_in_any_order_while_they_are_remembered() -> None:
    rig = Rig()
    rig.publish("b", producer="p", producer_seq=2)
    assert duplicates(rig.publish("a", producer="p", producer_seq=1)) == {}
    assert rig.stats.stored == 2


def test_a_message_with_both_is_known_by_each() -> None:
    rig = Rig()
    first = rig.publish("a", dedup="d", producer="p", producer_seq=1)
    where = {0: (LANE, first.seqs[0])}
    assert duplicates(rig.publish("a", dedup="d", producer="p", producer_seq=9)) == where
    assert duplicates(rig.publish("a", dedup="e", producer="p", producer_seq=1)) == where


def test_a_refused_sequence_may_be_repeated() -> None:
    rig = Rig()
    rig.hold = {Append}
    rig.publish("a", producer="p", producer_seq=1)
    rig.refuse(rig.held(Append)[0])
    rig.hold = set()
    assert duplicates(rig.publish("a", producer="p", producer_seq=1)) == {}


def test_a_refused_one_with_both_is_forgotten_by_each() -> None:
    rig = Rig()
    rig.hold = {Append}
    rig.publish("a", dedup="d", producer="p", producer_seq=1)
    rig.refuse(rig.held(Append)[0])
    rig.hold = set()
    assert duplicates(rig.publish("a", dedup="d")) == {}
    assert duplicates(rig.publish("a", producer="p", producer_seq=1)) == {}


def test_what_is_older_than_the_newest_is_a_duplicate_without_an_id() -> None:
    rig = Rig(bounds=Bounds(producer_seqs=4))
    for seq in range(1, 301):
        rig.publish("x", producer="p", producer_seq=seq)
    for seq in range(297, 301):
        assert duplicates(rig.publish("x", producer="p", producer_seq=seq)) != {0: None}
    old = rig.publish("x", producer="p", producer_seq=1)
    assert (duplicates(old), old.seqs) == ({0: None}, [-1])
    assert rig.published[-1] is old
    assert rig.stats.stored == 300


def test_of_a_batch_what_is_old_is_a_duplicate_and_what_is_new_is_stored() -> None:
    rig = Rig(bounds=Bounds(producer_seqs=4))
    rig.send(numbered(1, 300))
    rig.send(numbered(302, 1))
    ticket = rig.send([*numbered(2, 1), *numbered(300, 4)])
    found = duplicates(ticket)
    assert (found[0], found[1] is None, found[3] is None) == (None, False, False)
    assert [index in found for index in range(5)] == [True, True, False, True, False]
    assert rig.stats.stored == 303


def test_a_sequence_that_is_pending_is_not_forgotten() -> None:
    rig = Rig(bounds=Bounds(producer_seqs=2))
    rig.publish("x", producer="p", producer_seq=1)
    rig.hold = {Append}
    first = rig.publish("x", producer="p", producer_seq=2)
    for seq in range(3, 400):
        rig.publish("x", producer="p", producer_seq=seq)
    repeat = rig.publish("x", producer="p", producer_seq=2)
    rig.hold = set()
    rig.finish()
    assert duplicates(repeat) == {0: (LANE, first.seqs[0])}
    assert duplicates(rig.publish("x", producer="p", producer_seq=1)) == {0: None}


def test_at_the_limit_new_producers_are_throttled_until_old_ones_are_silent() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=1_000), Bounds(producers=2))
    rig.publish("a", producer="1", producer_seq=1)
    rig.publish("a", producer="2", producer_seq=1)
    third = rig.publish("a", producer="3", producer_seq=1)
    assert isinstance(third.failed[0], Throttled)
    rig.wait(500)
    rig.publish("b", producer="2", producer_seq=2)
    rig.wait(500)
    assert rig.publish("a", producer="3", producer_seq=1).failed == {}
    assert duplicates(rig.publish("b", producer="2", producer_seq=2)) != {}


def test_a_silent_producer_with_something_pending_is_kept() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=1_000), Bounds(producers=1))
    rig.hold = {Append}
    first = rig.publish("a", producer="1", producer_seq=1)
    rig.wait(5_000)
    assert isinstance(rig.publish("a", producer="2", producer_seq=1).failed[0], Throttled)
    repeat = rig.publish("a", producer="1", producer_seq=1)
    rig.hold = set()
    rig.finish()
    assert duplicates(repeat) == {0: (LANE, first.seqs[0])}


# Across owners


@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "drained"])
def test_a_new_owner_knows_the_ids(settled: bool) -> None:
    rig = Rig(QueueConfig(dedup_window_ms=1_000), Bounds(bucket_ms=10))
    consumer = rig.subscribe()
    first = rig.publish("a", dedup="d", producer="p", producer_seq=1)
    if settled:
        consumer.ack(1)
        rig.wait(10)
        assert rig.buckets()[0].drained
    rig.crash()
    where = {0: (LANE, first.seqs[0])}
    assert duplicates(rig.publish("a", dedup="d")) == where
    assert duplicates(rig.publish("a", producer="p", producer_seq=1)) == where
    rig.wait(1_000)
    assert duplicates(rig.publish("a", dedup="d")) == {}


def test_a_new_owner_counts_the_window_from_the_publish() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=1_000))
    rig.publish("a", dedup="old")
    rig.wait(600)
    rig.publish("b", dedup="young")
    rig.crash()
    rig.wait(400)
    assert duplicates(rig.publish("a", dedup="old")) == {}
    assert duplicates(rig.publish("b", dedup="young")) != {}


def test_a_new_owner_knows_the_transfers_of_a_day() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=1_000), Bounds(bucket_ms=10))
    consumer = rig.subscribe()
    first = rig.publish("a", dedup=TRANSFER + "x")
    consumer.ack(1)
    rig.wait(TRANSFER_WINDOW_MS - 1_000)
    rig.crash()
    rig.wait(999)
    again = rig.publish("a", dedup=TRANSFER + "x")
    assert duplicates(again) == {0: (LANE, first.seqs[0])}
    rig.wait(1)
    assert [drop.key.epoch for drop in rig.drops] == [1], "then its bucket goes too"


def test_an_id_that_was_used_again_after_its_window_names_the_newer_one() -> None:
    rig = Rig(QueueConfig(dedup_window_ms=1_000))
    rig.publish("a", dedup="d")
    rig.wait(1_000)
    second = rig.publish("b", dedup="d")
    rig.crash()
    assert duplicates(rig.publish("c", dedup="d")) == {0: (LANE, second.seqs[0])}


def stored_all(lane: int) -> int:
    return 1 << 62


def test_marks_may_be_restored_in_any_order() -> None:
    dedup = Dedup(Bounds(producer_seqs=2), 1_000, stored_all)
    for at, number in enumerate([5, 6, 7, 8, 1, 2, 3]):
        dedup.restore(DedupMark(number, at, producer="p", producer_seq=number), LANE, 0, 10)
    for number in range(1, 9):
        found = dedup.find(Message(b"", 0, producer="p", producer_seq=number), 0)
        assert isinstance(found, Place)
        assert found is SOMEWHERE or found.seq == number


def test_of_a_number_that_was_stored_twice_the_newer_place_counts() -> None:
    dedup = Dedup(Bounds(), 1_000, stored_all)
    dedup.restore(DedupMark(10, 1, producer="p", producer_seq=1, count=4), LANE, 0, 10)
    dedup.restore(DedupMark(20, 2, producer="p", producer_seq=2, count=2), LANE, 0, 10)
    places = [
        dedup.find(Message(b"", 0, producer="p", producer_seq=number), 0) for number in range(1, 5)
    ]
    assert places == [(LANE, 10), (LANE, 20), (LANE, 21), (LANE, 13)]


def test_a_floor_is_for_producers_that_are_known() -> None:
    dedup = Dedup(Bounds(), 1_000, stored_all)
    dedup.restore(DedupMark(10, 1, producer="p", producer_seq=7), LANE, 0, 10)
    dedup.producers.restore_floor("p", 5)
    dedup.producers.restore_floor("p", 3)
    dedup.producers.restore_floor("other", 5)
    assert dedup.find(Message(b"", 0, producer="p", producer_seq=5), 0) is SOMEWHERE
    assert dedup.find(Message(b"", 0, producer="p", producer_seq=6), 0) is None
    assert len(dedup.producers) == 1


def test_messages_without_ids_are_not_remembered() -> None:
    dedup = Dedup(Bounds(), 1_000, stored_all)
    message = Message(b"", 0)
    assert dedup.find(message, 0) is None
    assert dedup.stored(LANE, 1, 1) == []
    assert dedup.failed(message, LANE, 1) == []


# Batches that a producer numbered


NOW = Rig().wall


def numbered(low: int, count: int, producer: str = "p") -> list[Message]:
    return [Message(b"x", NOW, producer=producer, producer_seq=low + n) for n in range(count)]


def test_a_batch_is_stored_and_recognised_as_a_whole() -> None:
    rig = Rig()
    first = rig.send(numbered(1, 5))
    second = rig.send(numbered(6, 5))
    assert rig.stats.stored == 10
    repeat = rig.send(numbered(4, 4))
    where = [*first.seqs[3:], *second.seqs[:2]]
    assert duplicates(repeat) == {n: (LANE, seq) for n, seq in enumerate(where)}
    assert duplicates(rig.send(numbered(1, 5, "other"))) == {}
    assert rig.stats.stored == 15


def test_a_batch_that_is_cut_by_a_flush_waits_for_each_part() -> None:
    rig = Rig(bounds=Bounds(segment_messages=2, flushes=1))
    rig.hold = {Append}
    first = rig.send(numbered(1, 5))
    repeat = rig.send(numbered(1, 5))
    for left in (2, 1):
        rig.finish(rig.held(Append)[0])
        assert len(rig.published) == 0, f"{left} flushes are to come"
    rig.hold = set()
    rig.finish()
    assert rig.published == [repeat, first]
    assert repeat.seqs == first.seqs


def test_a_refused_batch_was_never_here() -> None:
    rig = Rig(bounds=Bounds(segment_messages=2, flushes=1))
    rig.send(numbered(1, 3))
    rig.hold = {Append}
    refused = rig.send(numbered(4, 5))
    rig.refuse(rig.held(Append)[0])
    assert len(refused.failed) == 5
    rig.hold = set()
    assert duplicates(rig.send(numbered(4, 5))) == {}
    assert rig.stats.stored == 8


def test_a_batch_with_a_gap_or_of_two_producers_is_looked_at_one_by_one() -> None:
    rig = Rig()
    rig.send([*numbered(1, 2), *numbered(4, 1)])
    rig.send([*numbered(5, 1), *numbered(5, 1, "other")])
    assert duplicates(rig.send(numbered(3, 1))) == {}
    assert len(duplicates(rig.send(numbered(1, 5)))) == 5
    assert rig.stats.stored == 6


def test_a_busy_producer_costs_one_run() -> None:
    rig = Rig(bounds=Bounds(producer_seqs=10))
    for low in range(1, 1_000, 50):
        rig.send(numbered(low, 50))
    numbers = rig.shard.dedup.producers.get("p")
    assert numbers is not None
    assert len(numbers) == 1
    assert numbers.count <= 10 + 256 + 50
    assert duplicates(rig.send(numbered(500, 1))) == {0: None}


def test_at_the_limit_a_new_producers_batch_is_throttled() -> None:
    rig = Rig(bounds=Bounds(producers=1))
    rig.send(numbered(1, 3))
    refused = rig.send(numbered(1, 3, "other"))
    assert {type(error) for error in refused.failed.values()} == {Throttled}


def test_a_new_owner_reads_no_more_marks_than_it_needs() -> None:
    rig = Rig(bounds=Bounds(bucket_messages=10, producer_seqs=20))
    for low in range(1, 201, 10):
        rig.send(numbered(low, 10))
    tickets = [rig.send(numbered(low, 10)) for low in (201, 211)]
    rig.crash()
    assert len(rig.read_marks) == 1, "of 22 buckets; the last one was open"
    repeat = rig.send(numbered(201, 20))
    assert repeat.seqs == [seq for ticket in tickets for seq in ticket.seqs]
    assert duplicates(rig.send(numbered(5, 1))) == {0: None}
    assert duplicates(rig.send(numbered(221, 5))) == {}


def test_numbers_of_a_forgotten_producer_are_passed() -> None:
    dedup = Dedup(Bounds(producers=1), 1_000, lambda _: 1 << 60)
    producers = dedup.producers
    producers.add("p", 1, 5, LANE, 100, 0)
    assert not producers.passed("p", 1)
    assert dedup.find(Message(b"x", 0, producer="q", producer_seq=1), 2_000) is None
    assert producers.passed("p", 5)
