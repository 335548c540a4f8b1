"""Redriving: waiting messages leave for other queues, wherever they stand."""

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Page, Settle, Transfer
from pushlane_storage.message import Dead
from tests.dispatcher.core.harness import LANE, Rig
from tests.redriving import redrive_first


def redrive(rig: Rig, *seqs: int, to: str = "one") -> int:
    sent = rig.shard.redrive(LANE, dict.fromkeys(seqs, to), rig.now)
    rig.run()
    return sent


def moved(rig: Rig) -> list[str]:
    return [transfer.message.body.decode() for transfer in rig.transfers]


def test_dead_letters_go_where_they_are_told() -> None:
    rig = Rig(dead_letter=None)
    dead = Dead("max_attempts", "one", "id", 5, None, 0)
    first, second, _ = rig.publish("a", "b", "c", dead=dead).seqs
    assert rig.shard.redrive(LANE, {first: "one", second: "two"}, rig.now) == 2
    rig.run()
    sent = [(transfer.to, transfer.message.body.decode()) for transfer in rig.transfers]
    assert sent == [("one", "a"), ("two", "b")]
    assert all(transfer.message.dead is None for transfer in rig.transfers)
    assert rig.subscribe().bodies == ["c"]
    assert rig.stats.stored == 1
    assert "redriven" in rig.explain(first).why


def test_what_somebody_has_and_what_is_not_there_stays() -> None:
    rig = Rig()
    held, delayed = rig.publish("a").seqs[0], 0
    consumer = rig.subscribe(1)
    delayed = rig.publish("later", not_before=rig.wall + 1_000).seqs[0]
    assert redrive(rig, held, delayed, delayed + 1) == 0
    consumer.ack(1)
    assert redrive(rig, held) == 0
    assert moved(rig) == []


def test_what_is_behind_the_window_leaves_and_is_not_found_again() -> None:
    rig = Rig(bounds=Bounds(window_messages=1, segment_messages=1))
    seqs = rig.publish("a", "b", "c", "d").seqs
    assert redrive(rig, seqs[1], seqs[3]) == 2
    assert moved(rig) == ["b", "d"]
    consumer = rig.subscribe(10)
    assert consumer.bodies == ["a", "c"]
    consumer.ack(1, 2)
    assert rig.stats.stored == 0


def test_a_page_that_is_being_read_does_not_bring_it_back() -> None:
    rig = Rig(bounds=Bounds(window_messages=2, segment_messages=1))
    seqs = rig.publish("a", "b", "c", "d").seqs
    rig.hold = {Page, Transfer}
    consumer = rig.subscribe(2)
    consumer.ack(1, 2)
    assert redrive(rig, seqs[2]) == 1
    rig.hold = set()
    rig.finish()
    assert moved(rig) == ["c"]
    consumer.credit(10)
    assert consumer.bodies == ["a", "b", "d"]


def test_it_leaves_with_its_attempts() -> None:
    rig = Rig()
    (seq,) = rig.publish("a").seqs
    rig.subscribe(1).nack(1, delay_ms=1)
    rig.hold = {Page}
    rig.crash()
    rig.now += 1_000
    rig.hold = {Page, Settle}
    assert redrive(rig, seq) == 1
    assert rig.explain(seq).attempts == 1
    rig.hold = set()
    rig.finish()
    assert moved(rig) == ["a"]


def test_blocked_messages_leave_too_and_in_order() -> None:
    rig = Rig()
    seqs = rig.publish("a1", "a2", "a3", key="a").seqs
    assert redrive(rig, *seqs) == 3
    assert moved(rig) == ["a1", "a2", "a3"]
    rig.publish("a4", key="a")
    assert rig.subscribe().bodies == ["a4"], "nobody holds the key any more"


