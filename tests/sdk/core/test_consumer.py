"""Consuming in the core: what the scenarios of the vectors leave open."""

from __future__ import annotations

import msgspec
import pytest

from pushlane.core import effects as fx
from pushlane.core import settle
from pushlane.core.lease import Phase
from pushlane.core.settings import Settings
from pushlane.core.settle import ACK, Key
from pushlane.wire import DEFAULTS, Limits, frames
from pushlane.wire.errors import BadRequest
from tests.sdk.core.rig import Rig


def test_nothing_is_handed_out_while_the_connection_is_away() -> None:
    rig = Rig()
    rig.open()
    subscription = rig.subscribe()
    rig.deliver(1, 2)
    rig.lose()
    assert rig.core.take(subscription, rig.now) is None
    rig.take(fx.Ready)
    rig.open(resumed=True)
    assert len(rig.take(fx.Ready)) == 1
    lease = rig.core.take(subscription, rig.now)
    assert lease is not None
    assert lease.message.id == "m-1"


def test_a_message_that_comes_twice_is_there_once() -> None:
    rig = Rig()
    rig.open()
    subscription = rig.subscribe()
    rig.deliver(1)
    rig.deliver(1)
    assert rig.core.take(subscription, 0) is not None
    assert rig.core.take(subscription, 0) is None


def test_settling_twice_is_a_conflict() -> None:
    rig = Rig()
    rig.open()
    subscription = rig.subscribe()
    rig.deliver(1)
    lease = rig.core.take(subscription, 0)
    assert lease is not None
    rig.core.settle(lease, ACK, "first")
    rig.core.settle(lease, ACK, "second")
    assert rig.outcomes()["second"] == "conflict"


def test_more_receipts_than_a_frame_may_have_take_several() -> None:
    rig = Rig()
    rig.open(Limits(settle=2))
    subscription = rig.subscribe()
    rig.deliver(1, 2, 3, 4, 5)
    leases = [rig.core.take(subscription, 0) for _ in range(5)]
    starts = [frame.receipts for frame in rig.flush() if isinstance(frame, frames.Start)]
    assert starts == [["P.1-2"], ["P.3-4"], ["P.5"]]
    for lease in leases:
        assert lease is not None
        rig.core.settle(lease, ACK)
    acks = [frame.receipts for frame in rig.flush() if isinstance(frame, frames.Ack)]
    assert acks == [["P.1-2"], ["P.3-4"], ["P.5"]]


def test_settles_wait_when_too_many_requests_are_open() -> None:
    rig = Rig()
    rig.open(Limits(unanswered=1))
    subscription = rig.subscribe()
    rig.deliver(1, 2)
    for _ in range(2):
        lease = rig.core.take(subscription, 0)
        assert lease is not None
        rig.core.settle(lease, ACK)
        sent = [frame for frame in rig.flush() if isinstance(frame, frames.Ack)]
    assert sent == []
    rig.receive(frames.Done(2))
    assert [frame.receipts for frame in rig.flush() if isinstance(frame, frames.Ack)] == [["P.2"]]


def test_a_refused_ack_leaves_the_lease_as_it_was() -> None:
    rig = Rig()
    rig.open()
    subscription = rig.subscribe()
    rig.deliver(1)
    lease = rig.core.take(subscription, 0)
    assert lease is not None
    rig.core.settle(lease, ACK, "ack")
    rig.flush()
    rig.receive(frames.ErrorFrame("bad_request", "no", id=2))
    assert rig.outcomes()["ack"] == "bad_request"
    assert lease.phase is Phase.STARTED
    rig.tick(30_000)
    assert [effect.lease for effect in rig.take(fx.Lost)] == [lease]


def test_what_can_not_be_given_back_is_nobodys() -> None:
    rig = Rig()
    rig.open()
    subscription = rig.subscribe()
    rig.deliver(1)
    rig.core.unsubscribe(subscription)
    nack, unsubscribe = rig.flush()
    assert isinstance(nack, frames.Nack)
    assert isinstance(unsubscribe, frames.Unsubscribe)
    rig.receive(frames.ErrorFrame("bad_request", "no", id=nack.id), frames.Done(unsubscribe.id))
    assert rig.take(fx.Lost) == []
    assert not rig.core.consumer.clocks.running
    assert not rig.core.consumer.subscriptions


