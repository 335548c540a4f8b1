"""Frames become HTTP requests, and answers frames: greeting, publishing, settling, links."""

from __future__ import annotations

import pytest

from pushlane.core.settings import Settings
from pushlane.wire import frames
from tests.sdk.core.poll_rig import PollRig, publish


def opened(settings: Settings | None = None) -> PollRig:
    rig = PollRig(settings)
    rig.open()
    return rig


def refusal(code: str, retry_ms: int | None = None) -> dict[str, object]:
    return {"error": {"code": code, "message": "no", "retry_ms": retry_ms}}


# Greeting


def test_hello_asks_for_something_cheap_that_needs_the_token() -> None:
    rig = PollRig()
    assert rig.send(frames.Hello("secret", producer="p")) == ["GET /v1/limits"]
    assert rig.asked[0].token == "secret"
    (welcome,) = rig.answer(200, {"limits": {}})
    assert isinstance(welcome, frames.Welcome)
    assert (welcome.resumed, welcome.heartbeat_ms) == (False, 0)


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "unauthorized"), (404, "not_found"), (502, "internal"), (302, "bad_request")],
)
def test_a_greeting_that_is_refused(status: int, code: str) -> None:
    rig = PollRig()
    rig.send(frames.Hello())
    (error,) = rig.answer(status, b"<html>")
    assert isinstance(error, frames.ErrorFrame)
    assert (error.code, error.id) == (code, None)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}"])
def test_a_page_to_log_in_is_no_server(body: bytes) -> None:
    rig = PollRig()
    rig.send(frames.Hello())
    (error,) = rig.answer(200, body)
    assert isinstance(error, frames.ErrorFrame)
    assert error.code == "unavailable"
    assert not rig.poll.is_open


def test_nothing_is_asked_before_the_welcome() -> None:
    rig = PollRig()
    assert rig.send(frames.Hello(), publish(1, 1)) == ["GET /v1/limits"]
    rig.answer(200, {"limits": {}})
    assert len(rig.flush()) == 1


def test_nobody_there() -> None:
    rig = PollRig()
    rig.send(frames.Hello())
    rig.fail()
    assert rig.poll.fault is not None


# Publishing


def test_numbers_become_dedup_ids() -> None:
    rig = opened()
    assert rig.send(publish(1, 4, 5)) == [
        'POST /q/messages {"messages":[{"body":4,"dedup":"p-1:4"},{"body":5,"dedup":"p-1:5"}]}'
    ]
    told = rig.answer(200, {"ids": ["m-4", "m-5"], "duplicates": [1]})
    assert told == [frames.Published(1, ["m-4", "m-5"], [1])]


def test_the_callers_own_dedup_id_stays() -> None:
    rig = opened()
    assert '"dedup":"mine"' in rig.send(publish(1, 4, dedup="mine"))[0]


def test_a_repeat_has_the_same_ids() -> None:
    rig = opened()
    first = rig.send(publish(1, 4, 5))
    rig.fail()
    rig.open(session="poll")
    assert rig.send(publish(2, 4, 5)) == first


def test_publishes_of_a_queue_wait_for_each_other_and_then_go_together() -> None:
    rig = opened()
    assert len(rig.send(publish(1, 1), publish(2, 1, to="other"))) == 2
    assert rig.send(publish(3, 2), publish(4, 3, 4)) == []
    assert rig.answer(200, {"ids": ["a"]}, of="/q/messages") == [frames.Published(1, ["a"])]
    (request,) = rig.flush()
    assert request.count("dedup") == 3
    failed = frames.Failed(2, "queue_full", "full")
    told = rig.answer(
        200, {"ids": ["b", "c", None], "duplicates": [1], "failed": [failed]}, of="/q/messages"
    )
    failed = frames.Failed(1, "queue_full", "full")
    assert told == [
        frames.Published(3, ["b"]),
        frames.Published(4, ["c", None], [0], [failed]),
    ]


def test_a_request_has_at_most_a_batch() -> None:
    rig = opened()
    rig.send(publish(1, 1))
    rig.send(publish(2, *range(2, 602)), publish(3, *range(602, 1202)))
    rig.answer(200, {"ids": ["a"]})
    (request,) = rig.flush()
    assert request.count("dedup") == 600


def test_when_all_failed_each_has_its_own_reason() -> None:
    rig = opened()
    rig.send(publish(1, 1, 2))
    failed = [frames.Failed(0, "too_large", "big"), frames.Failed(1, "unavailable", "later", 5)]
    told = rig.answer(503, {**refusal("unavailable"), "failed": failed})
    assert told == [frames.Published(1, [None, None], [], failed)]


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"ids": 1}'])
def test_an_answer_that_makes_no_sense_is_an_unknown_outcome(body: bytes) -> None:
    rig = opened()
    rig.send(publish(1, 1))
    (error,) = rig.answer(200, body)
    assert isinstance(error, frames.ErrorFrame)
    assert (error.id, error.code) == (1, "internal")


def test_a_refused_publish_is_an_error_with_its_id() -> None:
    rig = opened()
    rig.send(publish(1, 1))
    told = rig.answer(429, refusal("throttled", 200))
    assert told == [frames.ErrorFrame("throttled", "no", 200, 1)]


