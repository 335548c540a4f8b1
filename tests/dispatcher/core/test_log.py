"""The log: one flush at a time, everything durable before it counts, and a fold that agrees."""

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Append, Settle
from pushlane_storage.bucket import CONTROL
from pushlane_storage.queue import QueueConfig
from pushlane_storage.settlement import Gone, Settlement, fold
from tests.dispatcher.core.harness import LANE, Rig


def rows(rig: Rig) -> list[Settlement]:
    """All settlement rows of undropped buckets, in order."""
    keys = [bucket.key for bucket in rig.buckets()] + [CONTROL]
    found = [row for key in keys for row in rig.tables.settlements(rig.key, key)]
    return sorted(found, key=lambda row: (row.owner, row.n))


def test_acks_in_a_row_are_one_range() -> None:
    rig = Rig()
    consumer = rig.subscribe(20)
    ticket = rig.publish(*"abcdef")
    first = ticket.seqs[0]
    consumer.ack(1, 2, 3)
    consumer.ack(6, 5)
    assert [row.acked for row in rows(rig)] == [
        [(first, first + 2)],
        [(first + 5, first + 5), (first + 4, first + 4)],
    ]


def test_decisions_gather_while_a_flush_is_under_way() -> None:
    rig = Rig()
    consumer = rig.subscribe(20)
    rig.publish(*"abcdef")
    rig.hold = {Settle}
    consumer.ack(1)
    consumer.ack(2)
    consumer.ack(3)
    consumer.nack(4)
    assert len(rig.held(Settle)) == 1
    rig.finish(*rig.held(Settle))
    (second,) = rig.held(Settle)
    (row,) = second.rows
    assert (len(row.acked), len(row.voids), row.n) == (1, 1, 1)


# Patience


def test_an_ack_that_nobody_waits_for_goes_with_the_next_publish() -> None:
    rig = Rig()
    consumer = rig.subscribe(20)
    rig.publish("a", "b")
    consumer.ack(1, silent=True)
    assert rows(rig) == []
    rig.hold = {Append, Settle}
    rig.publish("c")
    assert [type(effect) for effect in rig.waiting] == [Append, Settle]


def test_its_permit_comes_back_at_once() -> None:
    rig = Rig()
    consumer = rig.subscribe(1)
    rig.publish("a", "b")
    consumer.ack(1, silent=True)
    assert rows(rig) == []
    assert consumer.bodies == ["a", "b"]


def test_it_goes_alone_when_its_patience_ends() -> None:
    rig = Rig()
    consumer = rig.subscribe(20)
    rig.publish("a", "b")
    consumer.ack(1, silent=True)
    assert rig.shard.wake_at() == rig.now + rig.bounds.patience_ms
    rig.wait(rig.bounds.patience_ms - 1)
    consumer.ack(2, silent=True)
    assert rows(rig) == []
    rig.wait(1)
    (row,) = rows(rig)
    assert row.acked[0][1] - row.acked[0][0] == 1
    assert rig.shard.log.idle
    assert rig.shard.log.next.patient_until is None


def test_what_waits_is_bounded() -> None:
    rig = Rig(bounds=Bounds(patience_messages=3))
    consumer = rig.subscribe(20)
    rig.publish(*"abcd")
    consumer.ack(1, 2, silent=True)
    assert rows(rig) == []
    consumer.ack(3, silent=True)
    assert len(rows(rig)) == 1


def test_an_answer_that_is_waited_for_takes_it_along() -> None:
    rig = Rig()
    consumer = rig.subscribe(20)
    rig.publish("a", "b", "c")
    consumer.ack(1, silent=True)
    consumer.ack(2)
    assert len(rows(rig)) == 1
    consumer.ack(3, silent=True)
    consumer.ack(3)  # asks for something that was decided, but is not durable
    assert len(rows(rig)) == 2


def test_a_decision_that_something_waits_for_takes_it_along() -> None:
    rig = Rig()
    consumer = rig.subscribe(20)
    rig.publish("a", "b")
    consumer.ack(1, silent=True)
    consumer.nack(2)
    (row,) = rows(rig)
    assert (len(row.acked), len(row.voids)) == (1, 1)


def test_keys_have_no_patience() -> None:
    rig = Rig()
    consumer = rig.subscribe(20)
    rig.publish("a", "b", key="k")
    consumer.ack(1, silent=True)
    assert consumer.bodies == ["a", "b"]


# Rows


def test_numbers_are_dense_from_zero() -> None:
    rig = Rig()
    consumer = rig.subscribe(20)
    rig.publish(*"abcdef")
    for n in range(1, 7):
        consumer.ack(n)
    assert [(row.owner, row.n) for row in rows(rig)] == [(1, n) for n in range(6)]
    assert rig.shard.log.idle


def test_a_flush_names_all_its_buckets_in_each_row() -> None:
    rig = Rig(bounds=Bounds(bucket_messages=2, segment_messages=2))
    consumer = rig.subscribe(20)
    ticket = rig.publish(*"abcdef")
    rig.hold = {Settle}
    consumer.ack(1)
    consumer.ack(2, 3, 4, 5, 6)
    rig.finish(*rig.held(Settle))
    (settle,) = rig.held(Settle)
    keys = [row.bucket for row in settle.rows]
    assert len(set(keys)) == 3
    assert all(row.parts == keys for row in settle.rows)
    second = ticket.seqs[1]
    assert [row.acked for row in settle.rows] == [
        [(second, second)],
        [(second + 1, second + 2)],
        [(second + 3, second + 4)],
    ]


