"""Keys: order of seq, one at a time."""

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Settle, Transfer
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.keys import Keys
from pushlane_dispatcher.core.lane import Lane
from pushlane_dispatcher.core.life import State
from tests.dispatcher.core.harness import Rig

LANE = Lane(4, 1)


def entry(seq: int, key: str = "k") -> Entry:
    return Entry(seq, LANE, None, 64, State.READY, 0, key=key)


def test_the_first_is_the_head_and_the_others_wait_in_order() -> None:
    keys = Keys(Bounds())
    one, two, three = entry(1), entry(2), entry(3)
    claims = [keys.claim("k", each) for each in (one, two, three)]
    assert claims == [State.READY, State.BLOCKED, State.BLOCKED]
    assert keys.head("k") is one
    assert keys.release(one) is two
    assert keys.release(two) is three
    assert keys.release(three) is None
    assert (keys.head("k"), len(keys.known)) == (None, 0)


def test_keys_do_not_know_each_other() -> None:
    keys = Keys(Bounds())
    assert keys.claim("a", entry(1, "a")) is State.READY
    assert keys.claim("b", entry(2, "b")) is State.READY
    assert len(keys.known) == 2


def test_who_is_not_the_head_releases_nothing() -> None:
    keys = Keys(Bounds())
    one, stranger = entry(1), entry(9)
    assert keys.release(stranger) is None
    keys.claim("k", one)
    assert keys.release(stranger) is None
    assert keys.head("k") is one


def test_a_purge_forgets_what_is_blocked_but_not_the_heads() -> None:
    keys = Keys(Bounds())
    one, two = entry(1), entry(2)
    keys.claim("k", one)
    keys.claim("k", two)
    keys.purge()
    assert keys.head("k") is one
    assert keys.release(one) is None
    assert len(keys.known) == 0


def test_who_is_blocked_may_go_before_its_turn() -> None:
    keys = Keys(Bounds())
    one, two, three = entry(1), entry(2), entry(3)
    for each in (one, two, three):
        keys.claim("k", each)
    assert keys.release(two) is None
    assert keys.kept == 1
    assert keys.release(one) is three


def test_one_that_turns_out_to_have_a_key_is_sought() -> None:
    keys = Keys(Bounds())
    keys.pass_over("k", LANE, 7)
    keys.pass_over("k", LANE, 5)
    assert (list(keys.sought), keys.sought["k"].again, keys.head("k")) == (["k"], 5, None)
    keys.exhausted("k")
    assert (len(keys.known), keys.sought) == (0, {})


# In a shard


def test_messages_of_a_key_are_delivered_in_order_one_in_flight() -> None:
    rig = Rig()
    one, other = rig.subscribe(), rig.subscribe()
    rig.publish("a", "b", "c", key="k")
    got: list[str] = []
    for _ in range(3):
        inbox = one.inbox or other.inbox
        holder = one if one.inbox else other
        assert len(one.inbox) + len(other.inbox) == 1
        got.append(inbox[0].body)
        holder.ack(inbox.pop(0).n)
    assert got == ["a", "b", "c"]


def test_a_blocked_key_does_not_hold_up_others() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a", "b", key="k")
    rig.publish("x", key="other")
    rig.publish("y")
    assert consumer.take() == ["a", "x", "y"]
    assert rig.stats.blocked == 1


def test_a_key_in_backoff_is_blocked() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a", "b", key="k")
    consumer.nack(1)
    assert consumer.take() == ["a"]
    rig.wait(499)
    assert consumer.take() == []
    rig.wait(1)
    assert consumer.take() == ["a"], "the head again, not its successor"
    consumer.ack(2)
    assert consumer.take() == ["b"]


def test_the_next_of_a_key_waits_until_the_ack_is_durable() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a", "b", key="k")
    rig.hold = {Settle}
    consumer.ack(1)
    assert consumer.bodies == ["a"]
    rig.hold = set()
    rig.finish()
    assert consumer.bodies == ["a", "b"]


def test_the_next_of_a_key_goes_on_when_the_head_leaves() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a", "b", key="k")
    rig.hold = {Transfer}
    consumer.nack(1, dead=True)
    assert consumer.bodies == ["a", "b"], "it will never be granted here again"


def test_order_outlives_a_crash() -> None:
    rig = Rig()
    consumer = rig.subscribe()
    rig.publish("a", "b", "c", key="k")
    consumer.ack(1)
    rig.crash()
    consumer = rig.subscribe()
    assert consumer.bodies == ["b"]
    consumer.ack(1)
    consumer.ack(2)
    assert consumer.bodies == ["b", "c"]


def test_a_purge_leaves_the_key_to_what_comes_after_it() -> None:
    rig = Rig()
    consumer = rig.subscribe(1)
    rig.publish("a", "b", "c", key="k")
    rig.purge()
    rig.publish("d", key="k")
    assert (rig.stats.purged, rig.stats.blocked) == (2, 1)
    consumer.ack(1)
    assert consumer.bodies == ["a", "d"]
