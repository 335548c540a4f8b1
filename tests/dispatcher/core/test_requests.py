"""Requests without a session: their subscriptions live for one answer."""

from __future__ import annotations

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import SettleTicket
from pushlane_dispatcher.core.subscription import ANYBODY, FIRST
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.consumer import Consumer, flat
from tests.dispatcher.core.harness import Rig
from tests.dispatcher.core.test_hunger import said


def receive(rig: Rig, most: int = 10, *, shared: bool = False) -> Consumer:
    return rig.subscribe(most, explicit=True, session="http:me", shared=shared)


def answered(consumer: Consumer) -> None:
    """Its answer is out: it has what it got, and gets no more."""
    consumer.start(*consumer.numbers)
    consumer.unsubscribe()


def repeat(rig: Rig, consumer: Consumer, *numbers: int) -> SettleTicket:
    """An ack of what no subscription has any more."""
    ticket = SettleTicket()
    rig.shard.settle_lost(consumer.sub.prefix, consumer.runs(numbers), ticket, rig.now)
    rig.run()
    return ticket


# What it is told


def test_that_there_is_nothing_and_that_there_is_nothing_more() -> None:
    rig = Rig()
    one = receive(rig)
    assert said(rig) == [(one, False)]
    rig.wait(60_000)
    assert said(rig) == [], "once"
    rig.publish("a")
    assert (one.take(), said(rig)) == (["a"], [(one, False)])


def test_nothing_while_there_is_more_than_it_may_have() -> None:
    rig = Rig()
    rig.publish("a", "b")
    one = receive(rig, 1)
    assert (one.take(), said(rig)) == (["a"], [])
    one.credit(2)
    assert (one.take(), said(rig)) == (["b"], [(one, False)])
    one.credit(1)
    assert said(rig) == [], "who gets less has nothing to ask"


def test_nothing_until_what_is_stored_was_read() -> None:
    rig = Rig(bounds=Bounds(window_messages=2, page_messages=2))
    for body in "abcd":
        rig.publish(body)
    assert [(lane.ready, lane.backlogged) for lane in rig.shard.window.order] == [(2, True)]
    one = receive(rig)
    assert (one.bodies, said(rig)) == (["a", "b", "c", "d"], [(one, False)])


def test_of_a_paused_queue() -> None:
    rig = Rig(QueueConfig(paused=True))
    rig.publish("a")
    one = receive(rig)
    assert (one.take(), said(rig)) == ([], [(one, False)])


def test_who_shares_its_credit_is_told_again_of_the_next_message() -> None:
    rig = Rig()
    rig.publish("a", "b")
    one = receive(rig, 2, shared=True)
    one.credit(0)
    rig.publish("c")
    assert said(rig) == [(one, False), (one, True)]
    rig.purge()
    one.credit(1)
    assert said(rig) == [(one, False)], "that is no permit: it has two already"
    rig.publish("d")
    assert said(rig) == [(one, True)]
    one.credit(3)
    assert one.take() == ["a", "b", "d"]


def test_who_got_a_permit_for_nothing_is_told() -> None:
    rig = Rig()
    one = receive(rig, 1, shared=True)
    one.credit(0)
    said(rig)
    rig.publish("a")
    rig.purge()
    assert said(rig) == [(one, True)]
    one.credit(1)
    assert (one, False) in said(rig)
    one.credit(0)
    rig.publish("b")
    assert said(rig) == [(one, True)]


# How it ends


def test_with_its_last_lease() -> None:
    rig = Rig()
    rig.publish("a", "b")
    one = receive(rig)
    answered(one)
    assert one.ack(1).lost == []
    assert rig.stats.subscriptions == 1
    assert one.ack(2).lost == []
    assert rig.stats.subscriptions == 0


def test_with_a_lease_that_runs_out() -> None:
    rig = Rig()
    rig.publish("a")
    one = receive(rig)
    answered(one)
    rig.wait(30_001)
    assert (rig.stats.subscriptions, rig.stats.leased) == (0, 0)


def test_at_once_when_nothing_was_in_its_answer() -> None:
    rig = Rig()
    rig.publish("a")
    one = receive(rig)
    one.unsubscribe()
    assert (rig.stats.subscriptions, rig.stats.ready) == (0, 1)


def test_not_before_its_answer_is_out() -> None:
    rig = Rig()
    rig.publish("a")
    one = receive(rig)
    one.ack(1)
    assert rig.stats.subscriptions == 1
    one.unsubscribe()
    assert rig.stats.subscriptions == 0


# Who may settle, and what is remembered


def test_anybody_with_a_receipt() -> None:
    rig = Rig()
    rig.publish("a", "b")
    one = receive(rig)
    assert one.sub.generation == ANYBODY
    assert flat(one.ack(1, generation=FIRST).lost) == [1]
    assert one.ack(1, generation=ANYBODY).lost == []


def test_a_repeat_is_a_duplicate_also_when_it_is_over() -> None:
    rig = Rig()
    rig.publish("a", "b")
    one = receive(rig)
    answered(one)
    one.ack(1)
    assert flat(one.ack(1).duplicate) == [1]
    one.nack(2, delay_ms=60_000)
    assert rig.stats.subscriptions == 0
    again = repeat(rig, one, 1, 2)
    assert (flat(again.duplicate), flat(again.lost)) == ([1], [2])
    rig.wait(30_001)
    assert flat(repeat(rig, one, 1).lost) == [1]


def test_one_that_a_crash_cut_off_gets_nothing_more_and_ends_with_its_last_lease() -> None:
    rig = Rig(cached=True)
    rig.publish("a", "b")
    one = receive(rig)
    answered(one)
    rig.crash()
    again = rig.adopt(rig.shard.consumers.subscriptions[one.sub.prefix])
    assert again.ack(1).lost == []
    assert again.ack(2).lost == []
    assert rig.stats.subscriptions == 0
    assert flat(repeat(rig, one, 1, 2).duplicate) == [1, 2]


def test_a_session_that_a_crash_cut_off_is_remembered_likewise() -> None:
    rig = Rig(cached=True)
    one = rig.subscribe(lease_ms=5_000)
    rig.publish("a")
    rig.crash()
    again = rig.adopt(rig.shard.consumers.subscriptions[one.sub.prefix])
    again.ack(1)
    rig.wait(10_000)
    assert rig.stats.subscriptions == 0
    assert flat(repeat(rig, one, 1).duplicate) == [1]