def test_a_pending_ack_outlives_the_word_that_its_lease_is_lost() -> None:
    rig = Rig()
    rig.open()
    subscription = rig.subscribe()
    rig.deliver(1)
    lease = rig.core.take(subscription, 0)
    assert lease is not None
    rig.core.settle(lease, ACK, "ack")
    rig.flush()
    rig.receive(frames.LeaseLostFrame(1, ["P.1"]))
    assert not lease.lost
    rig.receive(frames.Done(2, duplicate=["P.1"]))
    assert rig.outcomes()["ack"] is None


@pytest.mark.parametrize("resumed", [True, False])
@pytest.mark.parametrize("sent", [True, False])
def test_an_extension_of_a_closed_subscription_is_answered(resumed: bool, sent: bool) -> None:
    rig = Rig()
    rig.open()
    subscription = rig.subscribe()
    rig.deliver(1)
    lease = rig.core.take(subscription, 0)
    assert lease is not None
    rig.core.unsubscribe(subscription)
    rig.flush()
    rig.receive(frames.Done(2))
    rig.core.settle(lease, Key("extend", lease_ms=1_000), "extend")
    if sent:
        rig.flush()
    rig.receive(frames.LeaseLostFrame(1, ["P.1"]))
    rig.lose()
    rig.open(session="s" if resumed else "s2", resumed=resumed)
    for frame in rig.flush():
        assert isinstance(frame, frames.Extend)
        assert frame.id is not None
        rig.receive(frames.Done(frame.id, lease_lost=["P.1"]))
    assert rig.outcomes()["extend"] == "lease_lost"
    assert not rig.core.consumer.subscriptions


def test_a_throttled_ack_goes_again() -> None:
    rig = Rig()
    rig.open()
    subscription = rig.subscribe()
    rig.deliver(1)
    lease = rig.core.take(subscription, 0)
    assert lease is not None
    rig.core.settle(lease, ACK, "ack")
    rig.flush()
    rig.receive(frames.ErrorFrame("throttled", "slow", retry_ms=100, id=2))
    assert rig.flush() == []
    rig.tick(100)
    (again,) = rig.flush()
    assert isinstance(again, frames.Ack)
    rig.outcomes()
    assert again.id is not None
    rig.receive(frames.Done(again.id))
    assert "ack" in rig.outcomes()


def test_an_ack_that_may_have_counted_is_not_told_as_a_lost_lease() -> None:
    """The owner died before it answered; the next one knows nothing of the ack that was stored."""
    rig = Rig()
    rig.open()
    subscription = rig.subscribe()
    rig.deliver(1)
    lease = rig.core.take(subscription, 0)
    assert lease is not None
    rig.core.settle(lease, ACK, "ack")
    rig.flush()
    rig.receive(frames.ErrorFrame("unavailable", "gone", retry_ms=100, id=2))
    rig.tick(100)
    (again,) = rig.flush()
    assert isinstance(again, frames.Ack)
    assert again.id is not None
    rig.receive(frames.Done(again.id, lease_lost=["P.1"]))
    assert rig.outcomes()["ack"] == "connection_lost"
    assert lease.lost


def test_a_lease_is_extended_for_at_most_its_time() -> None:
    rig = Rig(Settings(extend_for_ms=60_000))
    rig.open()
    subscription = rig.subscribe()
    rig.deliver(1)
    lease = rig.core.take(subscription, 0)
    assert lease is not None
    rig.core.keep(lease, 0)
    extends = 0
    while not lease.lost:
        wake_at = rig.core.wake_at()
        assert wake_at is not None
        rig.now = wake_at
        rig.core.tick(rig.now)
        for frame in rig.flush():
            if isinstance(frame, frames.Extend):
                extends += 1
                assert frame.id is not None
                rig.receive(frames.Done(frame.id))
        rig.receive(frames.Beat(0))
    assert extends == 3
    assert 60_000 <= rig.now <= 90_000


def test_extensions_that_are_due_together_share_a_frame() -> None:
    rig = Rig()
    rig.open()
    subscription = rig.subscribe()
    rig.deliver(1, 2)
    for at in (0, 1_000):
        lease = rig.core.take(subscription, at)
        assert lease is not None
        rig.core.keep(lease, at)
    rig.flush()
    rig.tick(15_000)
    (frame,) = rig.flush()
    assert isinstance(frame, frames.Extend)
    assert frame.receipts == ["P.1-2"]


