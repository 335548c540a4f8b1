"""Publishing in the core: frames, windows, room, answers, time."""

from __future__ import annotations

import pytest
from msgspec import Raw

from pushlane.core import effects as fx
from pushlane.core.publication import Published
from pushlane.core.settings import Settings
from pushlane.wire import Limits, frames
from pushlane.wire.errors import BadRequest, ConnectionLost, TooLarge
from tests.sdk.core.rig import Rig


def seqs(sent: list[frames.ClientFrame]) -> list[list[int | None]]:
    return [
        [message.seq for message in frame.messages]
        for frame in sent
        if isinstance(frame, frames.Publish)
    ]


def published(rig: Rig, id: int, count: int) -> None:
    rig.receive(frames.Published(id, [f"m-{id}-{n}" for n in range(count)]))


def test_the_window_counts_from_the_oldest_unanswered() -> None:
    rig = Rig(Settings(producer_window=4))
    rig.open(Limits(batch=1))
    for n in range(8):
        rig.publish(f"t{n}")
    assert seqs(rig.flush()) == [[1], [2], [3], [4]]
    for id in (2, 3, 4):
        published(rig, id, 1)
    assert rig.flush() == []  # 1 is not answered: a repeat of it must still be recognized
    published(rig, 1, 1)
    assert seqs(rig.flush()) == [[5], [6], [7], [8]]


def test_unanswered_requests_leave_room_for_settles() -> None:
    rig = Rig(Settings(settle_reserve=2))
    rig.open(Limits(batch=1, unanswered=5))
    for n in range(9):
        rig.publish(f"t{n}")
    assert len(rig.flush()) == 3


def test_bytes_in_flight_are_bounded_but_one_message_always_goes() -> None:
    rig = Rig()
    rig.open(Limits(frame_bytes=65_536, message_bytes=32_768, inflight_bytes=65_536))
    for n in range(4):
        rig.publish(f"t{n}", body=b'"' + b"x" * 30_000 + b'"')
    assert seqs(rig.flush()) == [[1, 2]]
    assert rig.flush() == []
    published(rig, 1, 2)
    assert seqs(rig.flush()) == [[3, 4]]
    assert rig.core.producer.inflight_bytes > 60_000


def test_a_frame_is_never_over_its_limit() -> None:
    limits = Limits(frame_bytes=65_536, message_bytes=32_768)
    rig = Rig()
    rig.open(limits)
    headers = {"\x00" * 100: "\x00" * 1000}
    for n in range(100):
        message = frames.PublishMessage(data=b"\xff" * 1000, headers=headers, key="\x01" * 100)
        rig.core.publish("q", message, n, 0)
    rig.core.flush(0)
    sent = rig.take(fx.Send)
    assert len(sent) > 1
    assert max(len(effect.data) for effect in sent) <= limits.frame_bytes


def test_callers_wait_in_order_when_there_is_no_room() -> None:
    rig = Rig(Settings(waiting_messages=2))
    rig.core.start(0)
    producer = rig.core.producer
    rig.publish("a")
    rig.publish("b")
    assert not producer.has_room()
    producer.enter("c")
    producer.enter("d")
    producer.enter("e")
    assert rig.outcomes() == {}
    rig.open()
    rig.outcomes()
    rig.core.flush(0)
    assert producer.waiting == 0
    # two were let in when a and b went out, and hold their places until they publish
    producer.admit()
    assert not producer.has_room()
    producer.leave("c")
    assert list(rig.outcomes()) == ["e"]


def test_room_is_kept_for_those_let_in() -> None:
    rig = Rig(Settings(waiting_messages=1))
    rig.open()
    rig.outcomes()
    rig.publish("a")
    rig.core.producer.enter("b")
    assert rig.outcomes() == {}
    rig.flush()
    assert list(rig.outcomes()) == ["b"]
    assert not rig.core.producer.has_room()
    rig.core.producer.entered("b")
    rig.publish("b")
    assert seqs(rig.flush()) == [[2]]


def test_a_message_that_was_not_sent_can_be_withdrawn_without_a_gap() -> None:
    rig = Rig()
    rig.open()
    rig.publish("a")
    rig.publish("b")
    assert rig.core.producer.withdraw("q", "a")
    assert seqs(rig.flush()) == [[1]]
    assert not rig.core.producer.withdraw("q", "b")


def test_forgotten_queues_start_at_a_higher_number() -> None:
    rig = Rig(Settings(producer_queues=1))
    rig.open()
    rig.publish("a", "one")
    rig.publish("b", "one")
    rig.flush()
    published(rig, 1, 2)
    rig.publish("c", "two")
    assert seqs(rig.flush()) == [[3]]
    rig.publish("d", "one")
    assert seqs(rig.flush()) == [[3]]  # "two" is under way and remembered


def test_duplicates_of_ours_are_not_shown() -> None:
    rig = Rig()
    rig.open()
    for ticket, dedup in (("plain", None), ("dedup", "d")):
        message = frames.PublishMessage(body=Raw(b"1"), dedup=dedup)
        rig.core.publish("q", message, ticket, 0)
    rig.flush()
    rig.receive(frames.Published(1, ["m-1", "m-2"], duplicates=[0, 1]))
    outcomes = rig.outcomes()
    assert not outcomes["plain"].duplicate
    assert outcomes["dedup"].duplicate