def test_rows_of_several_lanes_go_together() -> None:
    rig = Rig()
    consumer = rig.subscribe(20)
    rig.publish("a", lane=9)
    rig.publish("b", lane=1)
    consumer.ack(1, 2)
    assert {row.n for row in rows(rig)} == {0}
    assert sorted(row.bucket.lane for row in rows(rig)) == [1, 9]


def test_answers_wait_for_everything_decided_before_them() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a", "b")
    rig.hold = {Settle}
    first = consumer.ack(1)
    second = consumer.ack(2)
    unknown = consumer.ack(99)
    rig.finish(*rig.held(Settle))
    assert rig.done == [first]
    rig.finish(*rig.held(Settle))
    assert rig.done == [first, second, unknown]
    assert consumer.ack(99) in rig.done, "with nothing under way the answer is at once"


def test_who_waits_for_the_flush_under_way_only_is_answered_with_it() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a")
    rig.hold = {Settle}
    first = consumer.ack(1)
    repeat = consumer.ack(1)
    rig.finish(*rig.held(Settle))
    assert rig.done == [first, repeat]
    assert rig.held(Settle) == []


def test_ends_in_a_row_for_one_cause_are_one_range() -> None:
    rig = Rig(dead_letter=None)
    ticket = rig.publish(*"abc", expires_at=rig.wall + 100)
    rig.publish("keep")
    rig.publish("d", expires_at=rig.wall + 100)
    rig.wait(100)
    first = ticket.seqs[0]
    assert rows(rig)[0].gone == [
        Gone("expired", first, first + 2),
        Gone("expired", first + 4, first + 4),
    ]


def test_a_row_now_and_then_carries_the_whole_state() -> None:
    rig = Rig(bounds=Bounds(checkpoint_rows=3))
    consumer = rig.subscribe(100)
    rig.publish(*[str(number) for number in range(20)])
    for n in range(1, 10):
        if n % 3:
            consumer.ack(n)
        else:
            consumer.nack(n, delay_ms=60_000)
    found = rows(rig)
    assert [row.checkpoint is not None for row in found] == [False, False, True] * 3
    state = rig.shard.window.lanes[LANE].buckets[0].state
    last = max(index for index, row in enumerate(found) if row.checkpoint is not None)
    short = fold(found[last:])
    assert short.settled == state.settled == fold(found).settled
    assert short.voids == state.voids == fold(found).voids


def test_a_new_owner_starts_from_the_checkpoint() -> None:
    rig = Rig(bounds=Bounds(checkpoint_rows=2))
    consumer = rig.subscribe(100)
    rig.publish(*"abcdef")
    consumer.nack(1, delay_ms=60_000)
    consumer.nack(2, dead=True)
    consumer.ack(3)
    consumer.ack(4)
    rig.crash()
    assert rig.subscribe().bodies == ["e", "f"]
    assert (rig.stats.retrying, rig.stats.stored) == (1, 3)


# Purges


def test_a_purge_is_one_row() -> None:
    rig = Rig(bounds=Bounds(bucket_messages=1))
    rig.publish(*"abc")
    rig.publish("d", lane=9)
    ticket = rig.purge()
    (row,) = rows(rig)
    assert (row.bucket, row.parts) == (CONTROL, [CONTROL])
    assert [purge.lane for purge in row.purges] == [9, LANE]
    assert rig.done == [ticket]
    assert (ticket.purged, rig.stats.purged, rig.stats.stored) == (4, 4, 0)
    assert rig.shard.verdicts.endings == {"purged": 4}


def test_a_purge_says_how_many_went() -> None:
    rig = Rig(bounds=Bounds(window_messages=2, page_messages=1, segment_messages=1))
    consumer = rig.subscribe(1)
    rig.publish(*"abcdefgh")
    assert consumer.bodies == ["a"]
    assert rig.purge().purged == 7, "the backlog, too, and not what somebody holds"
    assert rig.purge().purged == 0


def test_a_purge_goes_together_with_other_decisions() -> None:
    rig = Rig()
    consumer = rig.subscribe(2)
    rig.publish(*"abcd")
    rig.hold = {Settle}
    consumer.ack(1)
    consumer.ack(2)
    consumer.credit(0)
    rig.purge()
    rig.hold = set()
    rig.finish()
    last = [row for row in rows(rig) if row.n == 1]
    assert len(last) == 2
    assert last[0].parts == last[1].parts
    assert rig.shard.log.idle


def test_a_purge_behind_another_one() -> None:
    rig = Rig(QueueConfig())
    rig.publish(*"ab")
    rig.hold = {Settle}
    first = rig.purge()
    rig.publish(*"cd")
    second = rig.purge()
    third = rig.purge()
    rig.finish(*rig.held(Settle))
    assert rig.done == [first]
    rig.publish("e")
    rig.hold = set()
    rig.finish()
    assert rig.done == [first, second, third]
    assert (first.purged, second.purged, third.purged, rig.stats.stored) == (2, 2, 2, 1)
    assert rig.subscribe().bodies == ["e"]


def test_a_purge_of_nothing_is_answered() -> None:
    rig = Rig()
    assert rig.purge() in rig.done