def test_an_extension_that_is_refused_is_tried_again() -> None:
    rig = Rig()
    rig.open()
    subscription = rig.subscribe()
    rig.deliver(1)
    lease = rig.core.take(subscription, 0)
    assert lease is not None
    rig.core.keep(lease, 0)
    rig.flush()
    rig.tick(15_000)
    (frame,) = rig.flush()
    assert isinstance(frame, frames.Extend)
    rig.receive(frames.ErrorFrame("bad_request", "no", id=frame.id))
    rig.tick(3_750)
    (frame,) = rig.flush()
    assert isinstance(frame, frames.Extend)


def test_users_extend_too() -> None:
    rig = Rig()
    rig.open()
    subscription = rig.subscribe()
    rig.deliver(1)
    lease = rig.core.take(subscription, 0)
    assert lease is not None
    rig.core.settle(lease, Key("extend", lease_ms=60_000), "extend")
    rig.flush()
    rig.receive(frames.Done(2))
    assert "extend" in rig.outcomes()
    rig.tick(59_000)
    rig.receive(frames.Beat(0))
    assert not lease.lost
    rig.tick(1_000)
    assert lease.lost


def test_an_unleased_subscription_drops_what_nobody_takes() -> None:
    rig = Rig(Settings(buffered=2))
    rig.open()
    subscription = rig.subscribe(ack="none")
    messages = [frames.DeliverMessage(f"m-{n}", 1, 0) for n in range(5)]
    rig.receive(frames.Deliver(1, messages, dropped=4))
    assert subscription.dropped == 7
    taken = [rig.core.take(subscription, 0) for _ in range(3)]
    assert [lease and lease.message.id for lease in taken] == ["m-0", "m-1", None]


def test_a_subscription_that_is_refused() -> None:
    rig = Rig()
    rig.open()
    rig.core.subscribe("q", 1, "explicit", None, "sub")
    rig.flush()
    rig.receive(frames.ErrorFrame("forbidden", "no", id=1))
    assert rig.outcomes()["sub"] == "forbidden"
    assert [effect.error and effect.error.code for effect in rig.take(fx.Ended)] == ["forbidden"]
    assert not rig.core.consumer.subscriptions


def test_a_subscription_that_is_refused_for_a_while() -> None:
    rig = Rig()
    rig.open()
    rig.core.subscribe("q", 1, "explicit", None, "sub")
    rig.flush()
    rig.receive(frames.ErrorFrame("unavailable", "busy", retry_ms=50, id=1))
    rig.tick(50)
    (again,) = rig.flush()
    assert isinstance(again, frames.Subscribe)


def test_one_that_is_closed_before_it_began() -> None:
    rig = Rig()
    rig.open()
    subscription = rig.core.subscribe("q", 1, "explicit", None, "sub")
    rig.flush()
    rig.core.unsubscribe(subscription, "un")
    rig.receive(frames.Subscribed(1, 4))
    rig.deliver(1, sub=4)
    sent = rig.flush()
    assert [type(frame) for frame in sent] == [frames.Nack, frames.Unsubscribe]
    rig.receive(frames.Done(2), frames.Done(3))
    assert rig.outcomes() == {"start": None, "sub": "connection_lost", "un": None}
    assert not rig.core.consumer.subscriptions


@pytest.mark.parametrize("credit", [0, 10_001])
def test_credit_out_of_bounds(credit: int) -> None:
    rig = Rig()
    rig.open()
    with pytest.raises(BadRequest, match="credit"):
        rig.core.subscribe("q", credit, "explicit", None, "sub")


def test_verdicts_are_checked_and_cut() -> None:
    assert settle.nack("x" * 2000, None, DEFAULTS).error == "x" * 1024
    assert settle.nack("ü" * 1000, None, DEFAULTS).error == "ü" * 512
    assert settle.nack(KeyError("k"), 5, DEFAULTS).error == "KeyError: 'k'"
    assert settle.nack("\ud800", 5, DEFAULTS).error == "?"
    assert settle.reject(None, DEFAULTS) == Key("nack", dead=True)
    with pytest.raises(BadRequest, match="delay_ms"):
        settle.nack(None, -1, DEFAULTS)
    with pytest.raises(BadRequest, match="lease_ms"):
        settle.extend(1, DEFAULTS)


def test_a_hello_holds_no_more_than_it_may() -> None:
    rig = Rig()
    rig.open()
    rig.subscribe(credit=10_000)
    rig.deliver(*range(1, 6_001, 2))
    held = rig.core.consumer.held()
    count = sum(map(len, held.values()))
    assert 1_000 < count <= DEFAULTS.held
    assert len(msgspec.json.encode(held)) < 50_000
