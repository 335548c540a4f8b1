"""Polled subscriptions: receives while messages are wanted, and what becomes of their answers."""

from __future__ import annotations

import pytest

from pushlane.core.settings import Settings
from pushlane.wire import frames
from tests.sdk.core.poll_rig import PollRig, delivered

WAIT = Settings().poll_wait_ms


def opened() -> PollRig:
    rig = PollRig()
    rig.open()
    return rig


def receive(most: int, wait_ms: int = WAIT) -> str:
    return f'POST /q/receive {{"max":{most},"wait_ms":{wait_ms}}}'


def refusal(code: str, retry_ms: int | None = None) -> dict[str, object]:
    return {"error": {"code": code, "message": "no", "retry_ms": retry_ms}}


def test_the_first_receive_does_not_wait_and_answers_the_subscribe() -> None:
    rig = opened()
    asked = rig.send(frames.Subscribe(3, "q", 10, lease_ms=5000))
    assert asked == ['POST /q/receive {"max":1,"wait_ms":0,"lease_ms":5000}']
    subscribed, deliver = rig.answer(200, delivered(1))
    assert subscribed == frames.Subscribed(3, 1)
    assert isinstance(deliver, frames.Deliver)
    assert [(m.id, m.receipt, bytes(m.body)) for m in deliver.messages] == [("m-1", "P.1", b"1")]  # type: ignore[arg-type]


def test_a_subscribe_that_is_refused() -> None:
    rig = opened()
    rig.send(frames.Subscribe(3, "q", 10))
    assert rig.answer(403, refusal("forbidden")) == [frames.ErrorFrame("forbidden", "no", id=3)]
    rig.flush()
    assert rig.poll._subs == {}


def test_a_topic_has_no_path() -> None:
    rig = opened()
    assert rig.send(frames.Subscribe(3, "topic:t", 10)) == []
    (error,) = rig.told()
    assert isinstance(error, frames.ErrorFrame)
    assert (error.id, error.code) == (3, "bad_request")


def test_as_many_are_asked_for_as_are_wanted_one_request_at_a_time() -> None:
    rig = opened()
    sub = rig.subscribe(room=5)
    assert rig.flush() == [receive(5)]
    assert rig.asked[0].timeout_ms > WAIT
    assert rig.flush() == []
    rig.answer(200, delivered(1, 2))
    rig.rooms[sub] = 3
    assert rig.flush() == [receive(3)]
    rig.answer(200, delivered(3))
    rig.rooms[sub] = 0
    assert rig.flush() == []


def test_a_receive_that_nobody_wants_any_more_is_cut() -> None:
    rig = opened()
    sub = rig.subscribe()
    rig.flush()
    rig.rooms[sub] = 0
    number = rig.asked[0].number
    rig.flush()
    assert rig.dropped() == [number]
    rig.rooms[sub] = 1
    assert rig.flush() == [receive(1)]


def test_unsubscribe_cuts_the_receive_and_settles_go_on() -> None:
    rig = opened()
    sub = rig.subscribe()
    rig.flush()
    assert rig.send(frames.Unsubscribe(8, sub)) == []
    assert rig.told() == [frames.Done(8)]
    assert len(rig.dropped()) == 1
    assert rig.send(frames.Ack(sub, ["P.1"], 9)) == ['POST /q/ack {"receipts":["P.1"]}']
    rig.rooms[sub] = None
    rig.flush()
    assert rig.poll._subs == {}


def test_no_message_in_time_is_asked_again_at_once() -> None:
    rig = opened()
    rig.subscribe()
    rig.flush()
    rig.now += WAIT
    assert rig.answer(200, {"messages": []}) == []
    assert rig.flush() == [receive(5)]


def test_an_empty_answer_before_its_time_is_no_busy_loop() -> None:
    rig = opened()
    rig.subscribe()
    rig.flush()
    waits = []
    for _ in range(4):
        rig.answer(200, {"messages": []})
        assert rig.flush() == []
        wake_at = rig.poll.wake_at(rig.now)
        assert wake_at is not None
        waits.append(wake_at - rig.now)
        rig.now = wake_at
        assert len(rig.flush()) == 1
    assert waits == [50, 100, 200, 400]


@pytest.mark.parametrize(
    ("status", "body", "wait"),
    [(503, refusal("unavailable", 700), 700), (429, refusal("throttled"), 50), (504, b"", 50)],
)
def test_what_passes_is_waited_for(status: int, body: object, wait: int) -> None:
    rig = opened()
    rig.subscribe()
    rig.flush()
    assert rig.answer(status, body) == []
    assert rig.flush() == []
    assert rig.poll.wake_at(0) == wait
    rig.now = wait
    assert rig.flush() == [receive(5)]


def test_what_does_not_pass_ends_it() -> None:
    rig = opened()
    sub = rig.subscribe()
    rig.flush()
    assert rig.answer(404, refusal("not_found")) == [frames.Ended(sub, "not_found", "no")]
    assert rig.flush() == []
    assert rig.poll.wake_at(0) is None


def test_a_receive_that_a_proxy_found_silent_for_too_long_is_asked_again() -> None:
    rig = opened()
    rig.subscribe()
    rig.flush()
    rig.now += 15_000
    rig.fail()
    assert rig.poll.fault is None
    assert rig.flush() == []
    rig.now += 50
    assert rig.flush() == [receive(5)]
    rig.fail()
    assert rig.poll.fault is not None


def test_an_answer_that_makes_no_sense_is_asked_again() -> None:
    rig = opened()
    rig.subscribe()
    rig.flush()
    assert rig.answer(200, b"<html>") == []
    assert rig.poll.wake_at(0) == 50


def test_ack_none_settles_before_it_delivers() -> None:
    rig = opened()
    sub = rig.subscribe(ack="none")
    assert rig.flush() == [receive(5)]
    assert rig.answer(200, delivered(1, 2, 3)) == []
    ack = 'POST /q/ack {"receipts":["P.1","P.2","P.3"]}'
    assert rig.flush() == [ack]
    rig.rooms[sub] = 0
    rig.flush()
    assert rig.dropped() == []
    assert rig.answer(503, refusal("unavailable", 100)) == []
    rig.now += 100
    assert rig.flush() == [ack]
    (deliver,) = rig.answer(200, {"lease_lost": ["P.2"], "duplicate": ["P.1"]})
    assert isinstance(deliver, frames.Deliver)
    assert [(m.id, m.receipt, m.fence, m.lease_ms) for m in deliver.messages] == [
        ("m-1", None, None, None),
        ("m-3", None, None, None),
    ]
    assert rig.flush() == []


def test_ack_none_goes_on_settling_after_a_reconnect() -> None:
    rig = opened()
    rig.subscribe(ack="none")
    rig.flush()
    rig.answer(200, delivered(1))
    rig.flush()
    rig.fail(of="/ack")
    rig.open(session="poll")
    assert rig.flush() == ['POST /q/ack {"receipts":["P.1"]}']
    assert len(rig.answer(200, {"duplicate": ["P.1"]})) == 1