def test_a_topic_has_no_path() -> None:
    rig = opened()
    assert rig.send(publish(1, 1, to="topic:t")) == []
    (error,) = rig.told()
    assert isinstance(error, frames.ErrorFrame)
    assert (error.id, error.code) == (1, "bad_request")
    assert rig.poll.is_idle


def test_requests_at_once_are_bounded() -> None:
    rig = opened(Settings(poll_requests=2))
    assert len(rig.send(*[publish(n, n, to=f"q{n}") for n in range(1, 6)])) == 2
    rig.answer(200, {"ids": ["a"]})
    (request,) = rig.flush()
    assert request.startswith("POST /q3/")


# Settling


def test_settles_of_a_kind_go_together_and_kinds_one_after_the_other() -> None:
    rig = opened()
    sub = rig.subscribe(room=0)
    assert rig.send(frames.Ack(sub, ["P.1"], 2)) == ['POST /q/ack {"receipts":["P.1"]}']
    rig.send(frames.Ack(sub, ["P.2-3"], 3), frames.Ack(sub, ["P.9"], 4))
    rig.send(frames.Nack(sub, ["P.4"], 0, "late", False, 5), frames.Nack(sub, ["P.5"], dead=True))
    rig.send(frames.Extend(sub, ["P.6"], 9000, 6))
    assert rig.answer(200, {}) == [frames.Done(2)]
    assert rig.flush() == ['POST /q/ack {"receipts":["P.2-3","P.9"]}']
    told = rig.answer(200, {"lease_lost": ["P.3"], "duplicate": ["P.9"]})
    assert told == [frames.Done(3, ["P.3"], ["P.9"]), frames.Done(4, ["P.3"], ["P.9"])]
    assert rig.flush() == ['POST /q/nack {"receipts":["P.4"],"delay_ms":0,"error":"late"}']
    assert rig.answer(503, refusal("unavailable"))[0].id == 5  # type: ignore[union-attr]
    assert rig.flush() == ['POST /q/nack {"receipts":["P.5"],"dead":true}']
    assert rig.answer(200, {}) == []
    assert rig.flush() == ['POST /q/extend {"receipts":["P.6"],"lease_ms":9000}']
    assert rig.answer(200, {}) == [frames.Done(6)]
    assert rig.flush() == []
    assert rig.poll.is_idle


def test_a_request_has_at_most_so_many_receipts() -> None:
    rig = opened()
    sub = rig.subscribe(room=0)
    rig.send(frames.Ack(sub, ["P.1-6000"], 2), frames.Ack(sub, ["P.6001-12000"], 3))
    assert rig.answer(200, {}) == [frames.Done(2)]
    assert rig.flush() == ['POST /q/ack {"receipts":["P.6001-12000"]}']


def test_receipts_of_a_sub_that_nobody_knows_are_lost() -> None:
    rig = opened()
    assert rig.send(frames.Ack(99, ["P.1"], 2), frames.Nack(99, ["P.2"])) == []
    assert rig.told() == [frames.Done(2, ["P.1"])]


def test_start_and_credit_need_no_request() -> None:
    rig = opened()
    sub = rig.subscribe(room=0)
    assert rig.send(frames.Start(sub, ["P.1"]), frames.Credit(sub, 3)) == []


# Links


def test_a_cut_request_breaks_the_link_and_the_next_one_is_a_resumption() -> None:
    rig = opened()
    sub = rig.subscribe()
    rig.flush()
    rig.send(publish(1, 1))
    rig.fail(of="/messages")
    assert rig.poll.fault is not None
    assert rig.flush() == []
    rig.asked.clear()
    rig.send(frames.Hello("new", resume=frames.Resume("poll")))
    (welcome,) = rig.answer(200, {"limits": {}})
    assert isinstance(welcome, frames.Welcome)
    assert welcome.resumed
    (request,) = rig.flush()
    assert request.startswith("POST /q/receive")
    assert rig.asked[0].token == "new"
    assert rig.send(frames.Ack(sub, ["P.1"], 2)) == ['POST /q/ack {"receipts":["P.1"]}']


def test_a_session_of_a_websocket_is_not_resumed() -> None:
    rig = opened()
    rig.subscribe()
    rig.asked.clear()
    rig.send(frames.Hello(resume=frames.Resume("s-1")))
    (welcome,) = rig.answer(200, {"limits": {}})
    assert isinstance(welcome, frames.Welcome)
    assert not welcome.resumed
    assert rig.flush() == []


def test_a_token_that_is_no_longer_accepted_breaks_the_link() -> None:
    rig = opened()
    rig.send(publish(1, 1))
    assert rig.answer(401, refusal("unauthorized")) == []
    assert rig.poll.fault is not None
    assert rig.poll.fault.info.retry


def test_an_answer_after_the_end_of_its_link_means_nothing() -> None:
    rig = opened()
    rig.send(publish(1, 1))
    rig.poll.reset()
    assert rig.answer(200, {"ids": ["a"]}) == []


def test_leaving_sends_what_was_said_and_cancels_what_waits() -> None:
    rig = opened()
    sub = rig.subscribe()
    rig.flush()
    rig.poll.leave()
    assert len(rig.dropped()) == 1
    assert rig.send(frames.Nack(sub, ["P.1"], 0)) == [
        'POST /q/nack {"receipts":["P.1"],"delay_ms":0}'
    ]
    assert not rig.poll.is_idle
    rig.answer(200, {})
    rig.flush()
    assert rig.poll.is_idle