def test_a_blocked_message_leaves_while_the_first_of_its_key_is_out() -> None:
    rig = Rig()
    seqs = rig.publish("a1", "a2", "a3", key="a").seqs
    consumer = rig.subscribe(5)
    assert redrive(rig, seqs[1]) == 1
    assert consumer.bodies == ["a1"]
    consumer.ack(1)
    assert consumer.bodies == ["a1", "a3"]
    assert moved(rig) == ["a2"]


def test_a_blocked_message_keeps_its_place_until_its_departure_is_durable() -> None:
    """Else the next one could go out, and a crash bring this one back behind it."""
    rig = Rig()
    seqs = rig.publish("a1", "a2", "a3", "a4", key="a").seqs
    consumer = rig.subscribe(5)
    rig.hold = {Settle}
    consumer.ack(1)
    assert redrive(rig, seqs[1], seqs[2]) == 2
    rig.finish(*rig.held(Settle))
    assert consumer.bodies == ["a1"], "it is the first of its key now, and leaves"
    rig.hold = set()
    rig.finish()
    assert consumer.bodies == ["a1", "a4"]
    assert moved(rig) == ["a2", "a3"]


def test_nothing_comes_in_behind_a_departure_that_is_not_durable() -> None:
    """What stands behind the window has a key that nobody knows yet."""
    rig = Rig()
    seqs = rig.publish("a1", "a2", key="a").seqs
    rig.hold = {Page}
    rig.crash()
    rig.hold = {Settle}
    assert redrive(rig, seqs[0]) == 1  # the page comes while its row is being written
    consumer = rig.subscribe()
    assert consumer.bodies == []
    rig.publish("a3", key="a")
    assert consumer.bodies == []
    rig.hold = set()
    rig.finish()
    assert moved(rig) == ["a1"]
    assert consumer.bodies == ["a2"]
    consumer.ack(1)
    assert consumer.bodies == ["a2", "a3"]


def test_nothing_is_found_behind_a_departure_that_is_not_durable() -> None:
    rig = Rig(bounds=Bounds(key_positions=1))
    seqs = rig.publish("a1", "a2", "a3", "a4", key="a").seqs
    consumer = rig.subscribe()
    rig.hold = {Page}
    consumer.ack(1)
    consumer.ack(2)
    (page,) = rig.held(Page)
    rig.hold = {Page, Settle}
    assert redrive(rig, seqs[2]) == 1
    rig.finish(page)
    assert consumer.bodies == ["a1", "a2"]
    rig.hold = set()
    rig.finish()
    assert moved(rig) == ["a3"]
    assert consumer.bodies == ["a1", "a2", "a4"]


def test_nothing_comes_in_before_it_is_durable_that_those_behind_the_window_left() -> None:
    rig = Rig(bounds=Bounds(window_messages=2, segment_messages=1))
    seqs = rig.publish("a", "b", "c", "d").seqs
    rig.hold = {Page, Settle}
    consumer = rig.subscribe(2)
    consumer.ack(1, 2)
    rig.finish(*rig.held(Settle))
    assert redrive(rig, seqs[2]) == 1
    rig.finish(*rig.held(Page))
    assert consumer.bodies == ["a", "b"], "the next one may have its key"
    rig.hold = set()
    rig.finish()
    assert consumer.bodies == ["a", "b", "d"]


def test_a_crash_on_the_way_out_loses_nothing() -> None:
    rig = Rig(bounds=Bounds(window_messages=1, segment_messages=1))
    seqs = rig.publish("a", "b", "c").seqs
    rig.hold = {Transfer}
    assert redrive(rig, seqs[2]) == 1
    rig.hold = set()
    rig.crash()
    rig.run()
    assert moved(rig) == ["c"]
    assert rig.subscribe().bodies == ["a", "b"]


def test_the_first_in_line() -> None:
    rig = Rig()
    rig.publish("low", "lower")
    rig.publish("high", lane=9)
    assert redrive_first(rig.shard, 2, "one", rig.now) == 2
    rig.run()
    assert moved(rig) == ["high", "low"]
