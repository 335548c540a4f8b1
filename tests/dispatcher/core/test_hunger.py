"""Subscriptions that share their credit with other shards: a shard says when they starve."""

from __future__ import annotations

from pushlane_dispatcher.core.bounds import Bounds
from tests.dispatcher.core.consumer import Consumer
from tests.dispatcher.core.harness import Rig


def sharing(rig: Rig, credit: int = 0) -> Consumer:
    consumer = rig.subscribe(1, shared=True)
    consumer.credit(credit)
    return consumer


def said(rig: Rig) -> list[tuple[Consumer, bool]]:
    """What was said since the last look."""
    found, rig.hungry = rig.hungry, []
    return [(rig.consumers[effect.subscription], effect.hungry) for effect in found]


def test_who_has_no_permit_is_told_once_that_something_is_ready() -> None:
    rig = Rig()
    one = sharing(rig)
    assert said(rig) == []
    rig.publish("a")
    assert said(rig) == [(one, True)]
    rig.publish("b")
    rig.wait(10_000)
    assert said(rig) == []
    one.credit(1)
    assert one.take() == ["a"]
    assert said(rig) == [(one, True)], "there is more"
    one.ack(1)
    assert one.take() == ["b"]
    assert said(rig) == []


def test_nobody_is_told_while_somebody_else_can_take_it() -> None:
    rig = Rig()
    sharing(rig)
    rig.subscribe(1)
    rig.publish("a")
    assert said(rig) == []


def test_who_has_a_credit_of_its_own_is_not_told() -> None:
    rig = Rig()
    rig.subscribe(1).credit(0)
    rig.publish("a")
    assert said(rig) == []


def test_a_permit_that_finds_nothing_is_said() -> None:
    rig = Rig()
    one = sharing(rig)
    rig.publish("a")
    rig.purge()
    assert said(rig) == [(one, True)]
    one.credit(1)
    assert said(rig) == [(one, False)]
    rig.publish("b")
    assert (one.take(), said(rig)) == (["b"], [])


def test_no_more_are_told_than_there_are_messages_until_they_answer() -> None:
    rig = Rig()
    one, two, three = sharing(rig), sharing(rig), sharing(rig)
    rig.publish("a")
    assert said(rig) == [(one, True)]
    one.credit(0)
    assert said(rig) == [(two, True)], "the first one has none to spare"
    rig.publish("b")
    assert said(rig) == [(three, True)]
    two.credit(1)
    three.credit(1)
    assert two.bodies + three.bodies == ["a", "b"]
    assert said(rig) == []
    one.credit(1)
    assert said(rig) == [(one, False)]


def test_a_permit_that_is_taken_away_again() -> None:
    rig = Rig()
    one = sharing(rig)
    rig.publish("a")
    said(rig)
    rig.shard.credit(one.sub, 1)
    one.credit(0)
    assert said(rig) == [], "its place is kept, nothing is to be said again"
    other = rig.subscribe(1)
    assert other.take() == ["a"]
    one.credit(1)
    assert said(rig) == [(one, False)], "the permit would rest here for ever"


def test_permits_that_come_back_from_backoff_are_said() -> None:
    rig = Rig()
    one = sharing(rig, 1)
    rig.publish("a")
    one.nack(1)
    assert one.sub.waiting == 1
    one.credit(0)
    assert said(rig) == []
    rig.wait(50)
    assert said(rig) == [(one, False)]
    rig.wait(500)
    assert said(rig) == [(one, True)]


def test_a_consumer_of_one_shard_is_pardoned_without_a_word() -> None:
    rig = Rig()
    one = rig.subscribe(1)
    rig.publish("a")
    one.nack(1)
    rig.wait(100)
    assert said(rig) == []


def test_a_paused_queue_needs_no_permits() -> None:
    rig = Rig()
    one, two = sharing(rig), sharing(rig)
    rig.publish("a")
    assert said(rig) == [(one, True)]
    rig.configure(paused=True)
    one.credit(1)
    assert said(rig) == [(one, False)]
    rig.publish("b")
    assert said(rig) == []
    rig.configure(paused=False)
    assert (one.take(), said(rig)) == (["a"], [(two, True)])


def test_who_is_away_or_gone_is_not_told() -> None:
    rig = Rig()
    away, gone, over = sharing(rig), sharing(rig), sharing(rig)
    away.detach()
    gone.unsubscribe()
    over.end()
    rig.publish("a")
    assert said(rig) == []
    away.resume()
    assert said(rig) == [(away, True)]
    away.detach()
    away.resume()
    assert said(rig) == [(away, True)], "it remembers nothing of what it was told before"
    away.resume()
    assert said(rig) == [(away, True)], "also when it was never missed"


def test_what_takes_part_in_nothing_else_still_has_its_turn() -> None:
    rig = Rig(bounds=Bounds(window_messages=2))
    one = sharing(rig)
    rig.publish(*"abcdef")
    assert said(rig) == [(one, True)]
    for n in range(1, 7):
        one.credit(1)
        one.ack(n)
    assert one.bodies == [*"abcdef"]