def test_a_repeat_can_not_tell() -> None:
    rig = Rig()
    rig.open()
    rig.core.publish("q", frames.PublishMessage(body=Raw(b"1"), dedup="d"), "t", 0)
    rig.flush()
    rig.lose()
    rig.open()
    rig.receive(frames.Published(2, ["m-1"], duplicates=[0]))
    assert not rig.outcomes()["t"].duplicate


@pytest.mark.parametrize("ids", [[], ["a", "b"]])
def test_an_answer_that_does_not_fit_is_an_internal_error_in_the_end(ids: list[str]) -> None:
    rig = Rig(Settings(retry_ms=1))
    rig.open()
    rig.outcomes()
    rig.publish("t")
    rig.flush()
    rig.receive(frames.Published(1, list(ids)))
    assert rig.outcomes() == {"t": "internal"}


def test_neither_id_nor_error() -> None:
    rig = Rig(Settings(retry_ms=1))
    rig.open()
    rig.outcomes()
    rig.publish("t")
    rig.flush()
    rig.receive(frames.Published(1, [None]))
    assert rig.outcomes() == {"t": "internal"}


def test_a_duplicate_without_an_id_is_stored() -> None:
    rig = Rig()
    rig.open()
    rig.outcomes()
    rig.publish("t")
    rig.flush()
    rig.receive(frames.Published(1, [None], duplicates=[0]))
    assert rig.outcomes() == {"t": Published(None, duplicate=True)}
    assert rig.core.producer.is_idle


def test_retries_back_off_until_their_time_is_up() -> None:
    rig = Rig(Settings(retry_ms=1_000))
    rig.open()
    rig.outcomes()
    rig.publish("t")
    times = []
    for id in range(1, 20):
        sent = rig.flush()
        assert seqs(sent) == [[1]]
        times.append(rig.now)
        rig.receive(frames.ErrorFrame("unavailable", "later", id=id))
        if outcomes := rig.outcomes():
            assert outcomes == {"t": "unavailable"}
            break
        wake_at = rig.core.wake_at()
        assert wake_at is not None
        rig.now = wake_at
        rig.core.tick(rig.now)
    assert times == [0, 50, 150, 350, 750]


def test_a_message_over_the_servers_limit_is_refused_when_the_server_is_known() -> None:
    rig = Rig()
    rig.core.start(0)
    rig.publish("big", body=b'"' + b"x" * 2000 + b'"')
    rig.publish("small")
    rig.link = 1
    rig.core.connected(1, None, 0)
    limits = Limits(message_bytes=1024)
    rig.receive(frames.Welcome("s", "a", "x", False, 0, 1, 1, limits.wire()))
    assert rig.outcomes() == {"big": "too_large"}
    assert len(seqs(rig.flush())) == 1
    assert rig.core.producer.waiting == 0


def test_what_was_never_sent_fails_as_unavailable() -> None:
    rig = Rig(Settings(publish_ms=3_000))
    rig.core.start(0)
    rig.publish("t")
    for _ in range(4):
        rig.tick(1_000)
    assert rig.outcomes() == {"t": "unavailable"}
    assert rig.core.producer.waiting_bytes == 0


def test_a_late_answer_to_a_failed_publish_is_ignored() -> None:
    rig = Rig(Settings(publish_ms=1_000))
    rig.open()
    rig.outcomes()
    rig.publish("t")
    rig.flush()
    rig.tick(1_000)
    assert rig.outcomes() == {"t": "connection_lost"}
    published(rig, 1, 1)
    assert rig.outcomes() == {}
    assert rig.core.producer.is_idle


def test_bad_messages_are_refused_before_they_harm_others() -> None:
    rig = Rig()
    rig.open()
    with pytest.raises(BadRequest):
        rig.core.publish("q", frames.PublishMessage(), "t", 0)
    with pytest.raises(BadRequest):
        rig.core.publish("topic:", frames.PublishMessage(body=Raw(b"1")), "t", 0)
    with pytest.raises(TooLarge):
        rig.core.publish("q", frames.PublishMessage(data=bytes(2**20 + 1)), "t", 0)
    assert rig.flush() == []


def test_after_the_end_nothing_is_taken_in() -> None:
    rig = Rig()
    rig.open()
    rig.core.close(0, 1_000)
    with pytest.raises(ConnectionLost, match="closed"):
        rig.publish("t")


def test_whoever_gives_up_after_the_end_changes_nothing() -> None:
    rig = Rig(Settings(waiting_messages=1))
    rig.core.start(0)
    producer = rig.core.producer
    rig.publish("a")
    producer.enter("b")
    rig.core.close(0, 0)
    rig.core.tick(0)
    assert list(rig.outcomes()) == ["a", "b"]
    assert not producer.withdraw("q", "a")
    producer.leave("b")
    producer.entered("c")
    assert producer.has_room()
