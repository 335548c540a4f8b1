"""The windows of all shards share a budget."""

from __future__ import annotations

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.budget import Budget
from pushlane_dispatcher.core.effects import Settle
from pushlane_storage.message import size_of
from tests.dispatcher.core.harness import Rig

BOUNDS = Bounds(window_bytes=10_000, segment_messages=2)
BODY = "x" * 400


def share(budget: Budget, *rigs: Rig) -> None:
    for rig in rigs:
        rig.shard.window.bodies.join(budget)


def test_half_is_for_whoever_comes_first_and_half_is_dealt_out() -> None:
    budget = Budget(8_000, shards=4, window=3_000)
    assert (budget.least, budget.spent) == (1_000, False)
    budget.used = 3_999
    assert not budget.spent
    budget.used = 4_000
    assert budget.spent


def test_where_all_windows_fit_nobody_is_squeezed() -> None:
    budget = Budget(8_000, shards=4, window=2_000)
    budget.used = 7_999
    assert not budget.spent


def test_what_comes_and_goes_is_counted() -> None:
    budget = Budget(100_000, 2)
    rig = Rig(bounds=BOUNDS)
    rig.publish(BODY)
    share(budget, rig)
    rig.publish(BODY)
    bodies = rig.shard.window.bodies
    assert budget.used == bodies.resident_bytes > 800
    consumer = rig.subscribe(2)
    consumer.take()
    consumer.ack(1, 2)
    assert budget.used == bodies.resident_bytes == 0
    rig.publish(BODY)
    budget.refused.add(bodies)
    bodies.join(Budget())
    assert (budget.used, budget.refused) == (0, set())


def test_together_they_keep_to_it_and_all_are_served() -> None:
    budget = Budget(12_000, shards=6, window=BOUNDS.window_bytes)
    rigs = [Rig(bounds=BOUNDS) for _ in range(6)]
    share(budget, *rigs)
    names = [f"{n:03}{BODY}" for n in range(40)]
    for rig in rigs:
        rig.publish(*names)
    one = size_of(rigs[0].message(BODY + "000"))
    most = 12_000 + 6 * one
    assert budget.used <= most, "one message of each may go beyond its part"
    assert budget.refused <= {rig.shard.window.bodies for rig in rigs}
    assert rigs[-1].shard.window.bodies in budget.refused
    for rig in rigs:
        consumer = rig.subscribe(3)
        got: list[str] = []
        while consumer.inbox:
            got += consumer.take()
            consumer.ack(*consumer.sub.held)
            assert budget.used <= most
        assert got == names
    assert budget.used == 0


def test_what_is_in_flight_gives_its_bodies_up() -> None:
    """Else a shard whose consumers hold much would get nothing new."""
    budget = Budget(12_000, shards=6, window=BOUNDS.window_bytes)
    rig = Rig(bounds=BOUNDS)
    share(budget, rig)
    rig.publish(*[BODY] * 10)
    slow = rig.subscribe(6)
    slow.take()
    held = rig.shard.window.bodies.resident_bytes
    assert held > 2 * budget.least
    budget.used += 12_000  # others
    rig.publish(*[BODY] * 10)
    fast = rig.subscribe(4)
    got = 0
    while fast.inbox:
        got += len(fast.take())
        fast.ack(*fast.sub.held)
    assert got == 14
    assert budget.squeezes >= 1
    slow.ack(*slow.sub.held)
    assert budget.used == 12_000


def test_it_is_large_again_when_there_is_room() -> None:
    budget = Budget(12_000, shards=6, window=BOUNDS.window_bytes)
    rig = Rig(bounds=BOUNDS)
    share(budget, rig)
    budget.used += 6_000
    rig.publish(*[BODY] * 30)
    bodies = rig.shard.window.bodies
    assert bodies.resident_bytes < 3_000
    assert bodies.most_bytes == 1_000
    budget.used -= 6_000
    assert bodies.most_bytes == 10_000
    rig.shard.window.read()
    rig.run()
    assert bodies.resident_bytes > 3_000


def test_they_give_them_up_again_and_again() -> None:
    """What was granted while there was room is in the way when there is none."""
    budget = Budget(12_000, shards=6, window=BOUNDS.window_bytes)
    rig = Rig(bounds=BOUNDS)
    share(budget, rig)
    slow = rig.subscribe(100)
    for n in range(5):
        for others in (0, 12_000):
            budget.used += others
            rig.publish(*[BODY] * 4)
            assert len(slow.take()) == 4, n
            budget.used -= others
    assert budget.squeezes == 5


def test_what_is_on_its_way_out_keeps_its_body() -> None:
    budget = Budget(12_000, shards=6, window=BOUNDS.window_bytes)
    rig = Rig(bounds=BOUNDS)
    share(budget, rig)
    rig.publish(*[BODY] * 4)
    consumer = rig.subscribe(4)
    consumer.take()
    rig.hold = {Settle}
    consumer.ack(1, 2, 3, 4)
    budget.used += 12_000
    rig.publish(*[BODY] * 4)
    assert budget.squeezes == 0
    rig.finish(*rig.held(Settle))
    assert len(consumer.take()) == 4
